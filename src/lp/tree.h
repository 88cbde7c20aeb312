// Branch and bound whose every leaf is proved: for verdicts that a solver's tolerances cannot give.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "lp/model.h"
#include "remat/limits.h"

namespace remat::lp {

struct TreeOutcome {
  bool closed = false;        ///< proved: no integer solution is at or below the cutoff that held in the end
  double bound = -kInfinity;  ///< proved: no integer solution at or below that cutoff is below this
  std::int64_t nodes = 0, iterations = 0;
};

/// Depth first, most expensive fractional column first, with reduced-cost fixing at every node. A node is
/// closed where weak duality puts it above the cutoff (`dual_bound`) or a dual ray shows that it is empty
/// (`proves_infeasible`), both with the rounding of their sums taken off, so nothing rests on HiGHS's word.
/// No cuts and no presolve: some hundred nodes are fine, some ten thousand are not. Integer columns must be
/// between 0 and 1. `on_solution` is told of integral points; it returns a lower cutoff where it has one.
TreeOutcome search_tree(Model model, double cutoff,
                        const std::function<std::optional<double>(const std::vector<double>&)>& on_solution,
                        Limits& limits);

}  // namespace remat::lp
