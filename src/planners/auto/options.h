// The numbers of auto.
#pragma once

#include <cstdint>

namespace remat::automatic {

/// What each is for stands in auto.cc, what it was measured to be worth in docs/planners/auto.md;
/// bench/quality/settings.py measures it again. Shares are of what is left of a round.
struct Options {
  double turn = 0.3;
  double order = 0.1;
  double round_seconds = 0.25;
  std::int64_t proof_ops = 220;
  std::int64_t large_ops = 4000;
  std::int64_t lns_ops = 20'000;
  double bound_gap = 0.2;
  double bound_seconds_per_op = 3e-4;
  double search_seconds_per_op = 8e-6;
};

/// Units of work that take about as long, where there is a work limit.
inline constexpr double kWorkPerSecond = 1e7;

}  // namespace remat::automatic
