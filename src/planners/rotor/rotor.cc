// Optimal persistent checkpointing of training graphs that are chains (Beaumont et al. 2019).
#include <algorithm>
#include <string>

#include "base/numbers.h"
#include "planners/rotor/chain_view.h"
#include "planning/incumbent.h"
#include "planning/options.h"
#include "polish/polish.h"
#include "remat/planner.h"

namespace remat::rotor {
namespace {

struct Options {
  std::int64_t slots = 500;
  std::int64_t stages = 1000;
  std::string costs = "given";
  bool buy_back = true;
  bool first = false;
};

/// The chain of revolve (Griewank and Walther 2000): every checkpoint takes one slot, every pass one unit,
/// and a stage is saved only when its backward half is next.
Chain unit_chain(std::size_t stages, std::int64_t checkpoints) {
  Chain chain;
  Stage stage{.output = 1, .pass_time = 1, .first_time = 1, .pass_need = -1, .first_need = -1, .options = {}};
  stage.options.push_back({.saved = checkpoints + 1});
  chain.stages.assign(stages, stage);
  chain.around.assign(stages, 0);
  return chain;
}

class Run {
 public:
  Run(const Problem& problem, const Options& options, Limits& limits)
      : problem_(problem),
        graph_(*problem.graph),
        options_(options),
        limits_(limits),
        best_(problem, "rotor", limits) {}

  PlanResult run() {
    offer(keep_all_plan(graph_), 0);
    keep_all_peak_ = best_.cost().peak;
    if (!best_.fits()) {
      const std::int64_t most = most_stages(options_.stages, options_.slots);
      for (const ChainView& view : chain_views(graph_, *find_pairing(graph_), most)) {
        if (limits_.reached() || (options_.first && best_.fits() && !is_quick(view))) break;
        solve(view);
      }
    }
    return best_.result({{"stages", stages_}, {"held_values", held_}, {"formula_duration", formula_}});
  }

 private:
  /// True if the table takes less work than is left.
  bool is_quick(const ChainView& view) const {
    constexpr Wide kEntriesPerUnit = 7200;  // an entry: one way to split one part of the chain in one slot
    constexpr double kUnitsPerSecond = 1e7;
    const Wide stages = std::ssize(view.halves),
               units = stages * stages * stages * options_.slots / kEntriesPerUnit;
    const auto work = limits_.work_left();
    const auto seconds = limits_.seconds_left();
    return (work || seconds) && (!work || units <= *work) &&
           (!seconds || units <= static_cast<Wide>(*seconds * kUnitsPerSecond));
  }

  void solve(const ChainView& view) {
    if (options_.costs == "unit") return solve_unit(view);
    const std::int64_t room = (problem_.budget - graph_.resident).count();
    if (problem_.objective == Objective::kTime && solve_within(view, room) && best_.fits()) return;
    // The least budget of the table with a schedule.
    solve_least(view);
  }

  bool solve_within(const ChainView& view, std::int64_t room) {
    const ChainTable table(view.chain, room, narrow<std::int32_t>(options_.slots), limits_);
    const auto actions = table.schedule(room);
    if (!actions) return false;
    offer(view, *actions, *table.extra_time(room));
    return true;
  }

  void solve_least(const ChainView& view) {
    const std::int64_t room = (keep_all_peak_ - graph_.resident).count();
    const ChainTable table(view.chain, room, narrow<std::int32_t>(options_.slots), limits_);
    std::int64_t low = -1, high = table.largest_budget();
    if (high < 0 || !table.schedule(high)) return;
    while (high - low > table.slot()) {
      const std::int64_t middle = low + (high - low) / 2;
      (table.extra_time(middle) ? high : low) = middle;
    }
    offer(view, *table.schedule(high), *table.extra_time(high));
  }

  /// The most checkpoints that fit: more of them take less time.
  void solve_unit(const ChainView& view) {
    constexpr std::int64_t kMostCheckpoints = 128;
    const auto most = std::min(std::ssize(view.halves), kMostCheckpoints);
    const Chain chain = unit_chain(view.halves.size(), most);
    const ChainTable table(chain, most, narrow<std::int32_t>(most + 1), limits_);
    std::int64_t low = 0, high = most + 1;
    while (high - low > 1) {
      const std::int64_t middle = low + (high - low) / 2;
      const auto actions = table.schedule(middle);
      const bool over = actions && !offer(view, *actions, 0);
      (over ? high : low) = middle;
    }
  }

  bool offer(const ChainView& view, const std::vector<Action>& actions, std::int64_t extra) {
    Plan plan = plan_of(graph_, view, actions);
    limits_.spend(1 + std::ssize(plan.steps) / 16);
    const bool within = fits(problem_, simulate(graph_, plan));
    if (within && options_.buy_back) plan = polish::buy_back(graph_, plan, problem_.budget, limits_);
    if (offer(std::move(plan), extra)) {
      stages_ = std::ssize(view.halves);
      held_ = view.held_values;
    }
    return within;
  }

  bool offer(Plan plan, std::int64_t extra) {
    const bool kept = best_.offer(std::move(plan));
    if (kept) formula_ = capped(Wide{graph_.base_duration.count()} + extra);
    return kept;
  }

  const Problem& problem_;
  const Graph& graph_;
  const Options& options_;
  Limits& limits_;
  Incumbent best_;
  Bytes keep_all_peak_;
  std::int64_t stages_ = 0, held_ = 0, formula_ = 0;
};

std::optional<std::string> supports(const Problem& problem) {
  const auto pairing = find_pairing(*problem.graph);
  if (!pairing) return "the graph has no backward pass that phases name or its structure shows";
  if (has_chain_view(*problem.graph, *pairing, Options().stages)) return std::nullopt;
  return "the forward pass is no chain: there is no op whose outputs alone are read by later forward ops";
}

}  // namespace

PlannerInfo info() {
  const auto table =
      OptionTable<Options>("rotor")
          .integer("slots", &Options::slots, 1, 100'000, "slots",
                   "parts of the budget: bytes are rounded up to whole ones")
          .integer("stages", &Options::stages, 2, 10'000, "stages",
                   "longest chain; longer ones are cut at fewer places")
          .choice("costs", &Options::costs, {"given", "unit"},
                  "of stages; unit: all alike and none saved ahead, which is revolve")
          .flag("buy_back", &Options::buy_back, "erase recomputations at the end while the budget holds")
          .flag(
              "first", &Options::first,
              "stop at the first view of the chain with a plan within the budget, unless the next one takes "
              "less than half of what is left");
  return with_options(
      {"rotor", "dynamic programming over a chain of stages, each saved, checkpointed or run again",
       "least duration among persistent schedules of the chain, up to the rounding of memory to slots",
       "Beaumont et al. 2019", supports},
      table, [](const Problem& problem, const Options& options, const PlanOptions&, Limits& limits) {
        return Run(problem, options, limits).run();
      });
}

}  // namespace remat::rotor
