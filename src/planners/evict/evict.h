// Remat's own constructive planner: runs of an eviction cache with different scores, each bought back.
#pragma once

#include <cstdint>

#include "planners/evict/engine.h"
#include "remat/planner.h"

namespace remat::evict {

struct Options {
  std::int64_t rounds = 96;        ///< runs with random scores after the twelve fixed ones, at most
  std::int64_t work = 10'000'000;  ///< and no run begins after this much work (units of Limits)
  bool buy_back = true;            ///< erase recomputations while the budget holds
};

PlannerInfo info();

}  // namespace remat::evict
