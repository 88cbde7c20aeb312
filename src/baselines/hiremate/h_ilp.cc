// H-ILP as a level solver: one integer program per budget, from the smallest budget up.
#include <algorithm>
#include <tuple>

#include "base/numbers.h"
#include "baselines/hiremate/greedy_runs.h"
#include "lp/highs.h"
#include "remat/error.h"

namespace remat::hiremate {
namespace {

constexpr std::size_t kMostMembers = 64;
// A unit of work is about a hundred nanoseconds.
constexpr std::int64_t kLowerWork = 5'000'000;
constexpr std::int64_t kTopWork = 12'000'000;
constexpr double kGreedyShare = 0.3;
constexpr std::int64_t kGreedyWork = 90'000'000;

class HIlp final : public LevelSolver {
 public:
  explicit HIlp(const Settings& settings) : settings_(settings) {}
  std::string name() const override { return "h_ilp"; }
  bool applicable(const Level& level) const override { return level.members.size() <= kMostMembers; }

  std::vector<Option> options(const Level& level, const std::vector<LevelBudget>& budgets,
                              Limits& limits) const override {
    const LevelGraph graph = level_graph(level, true, &limits);
    if (limits.reached()) return {};
    std::vector<LevelBudget> ladder = budgets;
    std::stable_sort(ladder.begin(), ladder.end(), [](const LevelBudget& a, const LevelBudget& b) {
      return std::tuple(a.saved.has_value(), a.saved.value_or(Bytes()), a.peak) <
             std::tuple(b.saved.has_value(), b.saved.value_or(Bytes()), b.peak);
    });
    std::vector<Option> found;
    std::vector<HilpModel::Run> best;
    if (level.is_root && !ladder.empty()) {
      Limits part(limits, kGreedyShare);
      part.set_work(std::min(part.work_left().value_or(kGreedyWork), kGreedyWork));
      best = greedy_runs(level, graph, ladder.front().peak, settings_.seed, part);
      found.push_back(option_of(level, graph, best));
    }
    for (std::size_t i = 0; i < ladder.size() && !limits.reached(); ++i) {
      Limits part(limits, 1.0 / real(ladder.size() - i));
      const std::int64_t most = level.is_root ? kTopWork : kLowerWork;
      part.set_work(std::min(part.work_left().value_or(most), most));
      auto runs = solve(level, graph, ladder[i], best, part);
      if (runs.empty()) continue;
      found.push_back(option_of(level, graph, runs));
      best = std::move(runs);
    }
    return found;
  }

 private:
  std::vector<HilpModel::Run> solve(const Level& level, const LevelGraph& graph, const LevelBudget& budget,
                                    const std::vector<HilpModel::Run>& known, Limits& limits) const {
    HilpSpec spec;
    const Bytes resident = level.is_root ? level.training->graph->resident : Bytes();
    spec.peak = real((budget.peak - resident).count());
    if (spec.peak <= 0) return {};
    if (budget.saved) spec.saved = real(budget.saved->count());
    spec.all_phases = settings_.all_phases;
    const HilpModel model(graph, spec);
    std::int64_t once = 0;
    for (OpId op : level.forward) once += level.training->graph->duration[op].count();
    for (OpId op : level.backward) once += level.training->graph->duration[op].count();
    lp::Settings settings;
    settings.relative_gap = 0;
    settings.absolute_gap = std::max(1e-6, settings_.gap * real(once) * model.scale());
    settings.threads = 1;
    settings.seed = static_cast<std::int64_t>(settings_.seed);
    if (!known.empty()) settings.start = model.start_from(known);
    const lp::Solution solution = lp::solve(model.model(), settings, limits);
    if (!solution.x) return {};
    return model.runs_of(*solution.x);
  }

  Settings settings_;
};

}  // namespace

std::shared_ptr<const LevelSolver> h_ilp(const Settings& settings) {
  if (const auto reason = lp::unavailable()) throw UsageError("h_ilp needs HiGHS, and " + *reason);
  return std::make_shared<HIlp>(settings);
}

}  // namespace remat::hiremate
