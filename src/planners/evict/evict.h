// Remat's constructive planner: runs of an eviction cache with different scores, polished by `buy_back`.
#pragma once

#include <cstdint>

#include "planners/evict/engine.h"
#include "remat/planner.h"

namespace remat::evict {

/// Described by the table in evict.cc.
struct Options {
  std::int64_t rounds = 96;
  std::int64_t work = 10'000'000;
  bool buy_back = true;
};

PlannerInfo info();

}  // namespace remat::evict
