#include "baselines/pw_remat/pw_remat.h"

#include <algorithm>

#include "base/numbers.h"
#include "base/sorted.h"
#include "planning/incumbent.h"
#include "planning/options.h"
#include "polish/polish.h"

namespace remat::pw_remat {
namespace {

using decomposition::Arcs;
using decomposition::Vertex;

/// Longer schedules, counted before unread steps are dropped, are abandoned.
constexpr std::int64_t kMaxStepsPerOp = 64;

/// u -> v where v reads an output of u; in free order also where u has to run before v.
Arcs arcs_of(const Graph& graph, OrderMode order) {
  Arcs arcs(graph.num_ops());
  for (OpId op : graph.ops()) {
    for (OpId p : predecessors(graph, op)) arcs[at(p.index())].push_back(op.index());
    if (order == OrderMode::kFixed) continue;
    for (OpId p : graph.after[op]) arcs[at(p.index())].push_back(op.index());
  }
  for (auto& row : arcs) sort_unique(row);
  return arcs;
}

decomposition::Adjacency adjacency_of(const Arcs& arcs, bool with_order) {
  std::vector<std::pair<Vertex, Vertex>> edges;
  for (std::size_t v = 0; v < arcs.size(); ++v) {
    for (Vertex u : arcs[v]) edges.emplace_back(narrow<Vertex>(v), u);
    if (with_order && v > 0) edges.emplace_back(narrow<Vertex>(v) - 1, narrow<Vertex>(v));
  }
  return decomposition::adjacency(arcs.size(), edges);
}

/// True if a second run is never useful: the op must not be recomputed, or only kept outputs are read.
bool stays(const Graph& graph, OpId op) {
  const auto outputs = graph.outputs[op];
  return !graph.recomputable[op] || std::all_of(outputs.begin(), outputs.end(), [&](ValueId v) {
    return graph.readers[v].empty() || graph.kept[v];
  });
}

/// The best plan over k.
class Sizes {
 public:
  Sizes(const Problem& problem, const Options& options, Limits& limits)
      : problem_(problem),
        graph_(*problem.graph),
        options_(options),
        limits_(limits),
        ranked_(ranked(graph_, problem.order, limits)),
        best_(problem, "pw_remat", limits) {}

  PlanResult run() {
    if (options_.k > 0) {
      try_k(options_.k);
      k_ = options_.k;
    } else {
      offer(keep_all_plan(graph_), 0);
      const auto bags = std::ssize(ranked_.path);
      std::int64_t k = 1;
      while (k < bags) k *= 2;
      for (; k >= 1 && !(k_ == 0 && best_.fits()) && !limits_.reached() && try_k(k); k /= 2) {
      }
    }
    return best_.result({{"k", k_},
                         {"path_width", ranked_.path_width},
                         {"width_with_spine", decomposition::width(ranked_.path)},
                         {"bags", std::ssize(ranked_.path)}});
  }

 private:
  /// False where the plan is too long: those of smaller k are longer.
  bool try_k(std::int64_t k) {
    auto plan = plan_for(graph_, ranked_, k, kMaxStepsPerOp * graph_.ops().size(), limits_);
    if (!plan) return false;
    offer(std::move(*plan), k);
    return true;
  }

  void offer(Plan plan, std::int64_t k) {
    if (options_.buy_back && k > 0) {
      const Bytes budget = problem_.objective == Objective::kTime ? problem_.budget : Bytes();
      plan = polish::buy_back(graph_, plan, budget, limits_);
    }
    if (best_.offer(std::move(plan))) k_ = k;
  }

  const Problem& problem_;
  const Graph& graph_;
  const Options& options_;
  Limits& limits_;
  Ranked ranked_;
  Incumbent best_;
  std::int64_t k_ = 0;
};

}  // namespace

Ranked ranked(const Graph& graph, OrderMode order, Limits& limits) {
  const Arcs arcs = arcs_of(graph, order);
  const bool fixed = order == OrderMode::kFixed;
  Ranked result;
  decomposition::PathDecomposition path = decomposition::greedy_path(adjacency_of(arcs, fixed), limits);
  result.path_width = decomposition::width(path);
  std::vector<std::int32_t> rank(graph.num_ops());
  if (fixed) {
    for (OpId op : graph.ops()) result.order.push_back(op);
  } else {
    decomposition::Spine spine = decomposition::add_spine(arcs, path, limits);
    for (Vertex v : spine.order) result.order.emplace_back(v);
    path = std::move(spine.path);
  }
  for (std::size_t r = 0; r < rank.size(); ++r) rank[at(result.order[r].index())] = narrow<std::int32_t>(r);
  std::vector<bool> read(graph.num_ops(), false);
  for (OpId op : result.order) {
    std::vector<std::int32_t>& row = result.inputs.emplace_back();
    for (OpId p : predecessors(graph, op)) row.push_back(rank[at(p.index())]);
    std::sort(row.begin(), row.end());
    for (std::int32_t p : row) read[at(p)] = true;
  }
  for (std::size_t r = 1; r < read.size(); ++r) {
    if (!read[r - 1]) result.inputs[r].push_back(narrow<std::int32_t>(r) - 1);
  }
  for (decomposition::Bag& bag : path) {
    for (Vertex& v : bag) v = rank[at(v)];
    std::sort(bag.begin(), bag.end());
  }
  result.path = std::move(path);
  return result;
}

std::optional<Plan> plan_for(const Graph& graph, const Ranked& ranked, std::int64_t k, std::int64_t max_steps,
                             Limits& limits) {
  const auto steps = interleave(ranked.inputs, ranked.path, k, max_steps, limits);
  if (!steps) return std::nullopt;
  // Before the first run of a rank all earlier ones must have run: whatever it reads has an instance then.
  Plan plan;
  const auto n = narrow<std::int32_t>(ranked.order.size());
  std::int32_t next = 0;
  const auto run_up_to = [&](std::int32_t end) {
    for (; next < end; ++next) plan.steps.push_back(ranked.order[at(next)]);
  };
  for (std::int32_t r : *steps) {
    if (r >= next) {
      run_up_to(r + 1);
    } else if (!stays(graph, ranked.order[at(r)])) {
      plan.steps.push_back(ranked.order[at(r)]);
    }
  }
  run_up_to(n);
  return polish::without_unread_steps(graph, plan);
}

PlannerInfo info() {
  const auto table =
      OptionTable<Options>("pw_remat")
          .integer("k", &Options::k, 0, std::int64_t{1} << 31, "bags",
                   "size of parts at which the recursion stops; 0: try them all")
          .flag("buy_back", &Options::buy_back, "erase recomputations at the end while the budget holds");
  return with_options(
      {"pw_remat",
       "a path decomposition with a spine, halved in length and width, stopped early at every size k",
       "unit sizes, one output per op, path width w: polylogarithmic peak and overhead for fixed w at k = "
       "1; may "
       "miss its budget",
       "Kumar et al. 2019 (PWRemat)"},
      table, [](const Problem& problem, const Options& options, const PlanOptions&, Limits& limits) {
        return Sizes(problem, options, limits).run();
      });
}

}  // namespace remat::pw_remat
