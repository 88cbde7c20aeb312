// Large neighbourhood search: removes recomputations, then repairs the budget by minimum cuts.
#include <algorithm>
#include <utility>

#include "base/numbers.h"
#include "base/portable_math.h"
#include "exact/relief.h"
#include "planners/lns/ruin.h"
#include "planning/incumbent.h"
#include "polish/polish.h"
#include "remat/planner.h"
#include "remat/random.h"

namespace remat::lns {
namespace {

class Search {
 public:
  Search(const Problem& problem, std::uint64_t seed, Limits& limits)
      : problem_(problem),
        graph_(*problem.graph),
        shaken_(graph_),
        limits_(limits),
        random_(seed),
        best_(problem, "lns", limits),
        budget_(problem.budget) {}

  PlanResult run() {
    evaluated(keep_all_plan(graph_), budget_, kAny);
    for (const Plan& start : problem_.starts) evaluated(start, budget_, kAny);
    if (!is_over()) recreate(script_of(keep_all_plan(graph_)), budget_, kAny);
    // In free order, a start without recomputation is an order to begin from.
    for (const Plan& start : problem_.starts) {
      if (std::ssize(start.steps) == std::ssize(graph_.duration) && !is_over())
        recreate(script_of(start), budget_, kAny);
    }
    for (std::int64_t length = kFirstCycle; !is_over(); length = std::min(2 * length, kLongestCycle))
      cycle(length);
    return best_.result({{"tries", tries_}, {"ended_early", ended_early_}, {"accepted", accepted_}});
  }

 private:
  struct State {
    Plan plan;
    double energy = 0;
  };

  bool by_peak() const { return problem_.objective == Objective::kPeak; }

  bool is_over() {
    if (without_change_ >= kMostWithoutChange) return true;
    if (by_peak()) return limits_.reached();
    const Duration least = problem_.duration_bound ? problem_.duration_bound->duration : graph_.base_duration;
    return (best_.fits() && best_.cost().duration <= least) || limits_.reached();
  }

  double energy(Duration duration, Bytes peak) const {
    const double over = real(std::max(Bytes(), peak - budget_)) / std::max(1.0, real(budget_));
    return real(duration - graph_.base_duration) +
           (by_peak() ? kOverAll : kOver) * over * real(graph_.base_duration);
  }

  /// Buys time back within `room`. Plans above `most` are not evaluated further.
  State evaluated(Plan plan, Bytes room, double most) {
    Simulation cost = simulate(graph_, plan);
    if (cost.peak <= room && !by_peak()) {
      plan = polish::buy_back(graph_, plan, room, limits_);
      cost = simulate(graph_, plan);
    }
    limits_.spend(1 + std::ssize(plan.steps) / 32);
    if (problem_.footprint) {
      if (energy(cost.duration, cost.peak) > most) return {std::move(plan), kAny};
      if (cost.peak <= budget_) {
        const Bytes taken = (*problem_.footprint)(plan, cost, limits_);
        learn(taken <= budget_);
        cost.peak = taken;
      }
    }
    // For objective peak, every improved plan lowers the budget below its peak.
    if (by_peak() && (best_.empty() || cost.peak < best_.cost().peak)) {
      budget_ = cost.peak - std::max(Bytes(1), Bytes(cost.peak.count() / kPeakSteps));
      least_ = {};
    }
    State state{plan, energy(cost.duration, cost.peak)};
    best_.offer(std::move(plan), cost);
    if (state.energy < least_.energy || least_.plan.steps.empty()) least_ = state;
    return state;
  }

  /// Simulated annealing from the best plan; the temperature is a share of its recomputed duration.
  void cycle(std::int64_t length) {
    State current = least_;
    const double hot = kHot * std::max(0.0, current.energy);
    for (std::int64_t i = 0; i < length && !is_over(); ++i) {
      Script ruined = lns::ruined(graph_, script_of(current.plan), random_);
      shake(graph_, shaken_, random_);
      const Bytes room(static_cast<std::int64_t>((1 - less_room()) * real(budget_)));
      const double left = 1 - real(i) / real(length);
      const double most = current.energy + hot * left * minus_log(std::max(kLeast, random_.unit()));
      State next = recreate(std::move(ruined), room, most);
      without_change_ = next.plan == current.plan ? without_change_ + 1 : 0;
      if (next.energy > most) continue;
      current = std::move(next);
      ++accepted_;
    }
  }

  /// The walk's script of least peak, as a plan; none if the walk was abandoned as too slow.
  State recreate(Script script, Bytes room, double most) {
    ++tries_;
    Script found;
    Bytes least(kMaxCount);
    bool is_lost = false;
    relieve(shaken_, std::move(script), room, nullptr, limits_, ReliefEffort::kQuick,
            [&](const Script& seen, Bytes peak) {
              is_lost = is_too_slow(seen, most);
              if (is_lost) return false;
              if (peak < least) {
                least = peak;
                found = seen;
              }
              return peak > budget_ && std::ssize(seen) < kMostSteps * std::ssize(graph_.duration);
            });
    if (is_lost) {
      ++ended_early_;
      return {{}, kAny};
    }
    return evaluated(found.empty() ? least_.plan : steps_of(found), room, most);
  }

  /// Too slow for buying back to reach `most`. Recomputation grows from cut to cut, so a walk that is too
  /// slow stays so.
  bool is_too_slow(const Script& script, double most) const {
    // The first plan that fits is accepted at any duration.
    if (by_peak() || most == kAny || !best_.fits()) return false;
    Wide duration = 0;
    for (const Item& item : script) duration += graph_.duration[item.op].count();
    return real(duration - graph_.base_duration.count()) > (1 + kBoughtBack) * most;
  }

  /// The share of the budget to leave free.
  double less_room() {
    if (problem_.footprint) return 2 * less_ * random_.unit();
    return random_.chance(kLessRoom) ? kMostLess * random_.unit() : 0;
  }

  /// Adapts the room so that one plan in five is within the budget with its footprint.
  void learn(bool fits) {
    constexpr double kStep = 0.001, kMost = 0.2;
    less_ = std::clamp(less_ + (fits ? -4 * kStep : kStep), 0.0, kMost);
  }

  // Other values of these made no difference over six cases and three seeds (docs/planners/lns.md).
  static constexpr double kOver = 10;       // penalty in base durations for an excess of one budget
  static constexpr double kOverAll = 1000;  // the same if only the peak counts
  static constexpr std::int64_t kPeakSteps = 200;
  static constexpr double kHot = 0.02;  // of the recomputed duration
  static constexpr double kLeast = 1e-12;
  static constexpr double kAny = 1e300;
  static constexpr std::int64_t kFirstCycle = 200, kLongestCycle = 100'000;
  static constexpr double kBoughtBack = 0.15;  // of the recomputed duration
  static constexpr double kLessRoom = 0.5, kMostLess = 0.03;
  static constexpr std::int64_t kMostSteps = 24;  // for each op
  static constexpr std::int64_t kMostWithoutChange = 500;

  const Problem& problem_;
  const Graph& graph_;
  Graph shaken_;
  Limits& limits_;
  Random random_;
  Incumbent best_;
  State least_;
  Bytes budget_;
  double less_ = 0.01;
  std::int64_t tries_ = 0, ended_early_ = 0, accepted_ = 0;
  std::int64_t without_change_ = 0;  ///< consecutive tries that returned the plan they started from
};

PlanResult run(const Problem& problem, const PlanOptions& given, Limits& limits) {
  return Search(problem, given.seed, limits).run();
}

}  // namespace

PlannerInfo info() {
  return {
      .name = "lns",
      .description = "drops recomputations of a stretch and finds others by minimum cuts, again and again",
      .guarantee = "none; may miss its budget",
      .source = "Remat; ruin and recreate after Schrimpf et al. 2000",
      .run = run};
}

}  // namespace remat::lns
