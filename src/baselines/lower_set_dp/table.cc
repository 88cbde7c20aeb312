#include <algorithm>
#include <bit>
#include <numeric>
#include <set>

#include "base/numbers.h"
#include "baselines/lower_set_dp/lower_set_dp.h"

namespace remat::lower_set_dp {
namespace {

bool has(const Set& set, std::size_t v) { return (set[v / 64] >> (v % 64)) & 1; }
void add(Set& set, std::size_t v) { set[v / 64] |= std::uint64_t{1} << (v % 64); }
std::size_t words(const ForwardGraph& graph) { return graph.size() / 64 + 1; }

int count(const Set& set) {
  int sum = 0;
  for (std::uint64_t word : set) sum += std::popcount(word);
  return sum;
}

bool is_subset(const Set& small, const Set& big) {
  for (std::size_t i = 0; i < small.size(); ++i) {
    if (small[i] & ~big[i]) return false;
  }
  return true;
}

void sort_by_size(std::vector<Set>& family) {
  std::sort(family.begin(), family.end(), [](const Set& a, const Set& b) {
    const int x = count(a), y = count(b);
    return x != y ? x < y : a < b;
  });
  family.erase(std::unique(family.begin(), family.end()), family.end());
}

}  // namespace

std::optional<std::vector<Set>> all_lower_sets(const ForwardGraph& graph, std::size_t most, Limits& limits) {
  std::vector<Set> family{Set(words(graph), 0)};
  std::set<Set> seen{family.front()};
  for (std::size_t i = 0; i < family.size(); ++i) {
    if (limits.spend(1 + std::ssize(graph) / 8)) return std::nullopt;
    for (std::size_t v = 0; v < graph.size(); ++v) {
      const auto& before = graph.before[v];
      if (has(family[i], v)) continue;
      if (!std::all_of(before.begin(), before.end(), [&](std::int32_t p) { return has(family[i], at(p)); }))
        continue;
      Set larger = family[i];
      add(larger, v);
      if (!seen.insert(larger).second) continue;
      if (seen.size() > most) return std::nullopt;
      family.push_back(std::move(larger));
    }
  }
  sort_by_size(family);
  return family;
}

std::vector<Set> pruned_lower_sets(const ForwardGraph& graph, Limits& limits) {
  std::vector<Set> family{Set(words(graph), 0)};
  Set whole = family.front();
  for (std::size_t v = 0; v < graph.size(); ++v) {
    if (limits.spend(1 + static_cast<std::int64_t>(words(graph)) / 32)) break;
    Set set(words(graph), 0);
    for (std::int32_t p : graph.before[v]) {
      // Set p + 1 of the family is node p with its ancestors.
      for (std::size_t w = 0; w < set.size(); ++w) set[w] |= family[at(p) + 1][w];
    }
    add(set, v);
    add(whole, v);
    family.push_back(std::move(set));
  }
  if (limits.reached()) return {};
  family.push_back(std::move(whole));
  sort_by_size(family);
  return family;
}

std::int64_t table_bytes(const ForwardGraph& graph, std::int64_t sets, std::int64_t levels) {
  // Each node's time is rounded up to a level.
  const auto nodes = std::ssize(graph);
  const auto of_set = 8 * static_cast<std::int64_t>(words(graph));
  return sets * (of_set + static_cast<std::int64_t>(sizeof(Cell)) * (nodes + levels));
}

Table::Table(const ForwardGraph& graph, std::vector<Set> family, std::int64_t levels, Limits& limits)
    : family_(std::move(family)), node_bytes_(graph.bytes) {
  // The formula counts each node up to four times.
  const std::int64_t all = std::accumulate(graph.bytes.begin(), graph.bytes.end(), std::int64_t{0});
  while ((all >> shift_) + std::ssize(node_bytes_) > kInfinite / 4) ++shift_;
  for (std::int64_t& one : node_bytes_) one = (one + (std::int64_t{1} << shift_) - 1) >> shift_;
  std::int64_t total = 0;
  for (std::int64_t time : graph.time) total += time;
  unit_ = total <= levels ? 1 : total / levels + 1;
  for (std::int64_t time : graph.time) node_time_.push_back((time + unit_ - 1) / unit_);
  for (std::int64_t time : node_time_) levels_ += narrow<std::int32_t>(time);
  for (const Set& set : family_) {
    if (limits.spend(1 + std::ssize(graph) / 32)) return;
    std::int64_t bytes = 0, time = 0;
    std::vector<std::int32_t> boundary;
    Set next(set.size(), 0), needed(set.size(), 0);
    for (std::size_t v = 0; v < graph.size(); ++v) {
      if (!has(set, v)) continue;
      bytes += node_bytes_[v];
      time += node_time_[v];
      bool leaves = false;
      for (std::int32_t s : graph.after[v]) {
        if (has(set, at(s))) continue;
        leaves = true;
        add(next, at(s));
        for (std::int32_t p : graph.before[at(s)]) add(needed, at(p));
      }
      if (leaves) boundary.push_back(narrow<std::int32_t>(v));
    }
    std::int64_t outside = 0;
    for (std::size_t v = 0; v < graph.size(); ++v) {
      if (!has(set, v)) outside += node_bytes_[v] * (int{has(next, v)} + int{has(needed, v)});
    }
    set_bytes_.push_back(bytes);
    set_time_.push_back(time);
    outside_.push_back(outside);
    boundary_.push_back(std::move(boundary));
  }
}

std::vector<std::int32_t> Table::parts(const Strategy& strategy) const {
  std::vector<std::int32_t> part(node_bytes_.size(), -1);
  for (std::size_t i = 0; i < strategy.sets.size(); ++i) {
    const Set& set = family_[at(strategy.sets[i])];
    for (std::size_t v = 0; v < part.size(); ++v) {
      if (part[v] < 0 && has(set, v)) part[v] = narrow<std::int32_t>(i);
    }
  }
  return part;
}

std::int64_t Table::largest_budget() const { return capped(Wide{2 * set_bytes_.back()} << shift_); }

Strategies Table::solve(std::int64_t bytes, Limits& limits) const {
  const std::int64_t budget = bytes >> shift_;
  const std::size_t width = narrow<std::size_t>(levels_) + 1;
  if (limits.reached()) return {};
  std::vector<std::vector<Cell>> cells(family_.size());  // a row is made when the first strategy reaches it
  cells[0].resize(width);
  cells[0][0].least = 0;
  // Levels of each set that can be reached, so that short rows cost little.
  std::vector<std::int32_t> top(family_.size(), -1);
  top[0] = 0;
  for (std::size_t l = 0; l < family_.size(); ++l) {
    if (top[l] < 0) continue;
    if (limits.spend(1 + static_cast<std::int64_t>(family_.size() - l) * (2 + top[l] / 16) / 8)) return {};
    const std::vector<Cell>& row = cells[l];
    for (std::size_t m = l + 1; m < family_.size(); ++m) {
      const std::int64_t fixed = 2 * (set_bytes_[m] - set_bytes_[l]) + outside_[m];
      if (fixed > budget || !is_subset(family_[l], family_[m])) continue;
      std::int64_t kept = 0, time = set_time_[m] - set_time_[l];
      for (std::int32_t v : boundary_[m]) {
        if (has(family_[l], at(v))) continue;
        kept += node_bytes_[at(v)];
        time -= node_time_[at(v)];
      }
      if (cells[m].empty()) {
        if (limits.spend(1 + levels_ / 64)) return {};
        cells[m].resize(width);
      }
      for (std::int32_t t = 0; t <= top[l]; ++t) {
        const std::int64_t here = row[at(t)].least;
        if (here + fixed > budget) continue;
        Cell& to = cells[m][at(t) + narrow<std::size_t>(time)];
        if (to.least <= here + kept) continue;
        to = {here + kept, narrow<std::int32_t>(l), t};
        top[m] = std::max(top[m], t + narrow<std::int32_t>(time));
      }
    }
  }
  Strategies result;
  const std::vector<Cell>& whole = cells.back();
  for (std::int32_t t = 0; at(t) < whole.size(); ++t) {
    if (whole[at(t)].least >= kInfinite) continue;
    if (!result.time_centric) result.time_centric = trace(cells, t);
    result.memory_centric = trace(cells, t);
  }
  return result;
}

Strategy Table::trace(const std::vector<std::vector<Cell>>& cells, std::int32_t level) const {
  Strategy result{{}, level * unit_};
  std::int32_t set = narrow<std::int32_t>(family_.size()) - 1;
  while (set > 0) {
    result.sets.push_back(set);
    const Cell& cell = cells[at(set)][at(level)];
    set = cell.set;
    level = cell.level;
  }
  std::reverse(result.sets.begin(), result.sets.end());
  return result;
}

}  // namespace remat::lower_set_dp
