// HiREmate (Gusak et al. 2025): a hierarchy of groups, options for each, an integer program that combines
// them. The framework itself, with its interfaces, is include/remat/hiremate.h. docs/planners/hiremate.md.
#include "remat/hiremate.h"

#include <algorithm>
#include <stdexcept>

#include "base/numbers.h"
#include "baselines/hiremate/hierarchy.h"
#include "baselines/hiremate/same_groups.h"
#include "graph/pairing.h"
#include "lp/highs.h"
#include "planning/incumbent.h"
#include "planning/options.h"
#include "polish/polish.h"
#include "remat/error.h"
#include "remat/planner.h"

namespace remat::hiremate {
namespace {

constexpr double kPartitionShare = 0.2;
constexpr double kLowerShare = 0.5;
/// Times that the root is solved again for less where the flattened plan is over the budget.
constexpr int kMoreRounds = 3;
constexpr double kRoundShare = 0.8;
/// Of what is left, for a solver of the root that is followed by others: the first is the one that matters.
constexpr double kTopShare = 0.75;

/// First runs moved forward to where the graph's order has them; what then came first no longer runs.
Plan in_graph_order(const Graph& graph, const Plan& plan) {
  Plan result;
  IndexVector<OpId, int> runs(graph.num_ops(), 0);
  OpId next(0);
  for (OpId op : plan.steps) {
    if (runs[op]++ > 0) {
      result.steps.push_back(op);
      continue;
    }
    for (; next <= op; ++next) result.steps.push_back(next);
  }
  return result;
}

/// The best plan so far, and the solver that made it.
class Flattened {
 public:
  Flattened(const Problem& problem, const Settings& settings, Limits& limits)
      : problem_(problem), settings_(settings), limits_(limits), best_(problem, "hiremate", limits) {}

  /// Returns the peak of the plan before polishing.
  Bytes offer(Plan plan, std::string_view solver) {
    const Graph& graph = *problem_.graph;
    if (problem_.order == OrderMode::kFixed) plan = in_graph_order(graph, plan);
    plan = polish::without_unread_steps(graph, plan);
    Simulation cost = simulate(graph, plan);
    const Bytes peak = cost.peak;
    if (settings_.polish) {
      plan = polish::buy_back(graph, plan, problem_.budget, limits_);
      cost = simulate(graph, plan);
    }
    limits_.spend(1 + std::ssize(plan.steps) / 16);
    if (best_.offer(std::move(plan), cost)) solver_ = solver;
    return peak;
  }

  const Incumbent& best() const { return best_; }
  PlanResult result(Counters counters) {
    PlanResult result = best_.result(std::move(counters));
    if (solver_ != "keep_all") result.planner = "hiremate:" + solver_;
    return result;
  }

 private:
  const Problem& problem_;
  const Settings& settings_;
  Limits& limits_;
  Incumbent best_;
  std::string solver_;
};

Plan plan_of(const Option& option) {
  std::vector<OpId> steps = option.forward;
  steps.insert(steps.end(), option.refresh.begin(), option.refresh.end());
  steps.insert(steps.end(), option.backward.begin(), option.backward.end());
  return {IndexVector<StepId, OpId>(std::move(steps))};
}

/// Solves the root, for less where the flattened plan turns out to need more than the level showed: first
/// runs may have moved to the graph's order.
void solve_root(const LevelSolver& solver, const Level& root, Bytes budget, Flattened& best, Limits& limits) {
  if (!solver.applicable(root)) return;
  Bytes asked = budget;
  for (int round = 0; round <= kMoreRounds && !limits.reached(); ++round) {
    Bytes peak;
    bool any = false;
    Limits part(limits, round == kMoreRounds ? 1 : kRoundShare);
    for (Option& option : solver.options(root, {{asked, std::nullopt}}, part)) {
      option.solver = solver.name();
      check_option(root, option);
      const Bytes one = best.offer(plan_of(option), solver.name());
      peak = any ? std::min(peak, one) : one;
      any = true;
    }
    if (!any || peak <= budget) return;
    asked -= peak - budget;
    if (asked <= root.training->graph->resident) return;
  }
}

Settings with_parts(Settings settings) {
  if (!settings.partitioner) settings.partitioner = h_partition(settings);
  if (settings.lower.empty()) settings.lower = {planner_solver("retention", settings)};
  if (settings.top.empty()) {
    settings.top = {rk_rotor(), planner_solver("tw_remat", settings)};
    if (!lp::unavailable()) settings.top.insert(settings.top.begin(), h_ilp(settings));
  }
  return settings;
}

void require_range(const char* name, std::int64_t value, std::int64_t low) {
  if (value < low) {
    throw UsageError(std::string("hiremate: ") + name + " is " + std::to_string(value) +
                     ", must be at least " + std::to_string(low));
  }
}

void check_settings(const Settings& settings) {
  require_range("most_top", settings.most_top, 2);
  require_range("most_lower", settings.most_lower, 2);
  require_range("budgets", settings.budgets, 1);
  require_range("most_options", settings.most_options, 1);
}

void improve(const Problem& problem, const Settings& settings, Flattened& best, Limits& limits) {
  if (!settings.search || limits.reached()) return;
  const std::vector<Plan> starts{best.best().plan()};
  Problem from = problem;
  from.starts = starts;
  // From the flattened plan alone: the plans that search makes for itself would take its place.
  const PlanOptions options{settings.seed, settings.threads, {{"retention", "off"}, {"constructive", "off"}}};
  PlanResult result = make_plan(from, "search", options, limits);
  if (result.plan) best.offer(std::move(*result.plan), "search");
}

}  // namespace

Partition partition(const TrainingGraph& training, const Settings& settings, Limits& limits) {
  const auto partitioner = settings.partitioner ? settings.partitioner : h_partition(settings);
  Partition groups = make_partition(training, partitioner->partition(training, limits));
  if (const auto wrong = check_partition(training, groups)) throw std::logic_error("partition: " + *wrong);
  return groups;
}

PlanResult plan(const Problem& problem, const Settings& given, Limits& limits) {
  check_settings(given);
  if (problem.objective != Objective::kTime) throw UsageError("hiremate has no objective 'peak'");
  const Settings settings = with_parts(given);
  const TrainingGraph training = pair_layers(*problem.graph);
  Counters counters;
  Flattened best(problem, settings, limits);
  best.offer(keep_all_plan(*problem.graph), "keep_all");
  const auto solve_levels = [&] {
    if (limits.reached()) return;
    Limits partition_limits(limits, kPartitionShare);
    const Partition groups = partition(training, settings, partition_limits);
    if (limits.reached()) return;
    Hierarchy hierarchy(training, groups, settings, limits);
    {
      Limits lower(limits, kLowerShare);
      hierarchy.solve(lower);
    }
    for (std::size_t i = 0; i < settings.top.size() && !limits.reached(); ++i) {
      const double share = i + 1 < settings.top.size() ? kTopShare : 1;
      Limits part(limits, settings.search ? 0.5 * share : share);
      solve_root(*settings.top[i], hierarchy.root(), problem.budget, best, part);
    }
    improve(problem, settings, best, limits);
    const PartitionSummary summary = summarize(groups, hierarchy.same());
    counters = {{"levels", summary.levels},
                {"groups", summary.groups},
                {"distinct", summary.distinct},
                {"largest", summary.largest},
                {"solved", hierarchy.counts().solved},
                {"options", hierarchy.counts().options}};
  };
  if (!best.best().fits()) solve_levels();
  return best.result(std::move(counters));
}

std::shared_ptr<const LevelSolver> solver_named(const std::string& name, const Settings& settings) {
  if (name == "h_ilp") return h_ilp(settings);
  if (name == "rk_rotor") return rk_rotor();
  return planner_solver(name, settings);
}

namespace {

/// "h_ilp+tw_remat" is two names.
std::vector<std::string> split_names(const std::string& names) {
  std::vector<std::string> all;
  for (std::size_t begin = 0; begin <= names.size();) {
    const std::size_t end = std::min(names.find('+', begin), names.size());
    all.push_back(names.substr(begin, end - begin));
    begin = end + 1;
  }
  return all;
}

/// Registered planners and the two solvers of the framework.
void check_solvers(const std::string& names) {
  for (const std::string& name : split_names(names)) {
    if (name != "h_ilp" && name != "rk_rotor") find_planner(name);
  }
}

std::vector<std::shared_ptr<const LevelSolver>> solvers_by_name(const std::string& names,
                                                                const Settings& settings) {
  std::vector<std::shared_ptr<const LevelSolver>> solvers;
  for (const std::string& name : split_names(names)) solvers.push_back(solver_named(name, settings));
  return solvers;
}

/// Names of the parts.
struct Parts {
  std::string partitioner_name, lower_names, top_names;
};

Parts parts_of(const std::string& preset) {
  if (preset == "published") return {"h_partition", "h_ilp+rk_rotor+tw_remat", "h_ilp+rk_rotor+tw_remat"};
  if (preset == "h_ilp") return {"h_partition", "h_ilp", "h_ilp"};
  if (preset == "rockmate") return {"sequence", "h_ilp", "rk_rotor"};
  if (preset == "checkmate") return {"single_level", "h_ilp", "checkmate_milp"};
  return {"h_partition", "retention", lp::unavailable() ? "rk_rotor+tw_remat" : "h_ilp+rk_rotor+tw_remat"};
}

/// What users may set. A preset gives other defaults to the rest.
struct Options : Settings, Parts {
  std::string preset = "hiremate";
};

Options preset_named(const std::string& preset) {
  Options options;
  options.preset = preset;
  if (preset == "published") options.polish = false;
  // H-ILP takes longer for an option than min cuts do.
  if (preset != "hiremate") options.budgets = 6;
  static_cast<Parts&>(options) = parts_of(preset);
  return options;
}

const OptionTable<Options>& table() {
  static const OptionTable<Options> kTable =
      OptionTable<Options>("hiremate", preset_named("hiremate"))
          .choice("preset", &Options::preset, {"hiremate", "published", "h_ilp", "rockmate", "checkmate"},
                  "values of the other options; those that are given override them")
          .choice("partitioner", &Options::partitioner_name, {"h_partition", "sequence", "single_level"},
                  "how ops are grouped")
          .text("lower", &Options::lower_names, check_solvers,
                "solvers of groups below the root, joined by +: h_ilp, rk_rotor or planners")
          .text("top", &Options::top_names, check_solvers, "solvers of the root, likewise")
          .integer("most_top", &Options::most_top, 2, 64, "members",
                   "most members of the root, M_t of the paper")
          .integer("most_lower", &Options::most_lower, 2, 64, "members",
                   "most members of other groups, M_l of the paper")
          .number("alpha", &Options::alpha, -10, 10, "",
                  "exponent in the score by which groups are made, eq. (1) of the paper")
          .integer("budgets", &Options::budgets, 1, 100, "budgets",
                   "budgets that each group below the root is solved for; other presets: 6")
          .integer("most_options", &Options::most_options, 1, 10'000, "options",
                   "most options of all members of a level together")
          .number("gap", &Options::gap, 0, 1, "share of one run of the group",
                  "H-ILP stops with a solution this near to its bound")
          .flag("polish", &Options::polish,
                "erase recomputations at the end while the budget holds; preset published: off")
          .flag("search", &Options::search, "search from the flattened plan with what is left of the limits")
          .flag("all_phases", &Options::all_phases, "H-ILP may run anything again in any phase");
  return kTable;
}

}  // namespace

Settings settings_of(const PlanOptions& given) {
  const std::string preset = table().read(given).preset;
  const Options options = table().read(given, preset_named(preset));
  Settings settings = options;
  settings.seed = given.seed;
  settings.threads = given.threads;
  settings.lower = solvers_by_name(options.lower_names, settings);
  settings.top = solvers_by_name(options.top_names, settings);
  if (options.partitioner_name == "h_partition") settings.partitioner = h_partition(settings);
  if (options.partitioner_name == "sequence") settings.partitioner = sequence();
  if (options.partitioner_name == "single_level") settings.partitioner = single_level();
  return settings;
}

PlannerInfo info() {
  return {"hiremate",
          "groups of groups of layers, options for each, combined by an integer program (H-ILP)",
          "valid plans; within the budget wherever one was found",
          "Gusak et al. 2025 (HiREmate)",
          [](const Problem& problem) -> std::optional<std::string> {
            if (problem.objective == Objective::kPeak) return "it has no objective 'peak'";
            if (find_pairing(*problem.graph)) return std::nullopt;
            return "the graph has no backward pass that phases name or its structure shows";
          },
          [](const Problem& problem, const PlanOptions& options, Limits& limits) {
            return plan(problem, settings_of(options), limits);
          },
          false,
          table().list()};
}

}  // namespace remat::hiremate
