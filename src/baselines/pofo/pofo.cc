// Chains whose activations are kept, computed again or sent to the host (Beaumont et al. 2021).
#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "base/numbers.h"
#include "baselines/pofo/offload_chain.h"
#include "planners/offload/timetable.h"
#include "planners/rotor/chain_view.h"
#include "planning/incumbent.h"
#include "planning/options.h"
#include "remat/planner.h"

namespace remat::pofo {
namespace {

/// Extra budgets in percent, and the number of consecutive ones without improvement at which to stop.
constexpr std::array<std::int64_t, 7> kMores{0, 3, 6, 10, 15, 20, 30};
constexpr int kMostWorse = 1;

struct Options {
  std::int64_t slots = 500, stages = 1000;
};

class Run {
 public:
  Run(const Problem& problem, const Options& options, Limits& limits)
      : problem_(problem),
        graph_(*problem.graph),
        host_(*problem.host),
        options_(options),
        limits_(limits),
        timetable_(graph_, problem.budget, host_),
        best_(problem, "pofo", limits) {}

  PlanResult run() {
    best_.offer(rotor_plan());
    if (!best_.fits() || best_.cost().duration > graph_.base_duration) {
      const std::int64_t most = rotor::most_stages(options_.stages, options_.slots);
      for (const rotor::ChainView& view : rotor::chain_views(graph_, *find_pairing(graph_), most)) {
        if (limits_.reached()) break;
        solve(view);
      }
    }
    return best_.result({{"stages", stages_}, {"formula_duration", formula_}});
  }

 private:
  Plan rotor_plan() {
    Problem alone = problem_;
    alone.host.reset();
    const PlanOptions same{
        .set = {{"slots", std::to_string(options_.slots)}, {"stages", std::to_string(options_.stages)}}};
    return *find_planner("rotor").run(alone, same, limits_).plan;
  }

  void solve(const rotor::ChainView& view) {
    const std::int64_t room = (problem_.budget - graph_.resident).count();
    // The model overestimates the memory of copies, so larger budgets are tried as well.
    const std::int64_t most = room + room * kMores.back() / 100;
    const std::int64_t all_slots = options_.slots + options_.slots * kMores.back() / 100;
    const rotor::ChainTable table(view.chain, most, narrow<std::int32_t>(all_slots), limits_);
    if (table.largest_budget() < 0) return;
    std::int64_t below = table.extra_time(room).value_or(std::numeric_limits<std::int64_t>::max());
    const LinkedChain linked = linked_chain(view);
    Duration least = kTooLong;
    int worse = 0;
    for (std::int64_t more : kMores) {
      const std::int64_t slots = std::min(room + room * more / 100, table.largest_budget()) / table.slot();
      const auto found = pofo::solve(linked, table, slots, below, limits_);
      if (limits_.reached()) return;
      if (!found) continue;
      below = std::min(below, found->extra_time + 1);
      Plan plan = with_copies(view, *found);
      const Simulation cost = simulate(graph_, plan, &host_);
      const bool is_worse = !fits(problem_, cost) || cost.duration > least;
      worse = is_worse ? worse + 1 : 0;
      if (worse > kMostWorse) return;
      if (!is_worse) least = cost.duration;
      take(std::move(plan), std::ssize(view.halves), found->extra_time);
    }
  }

  LinkedChain linked_chain(const rotor::ChainView& view) const {
    LinkedChain linked;
    linked.chain = &view.chain;
    linked.out = host_.out;
    linked.in = host_.in;
    linked.second = *units_per_second(graph_);
    const auto time = [&](const std::vector<OpId>& ops) {
      std::int64_t sum = 0;
      for (OpId op : ops) sum += graph_.duration[op].count();
      return sum;
    };
    const auto goes = [&](const std::vector<ValueId>& values) {
      return std::ranges::all_of(values, [&](ValueId v) { return graph_.copyable[v]; });
    };
    for (const rotor::ChainView::Half& half : view.halves) {
      linked.forward_time.push_back(time(half.forward));
      linked.backward_time.push_back(time(half.backward));
      linked.output_goes.push_back(goes(half.output));
      linked.rest_goes.push_back(goes(half.rest));
    }
    return linked;
  }

  /// Copies out as soon as a value is made, copies in as late as the link allows.
  Plan with_copies(const rotor::ChainView& view, const Schedule& schedule) {
    IndexVector<ValueId, bool> on_host(graph_.num_values(), false);
    for (int i : indices(view.halves)) {
      const auto send = [&](const std::vector<ValueId>& values) {
        for (ValueId v : values) on_host[v] = true;
      };
      if (schedule.output_on_host[at(i)]) send(view.halves[at(i)].output);
      if (schedule.rest_on_host[at(i)]) send(view.halves[at(i)].rest);
    }
    const Plan steps = rotor::plan_of(graph_, view, schedule.actions);
    buy_back(without_unread(graph_, offload::script_of(graph_, steps, on_host)));
    return timetable_.plan();
  }

  /// Erases recomputations, the longest first, while that is faster within the budget. Leaves the timetable
  /// at the resulting script.
  void buy_back(Script script) {
    Simulation cost = timetable_.evaluate(script);
    std::vector<OpId> again;
    IndexVector<OpId, int> runs(graph_.num_ops(), 0);
    for (const Item& item : script) {
      if (item.op && ++runs[item.op] == 2) again.push_back(item.op);
    }
    std::ranges::stable_sort(again, std::greater(), [&](OpId op) { return graph_.duration[op]; });
    for (OpId op : again) {
      if (limits_.spend(1 + std::ssize(script) / 16)) break;
      Script once;
      bool has_run = false;
      for (const Item& item : script) {
        if (item.op == op && std::exchange(has_run, true)) continue;
        once.push_back(item);
      }
      once = without_unread(graph_, once);
      const Simulation changed = timetable_.evaluate(once);
      if (changed.peak > std::max(problem_.budget, cost.peak) || changed.duration >= cost.duration) continue;
      script = std::move(once);
      cost = changed;
    }
    timetable_.evaluate(script);
  }

  void take(Plan plan, std::int64_t stages, std::int64_t extra) {
    limits_.spend(1 + std::ssize(plan.steps) / 16);
    const Simulation cost = simulate(graph_, plan, &host_);
    if (!best_.offer(std::move(plan), cost)) return;
    stages_ = stages;
    formula_ = capped(Wide{graph_.base_duration.count()} + extra);
  }

  const Problem& problem_;
  const Graph& graph_;
  const Host& host_;
  const Options& options_;
  Limits& limits_;
  offload::Timetable timetable_;
  Incumbent best_;
  std::int64_t stages_ = 0, formula_ = 0;  ///< 0 for rotor's plan
};

std::optional<std::string> supports(const Problem& problem) {
  if (!problem.host) return "it needs a host (--host 25GB/s)";
  if (problem.objective == Objective::kPeak) return "it needs a budget (objective time)";
  if (problem.order == OrderMode::kFree) return "it keeps the order of the graph";
  return find_planner("rotor").supports(problem);
}

}  // namespace

PlannerInfo info() {
  const auto table = OptionTable<Options>("pofo")
                         .integer("slots", &Options::slots, 1, 100'000, "slots",
                                  "parts of the budget: bytes are rounded up to whole ones")
                         .integer("stages", &Options::stages, 2, 10'000, "stages",
                                  "longest chain; longer ones are cut at fewer places");
  return with_options(
      {"pofo", "dynamic programming over a chain of stages, each kept, run again or sent to the host",
       "never slower than rotor on the same chain; may miss its budget", "Beaumont et al. 2021", supports},
      table, [](const Problem& problem, const Options& options, const PlanOptions&, Limits& limits) {
        return Run(problem, options, limits).run();
      });
}

}  // namespace remat::pofo
