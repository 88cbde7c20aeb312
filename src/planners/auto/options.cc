#include "planners/auto/options.h"

namespace remat::automatic {

const OptionTable<Options>& table() {
  constexpr double kLeast = 1e-3;
  const std::string share = "share of what is left";
  static const OptionTable<Options> kTable =
      OptionTable<Options>("auto")
          .number("first", &Options::first, kLeast, 1, share,
                  "each planner of first plans, and the search for the least peak while there is none")
          .number("turn", &Options::turn, kLeast, 1, share,
                  "a call of search or lns, a restart, evict, the bound")
          .number("order", &Options::order, kLeast, 1, share,
                  "free order: search for an order that needs less memory by itself")
          .number("round_seconds", &Options::round_seconds, 1e-3, 1e9, "seconds",
                  "least length of the first round, or ten million units of work for each second")
          .integer("proof_ops", &Options::proof_ops, 0, 1'000'000, "ops",
                   "larger graphs get no more than a turn for the bound, and nothing before the first search")
          .integer("large_ops", &Options::large_ops, 0, std::int64_t{1} << 31, "ops",
                   "from this size on there is one round, and search makes no start plans of its own")
          .integer("lns_ops", &Options::lns_ops, 0, std::int64_t{1} << 31, "ops",
                   "lns does not run on larger graphs: a single try takes too long")
          .number("bound_seconds_per_op", &Options::bound_seconds_per_op, 0, 1, "seconds per op",
                  "with less time for it the bound of graphs above `proof_ops` is left out")
          .number("search_seconds_per_op", &Options::search_seconds_per_op, 0, 1, "seconds per op",
                  "large graphs with a plan: no search where less time is left");
  return kTable;
}

}  // namespace remat::automatic
