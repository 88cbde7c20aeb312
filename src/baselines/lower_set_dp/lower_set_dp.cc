#include "baselines/lower_set_dp/lower_set_dp.h"

#include <algorithm>

#include "base/numbers.h"
#include "planning/incumbent.h"
#include "planning/options.h"
#include "remat/error.h"

namespace remat::lower_set_dp {
namespace {

struct Options {
  std::string family = "auto";
  std::string centric = "both";
  bool liveness = true;
  std::int64_t max_sets = 10'000;
};

constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;

/// Levels of time, so that the table stays within some 10^8 updates.
std::int64_t levels_for(std::size_t sets) {
  const auto pairs = static_cast<std::int64_t>(sets) * static_cast<std::int64_t>(sets) / 2 + 1;
  return std::clamp<std::int64_t>(200'000'000 / pairs, 32, 1024);
}

class Solver {
 public:
  Solver(const Problem& problem, const Options& options, const Pairing& pairing, const ForwardGraph& forward,
         const std::vector<Set>& family, Limits& limits)
      : problem_(problem),
        options_(options),
        graph_(*problem.graph),
        pairing_(pairing),
        forward_(forward),
        limits_(limits),
        table_(forward, family, levels_for(family.size()), limits),
        best_(problem, "lower_set_dp", limits) {}

  /// Bisects the budget of the formula: a larger one means less recomputation and usually a higher peak.
  PlanResult run() {
    keep(keep_all_plan(graph_), 0);
    if (limits_.reached()) return conclude();
    std::int64_t low = 0, high = table_.largest_budget();
    if (!options_.liveness && problem_.objective == Objective::kTime) {
      try_budget((problem_.budget - std::min(problem_.budget, graph_.resident)).count());
    } else {
      try_budget(high);
      constexpr int kBisections = 12;
      for (int i = 0; i < kBisections && low + 1 < high && !limits_.reached(); ++i) {
        const std::int64_t middle = low + (high - low) / 2;
        (try_budget(middle) == Outcome::kOver ? high : low) = middle;
      }
    }
    return conclude();
  }

 private:
  PlanResult conclude() {
    return best_.result(
        {{"lower_sets", std::ssize(table_.family())}, {"parts", parts_}, {"formula_peak", formula_peak_}});
  }

  enum class Outcome { kNone, kFits, kOver };

  Outcome try_budget(std::int64_t budget) {
    const Strategies found = table_.solve(budget, limits_);
    Outcome outcome = Outcome::kNone;
    const auto use = [&](const std::optional<Strategy>& strategy, std::string_view which) {
      if (!strategy || (options_.centric != "both" && options_.centric != which)) return;
      const std::vector<std::int32_t> part = table_.parts(*strategy);
      const bool within = keep(canonical::plan_for_parts(graph_, pairing_, part),
                               canonical::formula_peak(forward_, part), std::ssize(strategy->sets));
      outcome = within || outcome == Outcome::kFits ? Outcome::kFits : Outcome::kOver;
    };
    use(found.time_centric, "time");
    use(found.memory_centric, "memory");
    return outcome;
  }

  bool keep(Plan plan, std::int64_t formula_peak, std::int64_t count = 0) {
    const Simulation cost = simulate(graph_, plan);
    if (best_.offer(std::move(plan), cost)) {
      formula_peak_ = formula_peak;
      parts_ = count;
    }
    return fits(problem_, cost);
  }

  const Problem& problem_;
  const Options& options_;
  const Graph& graph_;
  const Pairing& pairing_;
  const ForwardGraph& forward_;
  Limits& limits_;
  Table table_;
  Incumbent best_;
  std::int64_t formula_peak_ = 0, parts_ = 0;
};

/// Why a table over so many lower sets is not made.
std::optional<std::string> why_too_large(const ForwardGraph& forward, std::size_t sets) {
  const std::int64_t bytes = table_bytes(forward, static_cast<std::int64_t>(sets), levels_for(sets));
  if (bytes <= kMostBytes) return std::nullopt;
  return "its table over " + std::to_string(sets) + " lower sets would take " + std::to_string(bytes >> 20) +
         " MiB, more than " + std::to_string(kMostBytes >> 20);
}

PlanResult run(const Problem& problem, const Options& options, const PlanOptions&, Limits& limits) {
  const Pairing pairing = *find_pairing(*problem.graph);
  const ForwardGraph forward = canonical::forward_graph(*problem.graph, pairing);
  std::optional<std::vector<Set>> family;
  if (options.family != "pruned") {
    family = all_lower_sets(forward, narrow<std::size_t>(options.max_sets), limits);
    if (!family && options.family == "all" && !limits.stopped_by()) {
      throw UsageError("planner lower_set_dp: the " + std::to_string(forward.size()) +
                       " forward ops have more than " + std::to_string(options.max_sets) +
                       " lower sets (max_sets); family=pruned takes " + std::to_string(forward.size() + 2));
    }
  }
  if (family && options.family == "auto" && why_too_large(forward, family->size())) family.reset();
  if (!family) family = pruned_lower_sets(forward, limits);
  if (const auto reason = why_too_large(forward, family->size()))
    throw UsageError("planner lower_set_dp: " + *reason);
  return Solver(problem, options, pairing, forward, *family, limits).run();
}

}  // namespace

PlannerInfo info() {
  const auto table =
      OptionTable<Options>("lower_set_dp")
          .choice("family", &Options::family, {"auto", "all", "pruned"},
                  "all lower sets (exact), the pruned family, or auto: all if there are at most `max_sets`")
          .choice("centric", &Options::centric, {"time", "memory", "both"},
                  "least recomputation (time), most (memory), or the better plan of both")
          .flag("liveness", &Options::liveness,
                "judge plans by their simulated peak; off: by the peak of the paper's formula")
          .integer("max_sets", &Options::max_sets, 2, 100'000, "lower sets",
                   "maximum number of lower sets for family all");
  return with_options(
      {"lower_set_dp", "dynamic programming over lower sets of the forward graph",
       "least recomputation among canonical strategies, by its own memory formula, where all lower sets "
       "are taken",
       "Kusumoto et al. 2019",
       [](const Problem& problem) -> std::optional<std::string> {
         const auto pairing = find_pairing(*problem.graph);
         if (!pairing) return "the graph has no backward pass that phases name or its structure shows";
         // There are more lower sets than pruned ones: uses all of them only if they are few.
         const ForwardGraph forward = canonical::forward_graph(*problem.graph, *pairing);
         return why_too_large(forward, forward.size() + 2);
       }},
      table, run);
}

}  // namespace remat::lower_set_dp
