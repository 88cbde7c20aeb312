// The shares of what auto calls.
#pragma once

#include <cstdint>

#include "planning/options.h"
#include "remat/planner.h"

namespace remat::automatic {

/// Who gets a turn, and which share of the time and work that are left when it comes: the table in
/// options.cc. What each number was measured to be worth stands in docs/planners/auto.md;
/// bench/quality/settings.py measures it again.
struct Options {
  double retention = 0.2;
  double large_retention = 0.6;
  double chain_gap = 0.01;
  double chain = 0.2;
  double first_chain = 0.5;
  double lns_gap = 0.0001;
  double search_turn = 0.2;
  double lns_turn = 0.3;
  double turn = 0.3;
  double lower_peak = 0.7;
  double anew = 0.3;
  double anew_near = 0.2;
  double late_turn = 0.5;
  double order = 0.1;
  double order_gain = 0.02;
  double search_for_peak = 0.6;
  double lns_for_peak = 0.3;
  std::int64_t lns_ops = 20'000;
  double greedy = 0.05;
  double tree_gap = 0.3;
  double tree = 0.6;
  double evict = 0.25;
  std::int64_t proof_ops = 220;
  double long_seconds = 4;
  double short_search_before_proof = 0.5;
  double search_before_proof = 0.06;
  double proof = 0.85;
  double proof_gap = 0.05;
  std::int64_t sure_proof_ops = 60;
  double bound_before_proof = 0.95;
  double small_bound = 0.75;
  double bound = 0.4;
  double early = 0.7;
  double early_near = 0.85;
  double bound_seconds_per_op = 3e-4;
  double round_seconds = 0.25;
  std::int64_t round_work = 2'500'000;
  std::int64_t large_ops = 4000;
  double search_seconds_per_op = 8e-6;
};

const OptionTable<Options>& table();

}  // namespace remat::automatic
