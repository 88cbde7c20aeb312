// Any registered planner as a level solver: the group's ops become a graph of their own.
#include <algorithm>
#include <map>

#include "base/numbers.h"
#include "model/step.h"
#include "remat/error.h"
#include "remat/hiremate.h"

namespace remat::hiremate {
namespace {

constexpr std::int64_t kPlannerWork = 1'000'000;

/// What a group is asked for.
enum class Question {
  kPeak,       ///< least duration within a budget at every step
  kSaved,      ///< within a budget between the two parts; what leaves is in memory anyway
  kRefreshed,  ///< the same, but what leaves is not kept and made again first
};

/// The ops of a group in the graph's order, with ops between the halves that stand for everything around the
/// group: `turn` reads what leaves forward, `around` makes the gradients that come in, `again` (refreshed)
/// reads what leaves once more. What comes in from outside weighs nothing.
class GroupGraph {
 public:
  GroupGraph(const Level& level, Question question)
      : level_(level), whole_(*level.training->graph), question_(question) {
    ops_ = level.forward;
    ops_.insert(ops_.end(), level.backward.begin(), level.backward.end());
    std::sort(ops_.begin(), ops_.end());
    num_forward_ = std::ssize(level.forward);
    graph_ = build();
  }

  const Graph& graph() const { return graph_; }
  /// A budget for the group as one for its graph.
  Bytes budget(const LevelBudget& asked, Bytes resident) const {
    if (!asked.saved) return Bytes((asked.peak - resident).count() >> shift_);
    return Bytes(asked.saved->count() >> shift_) + workspace_;
  }

  Option option_of(const Plan& plan) const {
    Option option;
    auto* into = &option.forward;
    for (OpId step : plan.steps) {
      const std::int64_t i = step.index();
      if (i == num_forward_ + 1) {
        into = question_ == Question::kRefreshed ? &option.refresh : &option.backward;
      } else if (i == num_forward_ + 2) {
        into = &option.backward;
      } else if (i != num_forward_) {
        into->push_back(ops_[at(i < num_forward_ ? i : i - kAround)]);
      }
    }
    return option;
  }

  /// Is there anything that leaves and could be made again?
  bool has_outputs() const { return !leaving_.empty(); }

 private:
  bool inside(OpId op) const { return std::binary_search(ops_.begin(), ops_.end(), op); }
  /// Index of an op of the group in its graph.
  std::int64_t local(OpId op) const {
    const auto i = std::lower_bound(ops_.begin(), ops_.end(), op) - ops_.begin();
    return i < num_forward_ ? i : i + kAround;
  }

  bool leaves(ValueId v) const {
    return std::any_of(whole_.readers[v].begin(), whole_.readers[v].end(),
                       [&](OpId r) { return !inside(r); });
  }

  std::int64_t value(ValueId v) {
    const auto [known, is_new] = values_.try_emplace(v, 0);
    if (!is_new) return known->second;
    const OpId maker = whole_.producer[v];
    const bool ours = maker && inside(maker);
    known->second = builder_.add_value(ours ? weight(v) : Bytes());
    if (ours) {
      const bool gradient = !level_.training->is_forward(maker);
      if (whole_.kept[v] || (gradient && leaves(v))) builder_.add_output(known->second);
      if (!gradient && leaves(v)) leaving_.push_back(known->second);
    } else if (maker && !level_.training->is_forward(maker)) {
      arriving_.push_back(known->second);
    } else {
      builder_.add_input(known->second);
    }
    return known->second;
  }

  /// Refreshed: what leaves weighs so much that it is not kept; otherwise it is in memory anyway.
  Bytes weight(ValueId v) const {
    const bool output = level_.training->is_forward(whole_.producer[v]) && !whole_.kept[v] && leaves(v);
    if (!output || question_ == Question::kPeak) return scaled(whole_.bytes[v]);
    return question_ == Question::kRefreshed ? scaled(whole_.bytes[v]) + total_ : Bytes();
  }
  Bytes scaled(Bytes bytes) const {
    return Bytes((bytes.count() + (std::int64_t{1} << shift_) - 1) >> shift_);
  }

  /// What the group makes and works in counts once for each value that leaves and twice beside them. Sizes
  /// for which that is more than a graph may hold are rounded up to multiples of a power of two.
  void find_total() {
    Wide total = 0;
    std::int64_t amounts = 0, leaving = 0;
    for (OpId op : ops_) {
      total += momentary(whole_, op).count();
      for (ValueId v : whole_.outputs[op]) {
        total += whole_.bytes[v].count();
        leaving += level_.training->is_forward(op) && leaves(v);
      }
      amounts += 1 + std::ssize(whole_.outputs[op]);
    }
    while (((total >> shift_) + amounts) * (2 * leaving + 4) >= kMaxCount) ++shift_;
    for (OpId op : ops_) {
      total_ += scaled(momentary(whole_, op));
      for (ValueId v : whole_.outputs[op]) total_ += scaled(whole_.bytes[v]);
    }
  }

  Graph build() {
    if (question_ != Question::kPeak) find_total();
    for (OpId op : ops_) {
      for (ValueId v : whole_.inputs[op]) value(v);
      for (ValueId v : whole_.outputs[op]) value(v);
    }
    if (question_ != Question::kPeak) workspace_ = Bytes((2 + std::ssize(leaving_)) * total_.count());
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      if (static_cast<std::int64_t>(i) == num_forward_) add_around();
      add_op(ops_[i]);
    }
    if (std::ssize(ops_) == num_forward_) add_around();
    return builder_.build();
  }

  void add_around() {
    std::vector<std::int64_t> after;
    for (std::int64_t i = 0; i < num_forward_; ++i) after.push_back(i);
    OpSpec turn;
    turn.name = "turn";
    turn.recomputable = false;
    turn.phase = Phase::kLoss;
    turn.inputs = leaving_;
    turn.after = after;
    builder_.add_op(turn);
    after = {num_forward_};
    OpSpec around = turn;
    around.name = "around";
    around.workspace = workspace_;
    if (question_ == Question::kRefreshed) around.inputs = {};
    around.outputs = arriving_;
    around.after = after;
    builder_.add_op(around);
    after = {num_forward_ + 1};
    OpSpec again = turn;
    again.name = "again";
    if (question_ != Question::kRefreshed) again.inputs = {};
    again.after = after;
    builder_.add_op(again);
  }

  void add_op(OpId op) {
    std::vector<std::int64_t> inputs, outputs, after;
    for (ValueId v : whole_.inputs[op]) inputs.push_back(values_.at(v));
    for (ValueId v : whole_.outputs[op]) outputs.push_back(values_.at(v));
    for (OpId before : whole_.after[op]) {
      if (inside(before)) after.push_back(local(before));
    }
    const bool forward = level_.training->is_forward(op);
    if (!forward) after.push_back(num_forward_ + kAround - 1);
    OpSpec spec;
    spec.name = whole_.op_name[op];
    spec.duration = whole_.duration[op];
    spec.workspace = scaled(momentary(whole_, op));
    spec.recomputable = whole_.recomputable[op];
    spec.phase = forward ? Phase::kForward : Phase::kBackward;
    spec.inputs = inputs;
    spec.outputs = outputs;
    spec.after = after;
    builder_.add_op(spec);
  }

  static constexpr std::int64_t kAround = 3;  ///< turn, around, again

  const Level& level_;
  const Graph& whole_;
  const Question question_;
  int shift_ = 0;  ///< sizes are counted in units of 2^shift_ bytes
  Bytes total_;
  Bytes workspace_;  ///< of the op `around`, so that only what is saved is scarce
  std::vector<OpId> ops_;
  std::int64_t num_forward_ = 0;
  std::map<ValueId, std::int64_t> values_;
  std::vector<std::int64_t> leaving_, arriving_;
  GraphBuilder builder_;
  Graph graph_;
};

class PlannerSolver final : public LevelSolver {
 public:
  PlannerSolver(std::string planner, const Settings& settings)
      : planner_(std::move(planner)), settings_(settings) {
    find_planner(planner_);
    if (planner_ == "hiremate") throw UsageError("hiremate is no solver of its own levels");
  }
  std::string name() const override { return planner_; }

  bool applicable(const Level& level) const override {
    const GroupGraph group(level, Question::kPeak);
    return !find_planner(planner_).supports({&group.graph(), Bytes(1)});
  }

  std::vector<Option> options(const Level& level, const std::vector<LevelBudget>& budgets,
                              Limits& limits) const override {
    const Bytes resident = level.is_root ? level.training->graph->resident : Bytes();
    std::vector<Option> found;
    for (const Question question : {Question::kPeak, Question::kSaved, Question::kRefreshed}) {
      const GroupGraph group(level, question);
      if (question == Question::kRefreshed && !group.has_outputs()) continue;
      for (const LevelBudget& budget : budgets) {
        if (limits.reached()) return found;
        if (budget.saved.has_value() == (question == Question::kPeak)) continue;
        const Bytes bytes = group.budget(budget, resident);
        if (auto option = ask(group, bytes, level.is_root, limits)) found.push_back(std::move(*option));
      }
    }
    return found;
  }

 private:
  std::optional<Option> ask(const GroupGraph& group, Bytes budget, bool is_root, Limits& limits) const {
    Limits part(limits, is_root ? 1 : 0.25);
    if (!is_root) part.set_work(std::min(part.work_left().value_or(kPlannerWork), kPlannerWork));
    const PlanResult result = make_plan({&group.graph(), budget}, planner_, {settings_.seed, 1, {}}, part);
    if (!result.plan || (!has_plan(result) && !is_root)) return std::nullopt;
    return group.option_of(*result.plan);
  }

  std::string planner_;
  Settings settings_;
};

}  // namespace

std::shared_ptr<const LevelSolver> planner_solver(std::string_view planner, const Settings& settings) {
  return std::make_shared<PlannerSolver>(std::string(planner), settings);
}

}  // namespace remat::hiremate
