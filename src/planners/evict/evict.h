// Remat's own constructive planner: runs of an eviction cache with different scores, each bought back.
#pragma once

#include <cstdint>

#include "planners/evict/engine.h"
#include "remat/planner.h"

namespace remat::evict {

/// The table in evict.cc says what each is.
struct Options {
  std::int64_t rounds = 96;
  std::int64_t work = 10'000'000;
  bool buy_back = true;
};

PlannerInfo info();

}  // namespace remat::evict
