#include "remat/store.h"

#include <algorithm>

namespace remat {

PlanStore::Known* PlanStore::find(const Graph& graph, OrderMode order) {
  const auto at = graphs_.find({graph_hash(graph), order});
  if (at == graphs_.end()) return nullptr;
  at->second.used = ++clock_;
  return &at->second;
}

PlanStore::Known& PlanStore::find_or_add(const Graph& graph, OrderMode order) {
  Known& known = graphs_[{graph_hash(graph), order}];
  known.used = ++clock_;
  if (graphs_.size() > kMaxGraphs) {
    graphs_.erase(std::min_element(graphs_.begin(), graphs_.end(), [](const auto& a, const auto& b) {
      return a.second.used < b.second.used;
    }));
  }
  return known;
}

void PlanStore::add(const Graph& graph, OrderMode order, const Plan& plan) {
  const Simulation cost = simulate(graph, plan);
  if (cost.duration == kTooLong) return;
  const std::scoped_lock lock(mutex_);
  auto& entries = find_or_add(graph, order).by_peak;
  const auto beats = [](const Simulation& a, const Simulation& b) {
    return a.peak <= b.peak && a.duration <= b.duration;
  };
  for (const Entry& entry : entries) {
    if (beats(entry.cost, cost)) return;
  }
  std::erase_if(entries, [&](const Entry& entry) { return beats(cost, entry.cost); });
  const auto at = std::find_if(entries.begin(), entries.end(),
                               [&](const Entry& entry) { return entry.cost.peak < cost.peak; });
  entries.insert(at, {cost, plan});
  if (entries.size() <= kMaxPlans) return;
  // The plan whose loss costs least: its successor in peak fits wherever it fitted, a little slower.
  std::size_t cheapest = 0;
  for (std::size_t i = 1; i + 1 < entries.size(); ++i) {
    const auto loss = [&](std::size_t k) { return entries[k + 1].cost.duration - entries[k].cost.duration; };
    if (loss(i) < loss(cheapest)) cheapest = i;
  }
  entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(cheapest));
}

std::optional<Plan> PlanStore::best(const Graph& graph, OrderMode order, Bytes budget) {
  const std::scoped_lock lock(mutex_);
  if (const Known* plans = find(graph, order)) {
    for (const Entry& entry : plans->by_peak) {
      if (entry.cost.peak <= budget) return entry.plan;
    }
  }
  return std::nullopt;
}

std::vector<Plan> PlanStore::around(const Graph& graph, OrderMode order, Bytes budget) {
  const std::scoped_lock lock(mutex_);
  const Known* plans = find(graph, order);
  if (!plans) return {};
  const auto& entries = plans->by_peak;
  const auto within = std::find_if(entries.begin(), entries.end(),
                                   [&](const Entry& entry) { return entry.cost.peak <= budget; });
  std::vector<Plan> result;
  if (within != entries.end()) result.push_back(within->plan);
  if (within != entries.begin()) result.push_back(std::prev(within)->plan);
  return result;
}

std::vector<PlanStore::Entry> PlanStore::all(const Graph& graph, OrderMode order) {
  const std::scoped_lock lock(mutex_);
  const Known* plans = find(graph, order);
  return plans ? plans->by_peak : std::vector<Entry>();
}

}  // namespace remat
