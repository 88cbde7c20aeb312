#include "planners/auto/options.h"

#include <limits>

#include "planning/options.h"

namespace remat::automatic {

Options read_options(const PlanOptions& given) {
  Options o;
  OptionReader reader(given, "auto");
  constexpr double kLeast = 1e-3;  // of a share
  reader.number("retention", o.retention, kLeast, 1)
      .number("large_retention", o.large_retention, kLeast, 1)
      .number("chain_gap", o.chain_gap, 0, 1e9)
      .number("chain", o.chain, kLeast, 1)
      .number("first_chain", o.first_chain, kLeast, 1)
      .number("lns_gap", o.lns_gap, 0, 1e9)
      .number("search_turn", o.search_turn, kLeast, 1)
      .number("lns_turn", o.lns_turn, kLeast, 1)
      .number("turn", o.turn, kLeast, 1)
      .number("lower_peak", o.lower_peak, kLeast, 1)
      .number("anew", o.anew, kLeast, 1)
      .number("anew_near", o.anew_near, kLeast, 1)
      .number("late_turn", o.late_turn, kLeast, 1)
      .number("order", o.order, kLeast, 1)
      .number("order_gain", o.order_gain, 0, 1)
      .number("search_for_peak", o.search_for_peak, kLeast, 1)
      .number("lns_for_peak", o.lns_for_peak, kLeast, 1)
      .integer("lns_ops", o.lns_ops, 0, std::int64_t{1} << 31)
      .number("greedy", o.greedy, kLeast, 1)
      .number("tree_gap", o.tree_gap, 0, 1e9)
      .number("tree", o.tree, kLeast, 1)
      .number("evict", o.evict, kLeast, 1)
      .integer("proof_ops", o.proof_ops, 0, 1'000'000)
      .number("long_seconds", o.long_seconds, 0, 1e9)
      .number("short_search_before_proof", o.short_search_before_proof, kLeast, 1)
      .number("search_before_proof", o.search_before_proof, kLeast, 1)
      .number("proof", o.proof, kLeast, 1)
      .number("proof_gap", o.proof_gap, 0, 1e9)
      .integer("sure_proof_ops", o.sure_proof_ops, 0, 1'000'000)
      .number("bound_before_proof", o.bound_before_proof, kLeast, 1)
      .number("bound", o.bound, kLeast, 1)
      .number("small_bound", o.small_bound, kLeast, 1)
      .number("early", o.early, kLeast, 1)
      .number("early_near", o.early_near, kLeast, 1)
      .number("bound_seconds_per_op", o.bound_seconds_per_op, 0, 1)
      .number("round_seconds", o.round_seconds, 1e-3, 1e9)
      .integer("round_work", o.round_work, 1000, std::int64_t{1} << 62)
      .integer("large_ops", o.large_ops, 0, std::int64_t{1} << 31)
      .number("search_seconds_per_op", o.search_seconds_per_op, 0, 1)
      .finish();
  return o;
}

}  // namespace remat::automatic
