// Remat's own constructive planner: runs of an eviction cache with different scores, each bought back.
#pragma once

#include <vector>

#include "planners/evict/engine.h"
#include "remat/planner.h"

namespace remat::evict {

struct Options {
  std::int64_t rounds = 96;        ///< runs with random scores after the twelve fixed ones, at most
  std::int64_t work = 10'000'000;  ///< and no run begins after this much work (units of Limits)
  bool buy_back = true;            ///< erase recomputations while the budget holds
};

/// A plan and what it costs.
struct Start {
  Plan plan;
  Simulation cost;
};

/// Different plans for the problem, best first: the fastest within the budget, then by peak. At most `most`;
/// never empty (keep-all where the limits allow no more). Valid in fixed order, hence in free order too.
std::vector<Start> starts(const Problem& problem, const Options& options, std::uint64_t seed,
                          std::size_t most, Limits& limits);

PlannerInfo info();

}  // namespace remat::evict
