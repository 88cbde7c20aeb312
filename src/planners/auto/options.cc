#include "planners/auto/options.h"

namespace remat::automatic {

constexpr double kLeast = 1e-3;  // of a share

const OptionTable<Options>& table() {
  static const OptionTable<Options> kTable =
      OptionTable<Options>("auto")
          .number("retention", &Options::retention, kLeast, 1, "share of what is left",
                  "retention, while no other plan is known")
          .number("large_retention", &Options::large_retention, kLeast, 1, "share of what is left",
                  "retention on graphs of `large_ops` and more, where all others take far longer")
          .number("chain_gap", &Options::chain_gap, 0, 1e9, "share above the bound",
                  "rotor runs too where the best plan is further above the bound")
          .number("chain", &Options::chain, kLeast, 1, "share of what is left",
                  "rotor where there is a plan: all its views of the chain")
          .number("first_chain", &Options::first_chain, kLeast, 1, "share of what is left",
                  "rotor where there is no plan, until its first one")
          .number("lns_gap", &Options::lns_gap, 0, 1e9, "share above the bound",
                  "lns runs where the best plan is further above the bound")
          .number("search_turn", &Options::search_turn, kLeast, 1, "share of what is left",
                  "the first turn of search")
          .number("lns_turn", &Options::lns_turn, kLeast, 1, "share of what is left",
                  "the first turn of lns, after that of search")
          .number("turn", &Options::turn, kLeast, 1, "share of what is left",
                  "a later turn, of search or lns: whichever gained more in its last one")
          .number("lower_peak", &Options::lower_peak, kLeast, 1, "share of what is left",
                  "search for the least peak, from nothing, in rounds that begin without a plan")
          .number("anew", &Options::anew, kLeast, 1, "share of what is left",
                  "a restart: a turn without the plans found so far")
          .number("anew_near", &Options::anew_near, kLeast, 1, "share of what is left",
                  "a restart near the bound of a small graph, whose integer program needs the time")
          .number("late_turn", &Options::late_turn, kLeast, 1, "share of what is left",
                  "the first of the two turns after the bounds")
          .number("order", &Options::order, kLeast, 1, "share of what is left",
                  "free order: search for an order that needs less memory by itself")
          .number("order_gain", &Options::order_gain, 0, 1, "share of the keep-all peak",
                  "where such an order gains less, the next rounds do not search for one")
          .number("search_for_peak", &Options::search_for_peak, kLeast, 1, "share of what is left",
                  "objective peak: search")
          .number("lns_for_peak", &Options::lns_for_peak, kLeast, 1, "share of what is left",
                  "objective peak: lns, after search")
          .integer("lns_ops", &Options::lns_ops, 0, std::int64_t{1} << 31, "ops",
                   "lns does not run on larger graphs: a single try takes too long")
          .number("greedy", &Options::greedy, kLeast, 1, "share of what is left",
                  "greedy, while there is no plan")
          .number("tree_gap", &Options::tree_gap, 0, 1e9, "share above the bound",
                  "tw_remat runs too where the best plan is further above the bound")
          .number("tree", &Options::tree, kLeast, 1, "share of what is left", "tw_remat")
          .number("evict", &Options::evict, kLeast, 1, "share of what is left", "evict")
          .integer("proof_ops", &Options::proof_ops, 0, 1'000'000, "ops",
                   "larger graphs get a better bound in place of the integer program")
          .number("long_seconds", &Options::long_seconds, 0, 1e9, "seconds",
                  "with less time left the search gets `short_search_before_proof`")
          .number("short_search_before_proof", &Options::short_search_before_proof, kLeast, 1,
                  "share of what is left",
                  "search before an integer program, where less than `long_seconds` are left")
          .number("search_before_proof", &Options::search_before_proof, kLeast, 1, "share of what is left",
                  "search before an integer program, else")
          .number("proof", &Options::proof, kLeast, 1, "share of what is left", "the integer program")
          .number("proof_gap", &Options::proof_gap, 0, 1e9, "share above the bound",
                  "a plan further above the bound gets a better bound in place of the integer program")
          .integer("sure_proof_ops", &Options::sure_proof_ops, 0, 1'000'000, "ops",
                   "graphs up to this size get the integer program whatever the gap is")
          .number("bound_before_proof", &Options::bound_before_proof, kLeast, 1, "share of what is left",
                  "the better bound before an integer program, on graphs above `sure_proof_ops`")
          .number("bound", &Options::bound, kLeast, 1, "share of what is left",
                  "the better bound of graphs above `proof_ops`")
          .number("small_bound", &Options::small_bound, kLeast, 1, "share of what is left",
                  "the better bound of smaller graphs that get no integer program")
          .number("early", &Options::early, kLeast, 1, "factor",
                  "factor on the shares of bounds in rounds after one with a faster plan")
          .number("early_near", &Options::early_near, kLeast, 1, "factor",
                  "the same factor near the bound of a small graph")
          .number("bound_seconds_per_op", &Options::bound_seconds_per_op, 0, 1, "seconds per op",
                  "with less time left the better bound of larger graphs is left out")
          .number("round_seconds", &Options::round_seconds, 1e-3, 1e9, "seconds",
                  "least length of the first round; it takes up to twice that")
          .integer("round_work", &Options::round_work, 1000, std::int64_t{1} << 62, "units of work",
                   "least length of the first round under a work limit")
          .integer("large_ops", &Options::large_ops, 0, std::int64_t{1} << 31, "ops",
                   "from this size on there is one round, and search makes no start plans of its own")
          .number("search_seconds_per_op", &Options::search_seconds_per_op, 0, 1, "seconds per op",
                  "large graphs with a plan: no search where less time is left");
  return kTable;
}

}  // namespace remat::automatic
