#include "planners/auto/options.h"

namespace remat::automatic {

const OptionTable<Options>& table() {
  constexpr double kLeast = 1e-3;
  const std::string share = "share of what is left";
  static const OptionTable<Options> kTable =
      OptionTable<Options>("auto")
          .number("turn", &Options::turn, kLeast, 0.5, share,
                  "search, lns, a restart, evict, the bound; twice as much for each other first plan")
          .number("order", &Options::order, kLeast, 1, share,
                  "free order: search for an order that needs less memory by itself")
          .number("round_seconds", &Options::round_seconds, 1e-3, 1e9, "seconds",
                  "least length of the first round, or ten million units of work for each second")
          .integer("proof_ops", &Options::proof_ops, 0, 1'000'000, "ops",
                   "up to this size the bound comes before the first search, however little time there is")
          .integer("large_ops", &Options::large_ops, 0, std::int64_t{1} << 31, "ops",
                   "from this size on there is one round, and search makes no start plans of its own")
          .integer("lns_ops", &Options::lns_ops, 0, std::int64_t{1} << 31, "ops",
                   "lns does not run on larger graphs: a single try takes too long")
          .number(
              "bound_gap", &Options::bound_gap, 0, 1e9, "share of the bound",
              "where the plan is further from the bound, the bound of graphs above `proof_ops` is left out")
          .number("bound_seconds_per_op", &Options::bound_seconds_per_op, 0, 1, "seconds per op",
                  "with less time for it the bound of graphs above `proof_ops` is left out")
          .number("search_seconds_per_op", &Options::search_seconds_per_op, 0, 1, "seconds per op",
                  "large graphs with a plan: no search where less time is left");
  return kTable;
}

}  // namespace remat::automatic
