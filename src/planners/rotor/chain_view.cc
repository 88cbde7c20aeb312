#include "planners/rotor/chain_view.h"

#include <algorithm>

#include "base/numbers.h"
#include "model/step.h"
#include "polish/polish.h"

namespace remat::rotor {
namespace {

constexpr std::int32_t kNever = -1;  ///< a stage before all others: kept to the end

enum class Cuts { kAll, kReadByBackward };

/// Finds the cuts, the stage of every op, and the values that have to be held.
class Cutter {
 public:
  Cutter(const Graph& graph, const Pairing& pairing, Cuts cuts, std::int64_t longest_skip,
         std::int64_t most_stages)
      : graph_(graph),
        first_backward_(pairing.first_backward),
        cuts_(cuts),
        most_stages_(most_stages),
        held_(graph.num_values(), false),
        stage_(graph.num_ops(), 0) {
    for (ValueId v : graph.values()) {
      if (!is_forward(v)) continue;
      const OpId maker = graph.producer[v], last = last_forward_reader(v);
      held_[v] = graph.kept[v] || !graph.recomputable[maker] ||
                 (last && last.index() - maker.index() > longest_skip);
    }
  }

  /// False if the graph is no chain, however many values are held.
  bool cut() {
    constexpr int kRounds = 8;
    for (int round = 0; round < kRounds; ++round) {
      find_cuts();
      if (begins_.size() < 2) return false;
      if (assign_backward()) return true;
    }
    return false;
  }

  std::int32_t stages() const { return narrow<std::int32_t>(begins_.size()); }
  std::int32_t stage(OpId op) const { return stage_[op]; }
  bool is_held(ValueId v) const { return held_[v]; }
  bool is_forward(ValueId v) const {
    return !graph_.is_graph_input(v) && graph_.producer[v] < first_backward_;
  }
  bool is_forward(OpId op) const { return op < first_backward_; }
  /// Made in a stage and read by the forward half of the next.
  bool crosses(ValueId v) const {
    if (held_[v]) return false;
    const OpId last = last_forward_reader(v);
    return last && stage_[last] > stage_[graph_.producer[v]];
  }

 private:
  OpId last_forward_reader(ValueId v) const {
    const auto readers = graph_.readers[v];
    const auto end = std::lower_bound(readers.begin(), readers.end(), first_backward_);
    return end == readers.begin() ? OpId() : *(end - 1);
  }

  bool read_by_backward(OpId op) const {
    const auto outputs = graph_.outputs[op];
    return std::any_of(outputs.begin(), outputs.end(), [&](ValueId v) {
      return !graph_.readers[v].empty() && graph_.readers[v].back() >= first_backward_;
    });
  }

  void find_cuts() {
    const std::int64_t n = first_backward_.index();
    // Makers that wait for a later forward reader at each place: their number and the sum of their indices.
    std::vector<std::int64_t> count(at(n) + 2, 0), sum(at(n) + 2, 0);
    for (OpId op : IdRange<OpId>(OpId(0), first_backward_)) {
      OpId last;
      for (ValueId v : graph_.outputs[op]) {
        if (!held_[v]) last = std::max(last, last_forward_reader(v));
      }
      if (!last) continue;
      ++count[at(op.index()) + 1], --count[at(last.index()) + 1];
      sum[at(op.index()) + 1] += op.index(), sum[at(last.index()) + 1] -= op.index();
    }
    begins_.assign(1, OpId(0));
    std::int64_t waiting = 0, makers = 0, before = -1;
    for (std::int64_t place = 1; place < n; ++place) {
      waiting += count[at(place)];
      makers += sum[at(place)];
      if (waiting != 1 || makers == before) continue;
      if (cuts_ == Cuts::kReadByBackward && !read_by_backward(OpId(makers))) continue;
      before = makers;
      begins_.push_back(OpId(place));
    }
    thin_out();
    std::int32_t stage = -1;
    for (OpId op : IdRange<OpId>(OpId(0), first_backward_)) {
      if (at(stage + 1) < begins_.size() && begins_[at(stage + 1)] == op) ++stage;
      stage_[op] = stage;
    }
  }

  void thin_out() {
    const auto all = std::ssize(begins_);
    if (all <= most_stages_) return;
    std::vector<OpId> some;
    for (std::int64_t i = 0; i < most_stages_; ++i) some.push_back(begins_[at(i * all / most_stages_)]);
    begins_ = std::move(some);
  }

  /// Walks the backward ops and lowers the stage as their inputs require. An input from a later stage is held
  /// from then on; false if there was one.
  bool assign_backward() {
    bool fits = true;
    std::int32_t stage = stages() - 1;
    for (OpId op : IdRange<OpId>(first_backward_, OpId(graph_.ops().size()))) {
      for (ValueId v : graph_.inputs[op]) {
        if (!is_forward(v) || held_[v]) continue;
        stage = std::min(stage, stage_[graph_.producer[v]] + std::int32_t{crosses(v)});
      }
      stage_[op] = stage;
      for (ValueId v : graph_.inputs[op]) {
        if (!is_forward(v) || held_[v] || stage_[graph_.producer[v]] <= stage) continue;
        held_[v] = true;
        fits = false;
      }
    }
    return fits;
  }

  const Graph& graph_;
  OpId first_backward_;
  Cuts cuts_;
  std::int64_t most_stages_;
  IndexVector<ValueId, bool> held_;
  IndexVector<OpId, std::int32_t> stage_;
  std::vector<OpId> begins_;
};

/// Memory of a run of some ops, from live ranges of values in its steps.
class Segment {
 public:
  Segment(const Graph& graph, const std::vector<OpId>& ops)
      : graph_(graph), ops_(ops), change_(ops.size() + 1, 0) {}

  /// Alive in steps [begin, end); `end` may be 0.
  void live(ValueId v, std::size_t begin, std::size_t end) {
    if (begin >= end) return;
    change_[begin] += graph_.bytes[v].count();
    change_[end] -= graph_.bytes[v].count();
  }
  /// One past the last of the ops that reads the value, 0 where none does.
  std::size_t end_of_reads(ValueId v) const {
    const auto readers = graph_.readers[v];
    for (std::size_t r = readers.size(); r-- > 0;) {
      const auto found = std::lower_bound(ops_.begin(), ops_.end(), readers[r]);
      if (found != ops_.end() && *found == readers[r]) return narrow<std::size_t>(found - ops_.begin()) + 1;
    }
    return 0;
  }
  /// Adds all outputs of the ops: `stays`: those that outlive the segment; `skips`: those counted elsewhere.
  template <class Stays, class Skips>
  void make(Stays&& stays, Skips&& skips) {
    for (std::size_t step = 0; step < ops_.size(); ++step) {
      for (ValueId v : graph_.outputs[ops_[step]]) {
        if (skips(v)) continue;
        live(v, step, stays(v) ? ops_.size() : std::max(step + 1, end_of_reads(v)));
      }
    }
  }
  std::int64_t peak() const {
    std::int64_t memory = 0, most = 0;
    for (std::size_t step = 0; step < ops_.size(); ++step) {
      memory += change_[step];
      most = std::max(most, memory + momentary(graph_, ops_[step]).count());
    }
    return most;
  }

 private:
  const Graph& graph_;
  const std::vector<OpId>& ops_;
  std::vector<std::int64_t> change_;
};

/// Sizes and times of the stages that a cutter found.
class Measure {
 public:
  Measure(const Graph& graph, const Cutter& cutter)
      : graph_(graph),
        cutter_(cutter),
        n_(cutter.stages()),
        until_(graph.num_values(), n_),
        rerun_(graph.num_ops(), false) {
    view_.halves.resize(at(n_));
    for (OpId op : graph.ops()) {
      auto& half = view_.halves[at(cutter.stage(op))];
      (cutter.is_forward(op) ? half.forward : half.backward).push_back(op);
    }
    last_uses();
    charge_around();
  }

  ChainView view() {
    for (std::int32_t i = 0; i < n_; ++i) {
      select_reruns(i);
      view_.chain.stages.push_back(stage(i));
    }
    for (ValueId v : graph_.values()) view_.held_values += cutter_.is_held(v);
    return std::move(view_);
  }

 private:
  bool counts_around(ValueId v) const {
    return !graph_.is_graph_input(v) && (cutter_.is_held(v) || !cutter_.is_forward(v));
  }
  /// Read by the backward half of the stage that made it.
  bool is_saved(ValueId v) const {
    if (cutter_.is_held(v)) return false;
    const std::int32_t made = cutter_.stage(graph_.producer[v]);
    for (OpId reader : graph_.readers[v]) {
      if (!cutter_.is_forward(reader) && cutter_.stage(reader) == made) return true;
    }
    return false;
  }

  /// until_[v]: the lowest stage (the last backward half) that needs a held or backward value; kNever if it
  /// is kept. Counts forward halves that read it, which may be rerun up to then.
  void last_uses() {
    for (ValueId v : graph_.values()) {
      if (!counts_around(v)) continue;
      for (OpId reader : graph_.readers[v]) until_[v] = std::min(until_[v], cutter_.stage(reader));
      if (graph_.kept[v]) until_[v] = kNever;
    }
  }

  void charge_around() {
    // around[t] holds v for until <= t, and for a backward value t < the stage that made it.
    std::vector<std::int64_t> change(at(n_) + 1, 0);
    ending_.resize(at(n_));
    held_before_.assign(at(n_) + 1, 0);
    for (ValueId v : graph_.values()) {
      if (!counts_around(v)) continue;
      const std::int32_t made = cutter_.stage(graph_.producer[v]);
      const std::int32_t end = cutter_.is_forward(v) ? n_ : made;
      if (cutter_.is_forward(v) && (until_[v] < n_)) held_before_[at(made) + 1] += graph_.bytes[v].count();
      if (until_[v] >= end) continue;
      change[at(std::max(until_[v], 0))] += graph_.bytes[v].count();
      change[at(end)] -= graph_.bytes[v].count();
      if (until_[v] != kNever) ending_[at(until_[v])].push_back(v);
    }
    for (std::int32_t i = 0; i < n_; ++i) {
      held_before_[at(i) + 1] += held_before_[at(i)];
      change[at(i) + 1] += change[at(i)];
    }
    view_.chain.around.assign(change.begin(), change.end() - 1);
  }

  /// Selects the forward ops that a rerun of a stage needs.
  void select_reruns(std::int32_t i) {
    auto& half = view_.halves[at(i)];
    half.pass = reruns(half.forward, [&](ValueId v) { return cutter_.crosses(v); });
    half.save = reruns(half.forward, [&](ValueId v) { return cutter_.crosses(v) || is_saved(v); });
  }

  template <class Wanted>
  std::vector<OpId> reruns(const std::vector<OpId>& forward, Wanted&& wanted) {
    std::vector<OpId> found;
    const auto needed = [&](ValueId v) {
      const auto readers = graph_.readers[v];
      return !cutter_.is_held(v) &&
             (wanted(v) || std::any_of(readers.begin(), readers.end(), [&](OpId r) { return rerun_[r]; }));
    };
    for (std::size_t k = forward.size(); k-- > 0;) {
      const auto outputs = graph_.outputs[forward[k]];
      if (!graph_.recomputable[forward[k]] || std::none_of(outputs.begin(), outputs.end(), needed)) continue;
      rerun_[forward[k]] = true;
      found.push_back(forward[k]);
    }
    for (OpId op : found) rerun_[op] = false;
    std::reverse(found.begin(), found.end());
    return found;
  }

  std::int64_t time(const std::vector<OpId>& ops) const {
    std::int64_t sum = 0;
    for (OpId op : ops) sum += graph_.duration[op].count();
    return sum;
  }

  Stage stage(std::int32_t i) {
    auto& half = view_.halves[at(i)];
    const auto held = [&](ValueId v) { return cutter_.is_held(v); };
    const auto kept = [&](ValueId v) { return graph_.kept[v]; };
    const auto none = [](ValueId) { return false; };
    const auto crosses = [&](ValueId v) { return cutter_.crosses(v); };
    const auto saves = [&](ValueId v) { return crosses(v) || is_saved(v); };
    const auto peak = [&](const std::vector<OpId>& ops, auto&& stays, auto&& skips) {
      Segment segment(graph_, ops);
      segment.make(stays, skips);
      return segment.peak();
    };
    Stage stage;
    StageOption save;
    for (OpId op : half.forward) {
      for (ValueId v : graph_.outputs[op]) {
        if (!saves(v)) continue;
        (crosses(v) ? half.output : half.rest).push_back(v);
        if (crosses(v)) stage.output += graph_.bytes[v].count();
        save.saved += graph_.bytes[v].count();
      }
    }
    stage.pass_time = time(half.pass);
    stage.first_time = time(half.save);
    stage.pass_need = peak(half.pass, crosses, kept);
    save.forward_need = peak(half.save, saves, kept);
    const auto with_held = [&](auto&& stays) {
      return [&, stays](ValueId v) { return stays(v) || (held(v) && until_[v] < n_); };
    };
    stage.first_need = held_before_[at(i)] + peak(half.forward, with_held(crosses), none);
    save.first_need = held_before_[at(i)] + peak(half.forward, with_held(saves), none);
    save.backward_need = backward_peak(i);
    stage.options.push_back(save);
    return stage;
  }

  std::int64_t backward_peak(std::int32_t i) const {
    const auto& half = view_.halves[at(i)];
    Segment segment(graph_, half.backward);
    // Values alive before and after the stage are in around[i]; those that end here count for all its steps.
    std::int64_t all_along = view_.chain.around[at(i)];
    for (ValueId v : ending_[at(i)]) {
      all_along -= graph_.bytes[v].count();
      segment.live(v, 0, segment.end_of_reads(v));
    }
    for (OpId op : half.forward) {
      for (ValueId v : graph_.outputs[op]) {
        if (is_saved(v)) segment.live(v, 0, segment.end_of_reads(v));
      }
    }
    segment.make([&](ValueId v) { return until_[v] < i; }, [](ValueId) { return false; });
    return all_along + segment.peak();
  }

  const Graph& graph_;
  const Cutter& cutter_;
  std::int32_t n_;
  IndexVector<ValueId, std::int32_t> until_;
  std::vector<std::vector<ValueId>>
      ending_;                             ///< made before the backward half of the stage, last needed there
  IndexVector<OpId, bool> rerun_;          ///< of the half that `reruns` is at
  std::vector<std::int64_t> held_before_;  ///< bytes of held values that the stages before make
  ChainView view_;
};

/// Visits ways to cut the forward pass until `visit` returns false: first no skips held, then the longest
/// ones, as long as that gives a fifth more stages.
template <class Visit>
void each_cut(const Graph& graph, const Pairing& pairing, std::int64_t most_stages, Visit&& visit) {
  for (Cuts cuts : {Cuts::kReadByBackward, Cuts::kAll}) {
    std::int64_t most = 1;
    for (std::int64_t skip = pairing.first_backward.index(); skip > 2; skip = skip * 3 / 4) {
      Cutter cutter(graph, pairing, cuts, skip, most_stages);
      if (!cutter.cut() || 5 * cutter.stages() <= 6 * most) continue;
      most = cutter.stages();
      if (!visit(cutter)) return;
    }
  }
}

}  // namespace

bool has_chain_view(const Graph& graph, const Pairing& pairing, std::int64_t most_stages) {
  bool found = false;
  each_cut(graph, pairing, most_stages, [&](const Cutter&) {
    found = true;
    return false;
  });
  return found;
}

std::vector<ChainView> chain_views(const Graph& graph, const Pairing& pairing, std::int64_t most_stages) {
  std::vector<ChainView> views;
  each_cut(graph, pairing, most_stages, [&](const Cutter& cutter) {
    const auto alike = [&](const ChainView& view) {
      return 20 * std::ssize(view.halves) >= 19 * cutter.stages();
    };
    if (std::none_of(views.begin(), views.end(), alike)) views.push_back(Measure(graph, cutter).view());
    return true;
  });
  std::stable_sort(views.begin(), views.end(),
                   [](const ChainView& a, const ChainView& b) { return a.halves.size() < b.halves.size(); });
  return views;
}

Plan plan_of(const Graph& graph, const ChainView& view, const std::vector<Action>& actions) {
  Plan plan;
  std::int32_t reached = 0;
  for (const Action& action : actions) {
    const auto& half = view.halves[at(action.stage)];
    const bool first = action.stage == reached && action.kind != Action::Kind::kBackward;
    const auto& ops = action.kind == Action::Kind::kBackward ? half.backward
                      : first                                ? half.forward
                      : action.kind == Action::Kind::kPass   ? half.pass
                                                             : half.save;
    reached += first;
    for (OpId op : ops) plan.steps.push_back(op);
  }
  return polish::without_unread_steps(graph, plan);
}

}  // namespace remat::rotor
