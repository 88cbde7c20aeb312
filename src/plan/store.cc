#include "remat/store.h"

#include <algorithm>

#include "remat/check.h"

namespace remat {

namespace {

bool beats(const Simulation& a, const Simulation& b) { return a.peak <= b.peak && a.duration <= b.duration; }

/// Less memory takes longer, from each entry to the next.
bool is_front(const std::vector<PlanStore::Entry>& entries) {
  return std::ranges::adjacent_find(entries, [](const PlanStore::Entry& a, const PlanStore::Entry& b) {
           return a.cost.peak <= b.cost.peak || a.cost.duration >= b.cost.duration;
         }) == entries.end();
}

/// Adds an entry by falling peak and rising duration; removes dominated entries, and the least valuable one
/// if there are too many.
void add_to(std::vector<PlanStore::Entry>& entries, PlanStore::Entry added) {
  const Simulation& cost = added.cost;
  if (cost.duration == kTooLong) return;
  for (const auto& entry : entries) {
    if (beats(entry.cost, cost)) return;
  }
  std::erase_if(entries, [&](const auto& entry) { return beats(cost, entry.cost); });
  const auto at = std::find_if(entries.begin(), entries.end(),
                               [&](const auto& entry) { return entry.cost.peak < cost.peak; });
  entries.insert(at, std::move(added));
  REMAT_ASSERT_HEAVY(is_front(entries), entries.size());
  if (entries.size() <= PlanStore::kMaxPlans) return;
  // The plan whose removal costs least: the next lower peak fits wherever it fitted, and is a little slower.
  std::size_t cheapest = 0;
  for (std::size_t i = 1; i + 1 < entries.size(); ++i) {
    const auto loss = [&](std::size_t k) { return entries[k + 1].cost.duration - entries[k].cost.duration; };
    if (loss(i) < loss(cheapest)) cheapest = i;
  }
  entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(cheapest));
}

}  // namespace

PlanStore::Known& PlanStore::find_or_add(const Graph& graph, OrderMode order) {
  if (Known* known = find(graph, order)) return *known;
  return insert(graph, order, {0, structure_hash(graph), {}});
}

PlanStore::Known* PlanStore::find(const Graph& graph, OrderMode order) {
  const auto at = graphs_.find({graph_hash(graph), order});
  if (at == graphs_.end()) return take_from_alike(graph, order);
  at->second.used = ++clock_;
  return &at->second;
}

PlanStore::Known* PlanStore::take_from_alike(const Graph& graph, OrderMode order) {
  const std::string structure = structure_hash(graph);
  const Known* alike = nullptr;
  for (const auto& [key, other] : graphs_) {
    if (key.second != order || other.structure != structure) continue;
    if (!alike || other.used > alike->used) alike = &other;
  }
  if (!alike) return nullptr;
  // From the least peak upwards: low peaks are the hardest to find again.
  Known known{0, structure, {}};
  const auto& entries = alike->by_peak;
  const std::size_t step = (entries.size() + kMaxTaken - 1) / kMaxTaken;
  for (std::size_t i = 0; i < entries.size(); i += step) {
    const Plan& plan = entries[entries.size() - 1 - i].plan;
    add_to(known.by_peak, {simulate(graph, plan), plan});
  }
  return &insert(graph, order, std::move(known));
}

PlanStore::Known& PlanStore::insert(const Graph& graph, OrderMode order, Known known) {
  Known& kept = graphs_[{graph_hash(graph), order}] = std::move(known);
  kept.used = ++clock_;
  if (graphs_.size() > kMaxGraphs) {
    graphs_.erase(std::min_element(graphs_.begin(), graphs_.end(), [](const auto& a, const auto& b) {
      return a.second.used < b.second.used;
    }));
  }
  return kept;
}

void PlanStore::add(const Graph& graph, OrderMode order, const Plan& plan) {
  REMAT_ASSERT_HEAVY(!validate(graph, plan, order) || total_duration(graph, plan) >= kTooLong.count(),
                     plan.steps.size());
  const Simulation cost = simulate(graph, plan);
  const std::scoped_lock lock(mutex_);
  add_to(find_or_add(graph, order).by_peak, {cost, plan});
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
