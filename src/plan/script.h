// Runs and fetches in one sequence: a plan in which the times of copies are still open.
#pragma once

#include <vector>

#include "remat/plan.h"

namespace remat {

/// A run of an op, or a fetch of a value from the host for later items.
struct Item {
  OpId op;
  ValueId fetched;
  friend bool operator==(const Item&, const Item&) = default;
};

/// Every op at least once. A reader reads the newest instance, made or fetched; outputs of an op are not
/// fetched before its first run.
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

/// The script without unread reruns and fetches, cascades included, and without forbidden fetches.
Script without_unread(const Graph& graph, const Script& script);

}  // namespace remat
