// Reruns and fetches in one sequence: what is done, before it is said when copies begin and end.
#pragma once

#include <vector>

#include "remat/plan.h"

namespace remat {

/// One of both: an op runs, or a value is fetched back from the host for the items after it.
struct Item {
  OpId op;
  ValueId fetched;
  friend bool operator==(const Item&, const Item&) = default;
};

/// Every op at least once. Whoever reads a value reads what made or fetched it last; before its first run
/// nothing of an op is fetched.
using Script = std::vector<Item>;

/// The steps of a plan without copies.
inline Script script_of(const Plan& plan) {
  Script script;
  script.reserve(static_cast<std::size_t>(std::ssize(plan.steps)));
  for (OpId op : plan.steps) script.push_back({op, ValueId::none()});
  return script;
}

/// Its ops in sequence, fetches left out.
Plan steps_of(const Script& script);

/// Without reruns and fetches that nobody reads, cascades included, and fetches that the graph forbids.
Script without_unread(const Graph& graph, const Script& script);

}  // namespace remat
