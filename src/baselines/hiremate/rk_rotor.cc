// RK-ROTOR (section 3.2.1; Zhao et al. 2023): dynamic programming over a chain of members, each with several
// options. The table is that of `rotor`; here levels become chains and its schedules runs of nodes.
#include <algorithm>
#include <limits>
#include <map>

#include "base/numbers.h"
#include "baselines/hiremate/greedy_runs.h"
#include "planners/rotor/chain.h"

namespace remat::hiremate {
namespace {

constexpr std::int32_t kSlots = 400;
constexpr std::int64_t kMostCells = 40'000'000;
constexpr std::int64_t kNever = std::int64_t{1} << 60;  // bytes that no budget has

/// Bytes between member i and i + 1. Data nodes of the forward part of a member are read by that member and
/// the next one only; a gradient may go to any member before (that of a tied embedding) and is in memory all
/// the way.
struct Links {
  std::vector<std::int64_t> forward, gradient;
};

std::optional<Links> links_of(const LevelGraph& graph) {
  const int m = graph.turn;
  Links links{std::vector<std::int64_t>(at(m), 0), std::vector<std::int64_t>(at(m), 0)};
  // Members without a backward part run with what comes before; only those that all have one are handled,
  // and their backward parts in reverse order.
  for (int i = 0; i < m; ++i) {
    if (graph.members[at(i)].backward_node != graph.num_nodes() - 1 - i) return std::nullopt;
  }
  for (const DataNode& data : graph.data) {
    const int i = graph.member_of[at(data.maker)];
    if (data.at_end) return std::nullopt;
    const bool forward = graph.is_forward(data.maker);
    int last = i;
    for (int reader : data.readers) {
      const int j = graph.member_of[at(reader)];
      if (reader == graph.turn || (forward ? j != i && j != i + 1 : j > i)) return std::nullopt;
      last = std::min(last, j);
    }
    if (forward) links.forward[at(i)] += data.bytes;
    for (int link = last; link < i; ++link) links.gradient[at(link)] += data.bytes;
  }
  return links;
}

std::int64_t peak_of(const RunShape& run) {
  std::int64_t peak = 0;
  for (const Moment& moment : run.moments) peak = std::max(peak, moment.own);
  return peak;
}

/// A level as the chain that `rotor` plans, and its schedules as runs of nodes.
class ChainLevel {
 public:
  ChainLevel(const LevelGraph& graph, const Links& links) : graph_(graph), links_(links) {
    for (const MemberShape& member : graph.members) kept_ += member.kept_forward;
    std::int64_t kept = kept_;
    chain_.around.resize(graph.members.size());
    chain_.stages.resize(graph.members.size());
    for (int i = graph.turn - 1; i >= 0; --i) {
      // What the members after i keep, and the gradient that comes into i.
      chain_.around[at(i)] = kept + links.gradient[at(i)];
      chain_.stages[at(i)] = stage(i);
      kept += graph.members[at(i)].kept_backward;
    }
  }
  const rotor::Chain& chain() const { return chain_; }

  std::vector<HilpModel::Run> runs(const std::vector<rotor::Action>& actions) const {
    std::vector<HilpModel::Run> runs;
    // A phase ends with the first run of a node: forward nodes in order, the turn, then the backward nodes.
    int phase = 0;
    for (const rotor::Action& action : actions) {
      const MemberShape& member = graph_.members[at(action.stage)];
      if (action.kind == rotor::Action::Kind::kBackward) {
        runs.push_back({phase++, member.backward_node, option(action)});
        continue;
      }
      const bool saves =
          action.kind == rotor::Action::Kind::kSave && member.options[at(option(action))].saved > 0;
      const int unsaved = narrow<int>(member.options.size());
      runs.push_back({std::max(phase, action.stage), action.stage, saves ? option(action) : unsaved});
      phase += action.stage == phase && phase < graph_.turn;
      phase += phase == graph_.turn;
    }
    return runs;
  }

 private:
  int option(const rotor::Action& action) const { return choices_.at(action.stage)[at(action.option)]; }

  rotor::Stage stage(int i) {
    const MemberShape& member = graph_.members[at(i)];
    rotor::Stage stage;
    stage.output = links_.forward[at(i)];
    stage.pass_time = stage.first_time = member.unsaved.duration;
    // What must not run twice is never passed.
    stage.pass_need = member.may_rerun ? peak_of(member.unsaved) : kNever;
    stage.first_need = stage.pass_need + kept_;
    std::int64_t fastest = std::numeric_limits<std::int64_t>::max();
    const auto time = [](const OptionShape& o) { return o.forward.duration + o.backward.duration; };
    for (const OptionShape& one : member.options) {
      if (!one.refreshed) fastest = std::min(fastest, time(one));
    }
    for (std::size_t o = 0; o < member.options.size(); ++o) {
      const OptionShape& one = member.options[o];
      if (one.refreshed) continue;
      rotor::StageOption option;
      option.saved = one.saved + stage.output;
      option.extra_time = time(one) - fastest;
      option.forward_need = peak_of(one.forward);
      option.first_need = option.forward_need + kept_;
      option.backward_need = capped(Wide{peak_of(one.backward)} + option.saved + chain_.around[at(i)]);
      stage.options.push_back(option);
      choices_[i].push_back(narrow<int>(o));
    }
    return stage;
  }

  const LevelGraph& graph_;
  const Links& links_;
  std::int64_t kept_ = 0;  ///< by forward parts, to the end of all
  rotor::Chain chain_;
  std::map<int, std::vector<int>> choices_;  ///< of each stage: the member's option for each of the stage's
};

class RkRotor final : public LevelSolver {
 public:
  std::string name() const override { return "rk_rotor"; }

  bool applicable(const Level& level) const override {
    const auto m = std::ssize(level.members);
    return m > 0 && m * m * kSlots <= kMostCells && links_of(level_graph(level, false)).has_value();
  }

  std::vector<Option> options(const Level& level, const std::vector<LevelBudget>& budgets,
                              Limits& limits) const override {
    const LevelGraph graph = level_graph(level, false, &limits);
    if (limits.reached()) return {};
    const auto links = links_of(graph);
    std::vector<Option> found;
    if (!links) return found;
    const ChainLevel chain(graph, *links);
    for (const LevelBudget& budget : budgets) {
      const Bytes resident = level.is_root ? level.training->graph->resident : Bytes();
      if (budget.saved || budget.peak <= resident) continue;
      const std::int64_t room = (budget.peak - resident).count();
      const rotor::ChainTable table(chain.chain(), room, kSlots, limits);
      if (const auto actions = table.schedule(room))
        found.push_back(option_of(level, graph, chain.runs(*actions)));
    }
    return found;
  }
};

}  // namespace

std::shared_ptr<const LevelSolver> rk_rotor() { return std::make_shared<RkRotor>(); }

}  // namespace remat::hiremate
