// Branch and bound in which every leaf is proved, for results that do not depend on a solver's tolerances.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "lp/model.h"
#include "remat/limits.h"

namespace remat::lp {

struct TreeOutcome {
  bool closed = false;        ///< proved: no integer solution is at or below the final cutoff
  double bound = -kInfinity;  ///< proved lower bound on integer solutions at or below that cutoff
  std::int64_t nodes = 0, iterations = 0;
};

/// Depth first, most expensive fractional column first, with reduced-cost fixing at every node. A node is
/// closed if weak duality puts it above the cutoff (`dual_bound`) or a dual ray proves it infeasible
/// (`proves_infeasible`), both with rounding errors subtracted, so no result relies on HiGHS. No cuts and no
/// presolve: practical for hundreds of nodes, not for tens of thousands. Integer columns must be between 0
/// and 1. `on_solution` is called for integral points and may return a lower cutoff.
TreeOutcome search_tree(Model model, double cutoff,
                        const std::function<std::optional<double>(const std::vector<double>&)>& on_solution,
                        Limits& limits);

}  // namespace remat::lp
