// Any registered planner as a level solver: the group's ops become a graph of their own.
#include <algorithm>
#include <map>

#include "remat/error.h"
#include "remat/hiremate.h"

namespace remat::hiremate {
namespace {

constexpr std::int64_t kLowerWork = 1'000'000;

/// The ops of a group in the graph's order, with one op between the halves that stands for everything
/// around the group: it reads what leaves forward and makes the gradients that come in. What comes in from
/// outside weighs nothing.
class GroupGraph {
 public:
  explicit GroupGraph(const Level& level) : level_(level), whole_(*level.training->graph) {
    ops_ = level.forward;
    ops_.insert(ops_.end(), level.backward.begin(), level.backward.end());
    std::sort(ops_.begin(), ops_.end());
    num_forward_ = static_cast<std::int64_t>(level.forward.size());
    graph_ = build();
  }

  const Graph& graph() const { return graph_; }

  Option option_of(const Plan& plan) const {
    Option option;
    auto* into = &option.forward;
    for (OpId step : plan.steps) {
      const std::int64_t i = step.index();
      if (i == num_forward_) {
        into = &option.backward;
      } else {
        into->push_back(ops_[static_cast<std::size_t>(i < num_forward_ ? i : i - 1)]);
      }
    }
    return option;
  }

 private:
  bool inside(OpId op) const { return std::binary_search(ops_.begin(), ops_.end(), op); }
  /// Index of an op of the group in its graph.
  std::int64_t local(OpId op) const {
    const auto i = std::lower_bound(ops_.begin(), ops_.end(), op) - ops_.begin();
    return i < num_forward_ ? i : i + 1;
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
    known->second = builder_.add_value(ours ? whole_.bytes[v] : Bytes());
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

  Graph build() {
    for (OpId op : ops_) {
      for (ValueId v : whole_.inputs[op]) value(v);
      for (ValueId v : whole_.outputs[op]) value(v);
    }
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      if (static_cast<std::int64_t>(i) == num_forward_) add_turn();
      add_op(ops_[i]);
    }
    if (static_cast<std::int64_t>(ops_.size()) == num_forward_) add_turn();
    return builder_.build();
  }

  void add_turn() {
    std::vector<std::int64_t> after;
    for (std::int64_t i = 0; i < num_forward_; ++i) after.push_back(i);
    OpSpec turn;
    turn.name = "turn";
    turn.recomputable = false;
    turn.phase = Phase::kLoss;
    turn.inputs = leaving_;
    turn.outputs = arriving_;
    turn.after = after;
    builder_.add_op(turn);
  }

  void add_op(OpId op) {
    std::vector<std::int64_t> inputs, outputs, after;
    for (ValueId v : whole_.inputs[op]) inputs.push_back(values_.at(v));
    for (ValueId v : whole_.outputs[op]) outputs.push_back(values_.at(v));
    for (OpId before : whole_.after[op]) {
      if (inside(before)) after.push_back(local(before));
    }
    const bool forward = level_.training->is_forward(op);
    if (!forward) after.push_back(num_forward_);
    OpSpec spec;
    spec.name = whole_.op_name[op];
    spec.duration = whole_.duration[op];
    spec.workspace = whole_.workspace[op];
    spec.recomputable = whole_.recomputable[op];
    spec.phase = forward ? Phase::kForward : Phase::kBackward;
    spec.inputs = inputs;
    spec.outputs = outputs;
    spec.after = after;
    builder_.add_op(spec);
  }

  const Level& level_;
  const Graph& whole_;
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
    const GroupGraph group(level);
    return !find_planner(planner_).supports({&group.graph(), Bytes(1)});
  }

  std::vector<Option> options(const Level& level, const std::vector<LevelBudget>& budgets,
                              Limits& limits) const override {
    const GroupGraph group(level);
    const Bytes resident = level.is_root ? level.training->graph->resident : Bytes();
    std::vector<Option> found;
    for (std::size_t i = 0; i < budgets.size() && !limits.reached(); ++i) {
      if (budgets[i].saved) continue;  // a planner knows one budget
      Limits part(limits, 1.0 / static_cast<double>(budgets.size() - i));
      if (!level.is_root) part.set_work(std::min(part.work_left().value_or(kLowerWork), kLowerWork));
      Problem problem{&group.graph(), budgets[i].peak - resident};
      const PlanResult result = make_plan(problem, planner_, {settings_.seed, 1, {}}, part);
      if (result.plan && (has_plan(result) || level.is_root)) found.push_back(group.option_of(*result.plan));
    }
    return found;
  }

 private:
  std::string planner_;
  Settings settings_;
};

}  // namespace

std::shared_ptr<const LevelSolver> planner_solver(std::string_view planner, const Settings& settings) {
  return std::make_shared<PlannerSolver>(std::string(planner), settings);
}

}  // namespace remat::hiremate
