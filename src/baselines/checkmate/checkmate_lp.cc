// Checkmate's relaxation and two-phase rounding (Jain et al. 2020, section 5).
#include <algorithm>

#include "baselines/checkmate/stage_support.h"
#include "exact/stage_solve.h"
#include "planning/incumbent.h"
#include "planning/options.h"
#include "remat/planner.h"

namespace remat::checkmate_lp {
namespace {

struct Options {
  double threshold = 0;
  bool shrink = true;
};

constexpr std::int64_t kMostColumns = 400'000;

class Rounding {
 public:
  Rounding(const Problem& problem, const Options& options, Limits& limits)
      : problem_(problem), options_(options), best_(problem, "checkmate_lp", limits) {}

  void relax(Bytes budget, Limits& limits) {
    const Graph& graph = *problem_.graph;
    const StageModel model(
        graph, {.budget = budget, .rows = StageRows::kGraphOrder, .first = {}, .cutoff = std::nullopt});
    lp::Settings settings;
    settings.relax = true;
    const lp::Solution solution = lp::solve(model.model(), settings, limits);
    counters_.emplace_back(budget == problem_.budget ? "lp_duration" : "lp_duration_shrunk",
                           model.duration_of(solution.bound).count());
    if (!solution.x) return;
    for (int tenth = 1; tenth <= 9; ++tenth) {
      const double threshold = options_.threshold > 0 ? options_.threshold : tenth / 10.0;
      offer(model.plan_of(*solution.x, threshold), threshold);
      if (options_.threshold > 0) break;
    }
  }

  PlanResult result() {
    if (best_.empty()) best_.offer(keep_all_plan(*problem_.graph));
    counters_.emplace_back("threshold_percent", threshold_percent_);
    return best_.result(std::move(counters_));
  }

 private:
  void offer(Plan plan, double threshold) {
    if (!best_.offer(std::move(plan))) return;
    threshold_percent_ = static_cast<std::int64_t>(threshold * 100 + 0.5);
  }

  const Problem& problem_;
  const Options& options_;
  Incumbent best_;
  Counters counters_;
  std::int64_t threshold_percent_ = 0;
};

PlanResult run(const Problem& problem, const Options& options, const PlanOptions&, Limits& limits) {
  Rounding rounding(problem, options, limits);
  rounding.relax(problem.budget, limits);
  if (options.shrink && !limits.reached()) {
    const Bytes resident = problem.graph->resident;
    const std::int64_t beyond = (problem.budget - resident).count();
    if (beyond >= 10) rounding.relax(resident + Bytes(beyond - beyond / 10), limits);
  }
  return rounding.result();
}

std::optional<std::string> supports(const Problem& problem) {
  return why_no_stage_model(problem, kMostColumns);
}

}  // namespace

PlannerInfo info() {
  const auto table =
      OptionTable<Options>("checkmate_lp")
          .number("threshold", &Options::threshold, 0, 1, "",
                  "values held at least to this fraction in the relaxation are held; 0: try 0.1 to 0.9")
          .flag("shrink", &Options::shrink,
                "also solve the relaxation with nine tenths of the memory beyond the graph inputs");
  return with_options(
      {"checkmate_lp", "the stage model relaxed (HiGHS), held values rounded, reruns made to fit",
       "none; may miss its budget", "Jain et al. 2020 (Checkmate)", supports},
      table, run);
}

}  // namespace remat::checkmate_lp
