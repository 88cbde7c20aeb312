// GreedyRemat (Kumar et al. 2019, section 4; the rule of XLA): one scan over the graph's order that evicts
// the value which lowers memory most whenever a step is over the budget.
#pragma once

#include "remat/planner.h"

namespace remat::greedy {

PlannerInfo info();

}  // namespace remat::greedy
