#include "bounds/moments.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "base/numbers.h"
#include "exact/retention_cut.h"
#include "exact/stage_solve.h"
#include "graph/need.h"

namespace remat {
namespace {

constexpr std::int64_t kMostColumns = 400'000;
constexpr std::int64_t kMostCandidates = 16;
constexpr std::int64_t kWindows = 50;       ///< of the graph, one candidate of either kind in each
constexpr std::int64_t kLeastGain = 2000;   ///< this part of the step, for one moment more
constexpr std::int64_t kLeastOfGap = 20;    ///< or this part of what is missing
constexpr std::int64_t kTicksPerOp = 4000;  ///< of a minimum cut: about ten microseconds per op
constexpr std::int64_t kMostTicks = 20'000'000;
constexpr std::int64_t kMostWork = 30'000'000;  ///< of one integer program: some seconds
constexpr double kChoosing = 0.5;               ///< of the limits

constexpr std::int64_t kFewStages = 3;  ///< unions of fewer prove next to nothing more

class Moments {
 public:
  Moments(const Graph& graph, Bytes budget, std::optional<Duration> known, Limits& limits,
          DurationBound& best)
      : graph_(graph), budget_(budget), known_(known), limits_(limits), best_(best) {}

  std::optional<Plan> run() {
    if (!too_large({})) {
      choose();
      solve_programs();
    }
    return std::move(faster_);
  }

 private:
  struct Candidate {
    OpId at;
    Duration gain;  ///< of what is proved, beside those that were chosen when it was tried last
  };

  void solve_programs() {
    // Each moment more makes the program dearer by a multiple: what was not settled was the last.
    for (auto count = std::min<std::size_t>(3, chosen_.size()); count <= chosen_.size() && !done(limits_);
         ++count) {
      std::vector<OpId> some(chosen_.begin(), chosen_.begin() + narrow<std::ptrdiff_t>(count));
      if (!settled(std::move(some))) return;
    }
    while (!done(limits_) && !too_large(chosen_)) {
      const OpId next = forgotten();
      if (!next) return;
      chosen_.push_back(next);
      if (!settled(chosen_)) return;
    }
  }

  bool done(Limits& limits) const { return limits.reached() || (known_ && best_.duration >= *known_); }

  /// The dearest step of each window, by what keep-all holds there and by what the op needs itself: what is
  /// made again for one of those must be gone again for the next.
  std::vector<OpId> candidates() const {
    IndexVector<StepId, Bytes> memory;
    simulate(graph_, keep_all_plan(graph_), memory);
    const auto by_memory = [&](OpId op) { return memory[StepId(op.index())]; };
    const auto by_need = [&](OpId op) { return need_of(graph_, op); };
    std::vector<OpId> result = dearest(by_memory, kMostCandidates / 4);
    for (OpId op : dearest(by_need, kMostCandidates)) {
      if (std::ranges::find(result, op) == result.end()) result.push_back(op);
    }
    if (std::ssize(result) > kMostCandidates) result.resize(kMostCandidates);
    return result;
  }

  template <class Measure>
  std::vector<OpId> dearest(const Measure& measure, std::int64_t most) const {
    const auto n = graph_.ops().size();
    const std::int64_t reach = std::max<std::int64_t>(1, n / kWindows);
    IndexVector<OpId, Bytes> here(graph_.num_ops());
    for (OpId op : graph_.ops()) here[op] = measure(op);
    // Within reach, each that is dearer than all after it: the front is the dearest.
    std::deque<OpId> ahead;
    std::int64_t next = 0;
    std::vector<OpId> result;
    for (OpId op : IdRange<OpId>(OpId(0), OpId(std::max<std::int64_t>(0, n - 1)))) {
      for (; next <= std::min(n - 1, op.index() + reach); ++next) {
        while (!ahead.empty() && here[ahead.back()] < here[OpId(next)]) ahead.pop_back();
        ahead.push_back(OpId(next));
      }
      if (ahead.front().index() < op.index() - reach) ahead.pop_front();
      if (ahead.front() == op) result.push_back(op);
    }
    std::stable_sort(result.begin(), result.end(), [&](OpId a, OpId b) { return here[a] > here[b]; });
    if (std::ssize(result) > most) result.resize(narrow<std::size_t>(most));
    return result;
  }

  void choose() {
    Limits part(limits_, kChoosing);
    std::vector<Candidate> rest;
    for (OpId at : candidates()) {
      const auto ticks = std::min(kMostTicks, kTicksPerOp * graph_.ops().size());
      const Duration extra = retention_bound(graph_, at, budget_, OrderMode::kFixed, ticks, &part);
      rest.push_back({at, extra});
      raise({"retention", graph_.base_duration + extra});
    }
    // Where little is missing, less is worth a moment.
    std::int64_t worth = graph_.base_duration.count() / kLeastGain;
    if (known_) worth = std::min(worth, (*known_ - best_.duration).count() / kLeastOfGap);
    const Duration least(worth);
    bool is_all_new = false;
    reached_ = graph_.base_duration;
    while (!rest.empty() && !done(part)) {
      sort(rest);
      if (rest.front().gain <= least) {
        // Moments may be worth something together only.
        if (is_all_new || chosen_.empty()) break;
        renew(rest, true, part);
        is_all_new = true;
        continue;
      }
      reached_ += rest.front().gain;
      chosen_.push_back(rest.front().at);
      rest.erase(rest.begin());
      is_all_new = chosen_.size() == 1;
      renew(rest, is_all_new, part);
    }
  }

  /// Tries all again beside those that are chosen; or only the best so far, until that is one tried again.
  void renew(std::vector<Candidate>& rest, bool all, Limits& limits) {
    std::vector<bool> is_new(graph_.ops().size(), false);
    const auto is_old = [&](const Candidate& c) { return !is_new[at(c.at.index())]; };
    while (!limits.reached()) {
      if (!all) sort(rest);
      const auto next = all ? std::ranges::find_if(rest, is_old) : rest.begin();
      if (next == rest.end() || !is_old(*next)) return;
      std::vector<OpId> moments = chosen_;
      moments.push_back(next->at);
      if (too_large(moments)) return rest.clear();
      next->gain = solve(std::move(moments), false, limits).bound - reached_;
      is_new[at(next->at.index())] = true;
    }
  }

  static void sort(std::vector<Candidate>& rest) {
    std::stable_sort(rest.begin(), rest.end(),
                     [](const Candidate& a, const Candidate& b) { return a.gain > b.gain; });
  }

  bool too_large(const std::vector<OpId>& moments) const {
    const auto each = static_cast<std::int64_t>(graph_.num_ops() + graph_.num_values());
    return (std::ssize(moments) + 2) * each > kMostColumns;
  }

  bool settled(std::vector<OpId> moments) {
    Limits part(limits_, 1);
    part.set_work(std::min(kMostWork, part.work_left().value_or(kMostWork)));
    return solve(std::move(moments), true, part).settled;
  }

  /// The moment at which the last solution, as a plan, is furthest over the budget; none where it fits, or is
  /// dearest at moments that were chosen.
  OpId forgotten() const {
    if (!solution_) return OpId::none();
    IndexVector<StepId, Bytes> memory;
    simulate(graph_, *solution_, memory);
    IndexVector<OpId, bool> has_run(graph_.num_ops(), false);
    OpId found;
    Bytes most = budget_;
    // The memory of a rerun is that of the stage which the next first run is in.
    Bytes since;
    for (StepId step : solution_->steps.ids()) {
      since = std::max(since, memory[step]);
      const OpId op = solution_->steps[step];
      if (has_run[op]) continue;
      has_run[op] = true;
      const bool is_new = std::ranges::find(chosen_, op) == chosen_.end();
      if (is_new && since > most) {
        most = since;
        found = op;
      }
      since = Bytes();
    }
    return found;
  }

  StageOutcome solve(std::vector<OpId> moments, bool integer, Limits& limits) {
    const auto stages = std::ssize(moments) + 1;
    std::ranges::sort(moments);
    StageSpec spec{.budget = budget_, .first = {OpId(0)}};
    for (OpId op : moments) spec.first.push_back(op.next());
    if (known_) spec.cutoff = *known_ - Duration(1);
    spec.first_runs = false;
    spec.unions = !integer && stages > kFewStages;
    const StageModel model(graph_, spec);
    StageEffort effort;
    effort.integer = integer;
    effort.fixing_rounds = integer ? 2 : 1;
    effort.heuristics = 0;
    StageOutcome outcome = solve_stages(graph_, model, spec, effort, limits);
    raise({integer ? "stage_milp" : "stage_lp", outcome.bound});
    if (integer) {
      solution_.reset();
      if (outcome.x) take(model.plan_late(*outcome.x));
    }
    return outcome;
  }

  void take(Plan plan) {
    const Simulation cost = simulate(graph_, plan);
    if (cost.peak <= budget_ && (!known_ || cost.duration < *known_)) {
      known_ = cost.duration;
      best_.duration = std::min(best_.duration, cost.duration);
      faster_ = plan;
    }
    solution_ = std::move(plan);
  }

  void raise(DurationBound bound) {
    if (bound.duration > best_.duration) best_ = std::move(bound);
    if (known_) best_.duration = std::min(best_.duration, *known_);
  }

  const Graph& graph_;
  Bytes budget_;
  std::optional<Duration> known_;
  Limits& limits_;
  DurationBound& best_;
  std::vector<OpId> chosen_;
  std::optional<Plan> faster_;    ///< than what was known, within the budget
  std::optional<Plan> solution_;  ///< what the last integer program found, over the budget elsewhere
  Duration reached_;              ///< what the relaxation over the chosen ones proves
};

}  // namespace

std::optional<Plan> raise_by_moments(const Graph& graph, Bytes budget, std::optional<Duration> known,
                                     Limits& limits, DurationBound& best) {
  return Moments(graph, budget, known, limits, best).run();
}

}  // namespace remat
