#include "planners/tw_remat/tw_remat.h"

#include <algorithm>
#include <map>

#include "base/numbers.h"
#include "base/sorted.h"
#include "planning/objective.h"
#include "planning/options.h"
#include "polish/polish.h"

namespace remat::tw_remat {
namespace {

/// Longer plans are abandoned: TWRemat(1) may be polynomially long, which is of no practical use.
constexpr std::int64_t kMaxStepsPerOp = 16;
constexpr std::int64_t kMaxStepsPerOpAsked = 64;  // of a k that the user names

std::vector<std::int64_t> output_bytes(const Graph& graph) {
  std::vector<std::int64_t> sums(graph.num_ops(), 0);
  for (OpId op : graph.ops()) {
    for (ValueId v : graph.outputs[op]) {
      if (!graph.readers[v].empty()) sums[at(op)] += graph.bytes[v].count();
    }
  }
  return sums;
}

/// The plans of one run, each k at most once.
class Sweep {
 public:
  Sweep(const Problem& problem, const Options& options, Limits& limits)
      : problem_(problem),
        options_(options),
        limits_(limits),
        separators_(separators(*problem.graph, options, limits)) {}

  std::int64_t largest_k() const { return separators_.bags + 1; }
  const Separators& parts() const { return separators_; }

  /// TWRemat(k), with time bought back if it fits; nothing if it is too long.
  const std::optional<Candidate>& at(std::int64_t k) {
    const auto [found, is_new] = candidates_.try_emplace(k);
    if (!is_new) return found->second;
    const Graph& graph = *problem_.graph;
    const auto max_steps = (options_.k > 0 ? kMaxStepsPerOpAsked : kMaxStepsPerOp) * graph.ops().size();
    auto plan = plan_for(graph, separators_, k, problem_.order, max_steps, limits_);
    if (!plan) return found->second;
    limits_.spend(1 + std::ssize(plan->steps) / 16);
    Simulation cost = simulate(graph, *plan);
    if (options_.buy_back && problem_.objective == Objective::kTime && cost.peak <= problem_.budget) {
      plan = polish::buy_back(graph, *plan, problem_.budget, limits_);
      cost = simulate(graph, *plan);
    }
    if (cost.duration == kTooLong) return found->second;
    found->second = Candidate{std::move(*plan), cost, k};
    return found->second;
  }

 private:
  const Problem& problem_;
  const Options& options_;
  Limits& limits_;
  Separators separators_;
  std::map<std::int64_t, std::optional<Candidate>> candidates_;
};

bool preferred(const Problem& problem, const Candidate& a, const Candidate& b) {
  const auto key = [&](const Candidate& c) { return std::tuple(preference(problem, c.cost), -c.k); };
  return key(a) < key(b);
}

/// Values of k strictly between lo and hi that give different plans, at most `most`, evenly spread.
std::vector<std::int64_t> distinct_k(const Separators& parts, std::int64_t lo, std::int64_t hi,
                                     std::size_t most) {
  std::vector<std::int64_t> all;
  for (const auto& node : parts.tree.nodes) {
    if (node.bags + 1 > lo && node.bags + 1 < hi) all.push_back(node.bags + 1);
  }
  sort_unique(all);
  if (all.size() <= most) return all;
  std::vector<std::int64_t> some;
  for (std::size_t i = 0; i < most; ++i) some.push_back(all[i * all.size() / most]);
  return some;
}

/// Powers of two from keep-all down to 1, then the sizes around the best.
Candidate search_k(Sweep& sweep, const Problem& problem, Limits& limits) {
  constexpr std::size_t kRefinements = 24;
  const Graph& graph = *problem.graph;
  Candidate best{keep_all_plan(graph), {}, sweep.largest_k()};
  best.cost = simulate(graph, best.plan);
  const auto try_k = [&](std::int64_t k) {
    if (limits.reached()) return;
    const auto& candidate = sweep.at(k);
    if (!candidate || !preferred(problem, *candidate, best)) return;
    best = *candidate;
    limits.report({"tw_remat", limits.seconds(), best.cost.peak, best.cost.duration,
                   within_budget(problem, best.cost)});
  };
  if (fits(problem, best.cost)) return best;
  std::int64_t power = 1;
  while (power < sweep.largest_k()) power *= 2;
  for (std::int64_t k = power; k >= 1; k /= 2) try_k(k);
  for (std::int64_t k : distinct_k(sweep.parts(), best.k / 2, best.k * 2, kRefinements)) try_k(k);
  return best;
}

PlanResult run(const Problem& problem, const Options& options, const PlanOptions&, Limits& limits) {
  PlanResult result;
  Sweep sweep(problem, options, limits);
  if (limits.reached()) {
    result.plan = keep_all_plan(*problem.graph);
  } else if (options.k > 0) {
    const auto& candidate = sweep.at(options.k);
    if (candidate) result.plan = candidate->plan;
    result.counters.emplace_back("k", options.k);
  } else {
    Candidate best = search_k(sweep, problem, limits);
    if (options.buy_back) best.plan = polish::buy_back(*problem.graph, best.plan, Bytes(), limits);
    result.counters.emplace_back("k", best.k);
    result.plan = std::move(best.plan);
  }
  result.counters.emplace_back("width", sweep.parts().width);
  result.counters.emplace_back("bags", sweep.parts().bags);
  if (const auto reason = limits.stopped_by()) result.stopped_by = *reason;
  return result;
}

}  // namespace

Separators separators(const Graph& graph, const Options& options, Limits& limits) {
  const decomposition::Adjacency adjacency = decomposition::op_adjacency(graph);
  auto tree = decomposition::decompose(adjacency,
                                       options.min_degree ? decomposition::EliminationRule::kMinDegree
                                                          : decomposition::EliminationRule::kMinFill,
                                       limits);
  if (limits.reached()) return {};
  if (options.improve > 0) {
    tree = decomposition::improved(adjacency, std::move(tree), 0, narrow<int>(options.improve), limits);
  }
  return {tree.width(), narrow<std::int32_t>(tree.bags.size()),
          decomposition::separator_tree(tree, output_bytes(graph))};
}

std::vector<Candidate> candidate_plans(const Problem& problem, Limits& limits) {
  const Options options{.buy_back = false};
  Sweep sweep(problem, options, limits);
  std::vector<Candidate> all{{keep_all_plan(*problem.graph), {}, sweep.largest_k()}};
  all.front().cost = simulate(*problem.graph, all.front().plan);
  std::int64_t power = 1;
  while (power < sweep.largest_k()) power *= 2;
  for (std::int64_t k = power; k >= 1 && !limits.reached(); k /= 2) {
    const auto& candidate = sweep.at(k);
    if (!candidate) continue;
    all.push_back(*candidate);
    all.back().plan = polish::buy_back(*problem.graph, candidate->plan, candidate->cost.peak, limits);
    all.back().cost = simulate(*problem.graph, all.back().plan);
  }
  std::sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return std::tuple(a.cost.duration, a.cost.peak, -a.k) < std::tuple(b.cost.duration, b.cost.peak, -b.k);
  });
  std::vector<Candidate> pareto;
  for (Candidate& candidate : all) {
    if (pareto.empty() || candidate.cost.peak < pareto.back().cost.peak)
      pareto.push_back(std::move(candidate));
  }
  return pareto;
}

PlannerInfo info() {
  const auto table =
      OptionTable<Options>("tw_remat")
          .integer("k", &Options::k, 0, std::int64_t{1} << 31, "bags",
                   "size of parts at which the recursion stops; 0: try them all")
          .flag("min_degree", &Options::min_degree, "min-degree elimination in place of min-fill")
          .integer("improve", &Options::improve, 0, 1'000'000, "restarts",
                   "attempts at a narrower decomposition")
          .flag("buy_back", &Options::buy_back, "erase recomputations at the end while the budget holds");
  return with_options(
      {"tw_remat", "balanced separators of a tree decomposition, stopped early at every size k",
       "unit sizes, one output per op: peak O(width log ops) at k = 1; may miss its budget",
       "Kumar et al. 2019 (TWRemat)"},
      table, run);
}

}  // namespace remat::tw_remat
