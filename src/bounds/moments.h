// Bounds on duration from few chosen moments at once.
#pragma once

#include <optional>

#include "remat/bounds.h"
#include "remat/limits.h"

namespace remat {

/// Fixed order: the stage model (exact/stage_model.h) whose stages end at steps that are chosen one by one,
/// each the one that raises the relaxation most; then its integer programs, the fewest stages first. Raises
/// `best` to what was proved until the limits were reached, never above `known`. Then each solution, as a
/// plan, says at which step it is over the budget: one moment more. A solution that fits is the best plan.
std::optional<Plan> raise_by_moments(const Graph& graph, Bytes budget, std::optional<Duration> known,
                                     Limits& limits, DurationBound& best);

}  // namespace remat
