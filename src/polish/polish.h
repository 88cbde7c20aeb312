// Passes over a finished plan that only ever remove recomputations. Shared by the constructive planners.
#pragma once

#include "remat/limits.h"
#include "remat/plan.h"

namespace remat::polish {

/// The plan without recomputations that nobody reads, cascades included. Memory falls at no step that stays
/// except by what the dropped steps read; the newest instance of a kept output stays. O(steps + edges).
Plan without_unread_steps(const Graph& graph, const Plan& plan);

/// Buys time back: erases recomputations, the most duration per byte and step held first, as long as every
/// step stays within the budget. Erasing one leaves the instance before it alive up to the last reader;
/// recomputations that then have no reader go with it. Where the plan is over the budget, no step's memory
/// rises above the larger of the budget and the plan's own peak. First runs are never touched, so the order
/// stays what it was. O((steps + erasures) (degree + log steps)) per round, few rounds.
Plan buy_back(const Graph& graph, const Plan& plan, Bytes budget, Limits& limits);

}  // namespace remat::polish
