// The shares of what auto calls.
#pragma once

#include <cstdint>

#include "remat/planner.h"

namespace remat::automatic {

/// Who gets a turn, and which share of the time and work that are left when it comes. What each number was
/// measured to be worth stands in docs/planners/auto.md; bench/quality/settings.py measures it again.
struct Options {
  double retention = 0.2;
  double large_retention = 0.6;   ///< of large graphs, where all others take far longer
  double chain_gap = 0.01;        ///< rotor also where there is a plan this far above the bound
  double chain = 0.2;             ///< rotor then, all its views
  double first_chain = 0.5;       ///< rotor without a plan, until its first one
  double lns_gap = 0.0001;        ///< lns where the plan at hand is this far above the bound
  double search_turn = 0.2;       ///< the first one of search
  double lns_turn = 0.3;          ///< the first one of lns, of what is left then
  double turn = 0.3;              ///< then of the one that gained more when it was called last
  double lower_peak = 0.7;        ///< where no plan is found, of a search for the least peak, from nothing
  double anew = 0.3;              ///< of one that begins without the plans at hand
  double anew_near = 0.2;         ///< the same near the bound of a small graph, whose program needs the time
  double late_turn = 0.5;         ///< after the bounds
  double order = 0.1;             ///< free order: of a round, for an order that needs less memory by itself
  double order_gain = 0.02;       ///< of the keep-all peak; where one gains less, it is not looked for again
  double search_for_peak = 0.6;   ///< where the least peak is asked for
  double lns_for_peak = 0.3;      ///< of what is left then
  std::int64_t lns_ops = 20'000;  ///< larger graphs: a single try takes too long
  double greedy = 0.05;
  double tree_gap = 0.3;  ///< tw_remat also where there is a plan this far above the bound
  double tree = 0.6;
  double evict = 0.25;
  std::int64_t proof_ops = 220;            ///< larger graphs: no integer program, a better bound instead
  double long_seconds = 4;                 ///< with less time left the search gets its first share below
  double short_search_before_proof = 0.5;  ///< where the integer program may not end in time
  double search_before_proof = 0.06;
  double proof = 0.85;
  double proof_gap = 0.05;             ///< further above the bound, a better bound in place of the proof
  std::int64_t sure_proof_ops = 60;    ///< but not on such small graphs
  double bound_before_proof = 0.95;    ///< the better bound first, but not on such small graphs
  double small_bound = 0.75;           ///< of small graphs that are further above the bound
  double bound = 0.4;                  ///< of larger graphs
  double early = 0.7;                  ///< of these three, in rounds that follow one with a faster plan
  double early_near = 0.85;            ///< the same near the bound of a small graph
  double bound_seconds_per_op = 3e-4;  ///< with less time left the larger models of the bound are not begun
  double round_seconds = 0.25;         ///< the first round is so long, or up to twice that
  std::int64_t round_work = 2'500'000;
  std::int64_t large_ops = 4000;        ///< larger graphs: the search makes no plans of its own to begin from
  double search_seconds_per_op = 8e-6;  ///< large graphs with a plan: no search where less time is left
};

/// Throws UsageError where `given` has a name or a value that auto does not know.
Options read_options(const PlanOptions& given);

}  // namespace remat::automatic
