#include "baselines/chen/chen.h"

#include <algorithm>
#include <set>

#include "base/numbers.h"
#include "planning/incumbent.h"
#include "planning/options.h"

namespace remat::chen {
namespace {

using canonical::ForwardGraph;

/// A topological order by depth-first search from the sources, in reverse postorder.
std::vector<std::int32_t> depth_first_order(const ForwardGraph& graph) {
  std::vector<std::int32_t> order;
  std::vector<bool> seen(graph.size(), false);
  std::vector<std::pair<std::int32_t, std::size_t>> stack;
  for (auto root = narrow<std::int32_t>(graph.size()) - 1; root >= 0; --root) {
    if (seen[at(root)] || !graph.before[at(root)].empty()) continue;
    seen[at(root)] = true;
    stack.emplace_back(root, 0);
    while (!stack.empty()) {
      auto& [v, next] = stack.back();
      if (next == graph.after[at(v)].size()) {
        order.push_back(v);
        stack.pop_back();
        continue;
      }
      const std::int32_t s = graph.after[at(v)][next++];
      if (seen[at(s)]) continue;
      seen[at(s)] = true;
      stack.emplace_back(s, 0);
    }
  }
  std::reverse(order.begin(), order.end());
  return order;
}

/// Chen's Algorithm 3: walk the order, add up bytes, and cut at the first candidate over the segment budget.
std::vector<std::int32_t> cut(const ForwardGraph& graph, const std::vector<std::int32_t>& order,
                              const std::vector<bool>& candidate, std::int64_t segment) {
  std::vector<std::int32_t> part(graph.size());
  std::int32_t current = 0;
  std::int64_t sum = 0;
  for (std::int32_t v : order) {
    part[at(v)] = current;
    sum += graph.bytes[at(v)];
    if (!candidate[at(v)] || sum <= segment) continue;
    ++current;
    sum = 0;
  }
  return part;
}

struct Options {
  bool liveness = true;
};

PlanResult run(const Problem& problem, const Options& options, const PlanOptions&, Limits& limits) {
  const Graph& graph = *problem.graph;
  const Pairing pairing = *find_pairing(graph);
  const ForwardGraph forward = canonical::forward_graph(graph, pairing);
  const std::vector<std::int32_t> order = depth_first_order(forward);
  const std::vector<bool> candidate = articulation_points(forward);
  std::int64_t total = 0;
  for (std::int64_t bytes : forward.bytes) total += bytes;

  Incumbent best(problem, "chen", limits);
  std::vector<std::int32_t> best_part(forward.size(), 0);
  std::set<std::vector<std::int32_t>> tried;
  // Segment budgets from the total down to nothing, each 5/6 of the last.
  for (std::int64_t segment = total; !limits.spend(1 + graph.ops().size() / 4);
       segment -= segment / 6 + (segment % 6 != 0)) {
    const auto part = cut(forward, order, candidate, segment);
    if (tried.insert(part).second) {
      Plan plan = canonical::plan_for_parts(graph, pairing, part);
      Simulation cost = simulate(graph, plan);
      if (!options.liveness)
        cost.peak = Bytes(capped(Wide{graph.resident.count()} + canonical::formula_peak(forward, part)));
      if (best.offer(std::move(plan), cost)) best_part = part;
    }
    if (segment == 0) break;
  }
  if (best.empty()) best.offer(keep_all_plan(graph));
  return best.result({{"articulation_points", std::count(candidate.begin(), candidate.end(), true)},
                      {"cuts_tried", std::ssize(tried)},
                      {"formula_peak", canonical::formula_peak(forward, best_part)}});
}

}  // namespace

std::vector<bool> articulation_points(const ForwardGraph& graph) {
  const std::size_t n = graph.size();
  std::vector<std::vector<std::int32_t>> around(n);
  for (std::size_t v = 0; v < n; ++v) {
    around[v] = graph.before[v];
    around[v].insert(around[v].end(), graph.after[v].begin(), graph.after[v].end());
  }
  std::vector<bool> result(n, false);
  std::vector<std::int32_t> entered(n, -1), low(n, 0), parent(n, -1);
  std::vector<std::size_t> next(n, 0);
  std::int32_t clock = 0;
  for (std::size_t root = 0; root < n; ++root) {
    if (entered[root] >= 0) continue;
    int branches = 0;
    std::vector<std::int32_t> stack{narrow<std::int32_t>(root)};
    entered[root] = low[root] = clock++;
    while (!stack.empty()) {
      const std::int32_t v = stack.back();
      if (next[at(v)] < around[at(v)].size()) {
        const std::int32_t u = around[at(v)][next[at(v)]++];
        if (entered[at(u)] < 0) {
          entered[at(u)] = low[at(u)] = clock++;
          parent[at(u)] = v;
          branches += at(v) == root;
          stack.push_back(u);
        } else if (u != parent[at(v)]) {
          low[at(v)] = std::min(low[at(v)], entered[at(u)]);
        }
        continue;
      }
      stack.pop_back();
      if (stack.empty()) break;
      const std::int32_t p = stack.back();
      low[at(p)] = std::min(low[at(p)], low[at(v)]);
      if (at(p) != root && low[at(v)] >= entered[at(p)]) result[at(p)] = true;
    }
    result[root] = branches > 1;
  }
  return result;
}

PlannerInfo info() {
  const auto table = OptionTable<Options>("chen").flag(
      "liveness", &Options::liveness,
      "judge plans by their simulated peak; off: by the peak of the paper's formula");
  return with_options({"chen", "keeps checkpoints at articulation points of the forward graph",
                       "none; O(sqrt(n)) memory on chains of equal ops",
                       "Chen et al. 2016; details as in Kusumoto et al. 2019, appendix B",
                       [](const Problem& problem) -> std::optional<std::string> {
                         if (find_pairing(*problem.graph)) return std::nullopt;
                         return "the graph has no backward pass that phases name or its structure shows";
                       }},
                      table, run);
}

}  // namespace remat::chen
