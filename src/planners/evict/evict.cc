// Remat's constructive planner: runs of an eviction cache with different scores, polished by `buy_back`.
#include <algorithm>
#include <cstdint>

#include "base/numbers.h"
#include "model/step.h"
#include "planners/evict/engine.h"
#include "planning/incumbent.h"
#include "planning/options.h"
#include "polish/polish.h"
#include "remat/planner.h"
#include "remat/random.h"

namespace remat::evict {
namespace {

struct Options {
  std::int64_t rounds = 96;
  std::int64_t work = 10'000'000;
  bool buy_back = true;
};

using Cost = Policy::Cost;
using Age = Policy::Age;
using Power = Policy::Power;
using Demand = Policy::Demand;

/// The scores that were the best on some shared graph at some budget, of 200 tried on each (8 graphs, 14
/// budgets from 60 % down to the floor). Staleness won more often than lookahead: it keeps checkpoints evenly
/// spread, while the next use keeps the last ones.
constexpr Policy kPolicies[] = {
    {Cost::kNeighborhood, Age::kStale, Power::kOne, Power::kOne, Power::kOne},
    {Cost::kClosure, Age::kStale, Power::kOne, Power::kOne, Power::kTwo},
    {Cost::kNeighborhood, Age::kNextUse, Power::kOne, Power::kOne, Power::kHalf},
    {Cost::kOwn, Age::kStale, Power::kOne, Power::kOne, Power::kHalf},
    {Cost::kNeighborhood, Age::kStale, Power::kHalf, Power::kZero, Power::kOne},
    {Cost::kClosure, Age::kStale, Power::kHalf, Power::kZero, Power::kHalf},
    {Cost::kClosure, Age::kNextUse, Power::kHalf, Power::kZero, Power::kOne},
    {Cost::kOwn, Age::kStale, Power::kOne, Power::kZero, Power::kHalf},
    {Cost::kOwn, Age::kStale, Power::kTwo, Power::kOne, Power::kHalf},
    {Cost::kNeighborhood, Age::kStale, Power::kTwo, Power::kZero, Power::kHalf},
    {Cost::kClosure, Age::kNextUse, Power::kHalf, Power::kOne, Power::kZero},
    {Cost::kClosure, Age::kStale, Power::kOne, Power::kHalf, Power::kHalf, false, Demand::kNewestFirst},
};

template <class T, std::size_t n>
T pick(Random& random, const T (&choices)[n]) {
  return choices[at(random.below(static_cast<std::int64_t>(n)))];
}

Policy random_policy(Random& random) {
  Policy policy = pick(random, kPolicies);
  if (random.chance(0.5)) policy.cost = pick(random, {Cost::kOwn, Cost::kClosure, Cost::kNeighborhood});
  if (random.chance(0.3)) policy.age = pick(random, {Age::kStale, Age::kNextUse});
  if (random.chance(0.3)) policy.cost_power = pick(random, {Power::kHalf, Power::kOne, Power::kTwo});
  if (random.chance(0.3)) policy.bytes_power = pick(random, {Power::kZero, Power::kHalf, Power::kOne});
  if (random.chance(0.3))
    policy.age_power = pick(random, {Power::kZero, Power::kHalf, Power::kOne, Power::kTwo});
  if (random.chance(0.3)) {
    policy.demand = pick(random, {Demand::kTogether, Demand::kOldestFirst, Demand::kNewestFirst});
  }
  policy.noise = pick(random, {0.0, 0.2, 1.0});
  policy.seed = random.next();
  return policy;
}

/// Runs with different scores and memory sizes, and the best plan of all.
class Portfolio {
 public:
  Portfolio(const Problem& problem, const Options& options, std::uint64_t seed, Limits& limits)
      : problem_(problem),
        graph_(*problem.graph),
        options_(options),
        limits_(limits),
        random_(seed),
        best_(problem, "evict", limits) {}

  PlanResult run() {
    best_.offer(keep_all_plan(graph_));
    if (!best_.fits()) attempt_all();
    return best_.result({{"runs", attempts_}});
  }

 private:
  void attempt_all() {
    const std::int64_t end = limits_.work() + options_.work;
    for (const Policy& policy : kPolicies) {
      if (limits_.work() < end) attempt(policy, target(1.0));
    }
    for (std::int64_t round = 0; round < options_.rounds && limits_.work() < end && !limits_.reached();
         ++round) {
      // The engine counts an instance until it evicts it, so a plan may need less than its memory size. And
      // buying back after a tighter size may give a better plan than a wider size.
      attempt(random_policy(random_), target(pick(random_, {1.0, 0.97, 0.94, 0.9, 0.8, 1.03, 1.07, 1.12})));
    }
  }

  bool by_peak() const { return problem_.objective == Objective::kPeak; }

  /// Floor of so many percent; divided first, because the product may leave 64 bits.
  static Bytes share_of(Bytes bytes, std::int64_t percent) {
    return Bytes(bytes.count() / 100 * percent + bytes.count() % 100 * percent / 100);
  }
  /// Memory size of one run: around the budget, or below the least peak so far for objective peak.
  Bytes target(double factor) const {
    // The engine does not count rerun states.
    const Bytes base =
        by_peak() ? share_of(best_.cost().peak, 98) : problem_.budget - room_for_rerun_states(graph_);
    return Bytes(static_cast<std::int64_t>(factor * real(base)));
  }

  void attempt(const Policy& policy, Bytes memory) {
    constexpr std::int64_t kMaxStepsPerOp = 24;
    if (limits_.reached()) return;
    ++attempts_;
    const auto max_steps = kMaxStepsPerOp * graph_.ops().size();
    Outcome outcome = evict::run(graph_, memory, policy, max_steps, limits_);
    if (!outcome.complete) return;
    Plan plan = polish::without_unread_steps(graph_, outcome.plan);
    if (options_.buy_back) {
      const Bytes budget = by_peak() ? simulate(graph_, plan).peak : problem_.budget;
      plan = polish::buy_back(graph_, plan, budget, limits_);
    }
    best_.offer(std::move(plan));
  }

  const Problem& problem_;
  const Graph& graph_;
  const Options& options_;
  Limits& limits_;
  Random random_;
  Incumbent best_;
  std::int64_t attempts_ = 0;
};

}  // namespace

PlannerInfo info() {
  const auto table =
      OptionTable<Options>("evict")
          .integer("rounds", &Options::rounds, 0, std::int64_t{1} << 40, "runs",
                   "most runs with random scores, after the twelve with fixed ones")
          .integer("work", &Options::work, 0, std::int64_t{1} << 60, "units of work",
                   "no run begins after this")
          .flag("buy_back", &Options::buy_back, "erase recomputations at the end while the budget holds");
  return with_options(
      {"evict", "runs the order in a memory of fixed size with many eviction scores, and buys time back",
       "none; may miss its budget", "Remat; scores after DTR (Kirisame et al. 2021)"},
      table, [](const Problem& problem, const Options& options, const PlanOptions& given, Limits& limits) {
        return Portfolio(problem, options, given.seed, limits).run();
      });
}

}  // namespace remat::evict
