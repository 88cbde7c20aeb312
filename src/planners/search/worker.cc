#include "planners/search/worker.h"

#include <algorithm>

namespace remat::search {
namespace {

constexpr double kPeakShare = 0.7;  // objective peak: of time and work; the rest makes that peak faster
constexpr double kCooling = 8;      // every cycle cools at least by this factor

}  // namespace

Worker::Worker(const Problem& problem, const TrackerGraph& graph, const Options& options,
               const Starts& starts, Pool& pool, std::uint64_t seed)
    : problem_(&problem),
      graph_(&graph),
      options_(options),
      starts_(&starts),
      pool_(&pool),
      random_(seed ^ 0x5deece66dULL),
      annealer_(graph, problem.order, options, seed) {}

void Worker::run(Limits& limits) {
  if (problem_->objective == Objective::kPeak) {
    search_peak(limits);
  } else {
    annealer_.set_budget(problem_->budget);
    search_time(limits);
  }
}

bool Worker::finished(Limits& limits) const {
  if (limits.reached() || annealer_.idle()) return true;
  const auto best = pool_->best();
  return best && best->duration == graph_->graph->base_duration.count();
}

void Worker::publish() {
  if (annealer_.best()) pool_->offer(*annealer_.best(), true);
  if (annealer_.closest()) pool_->offer(*annealer_.closest(), false);
}

/// A plan that is not the best one: keep-all, or one that needs less memory where the budget asks for it.
const Plan& Worker::fresh_start() {
  const auto& low = starts_->constructive;
  if (low.empty() || random_.chance(0.5)) return starts_->keep_all;
  return low[static_cast<std::size_t>(random_.below(std::ssize(low)))];
}

double Worker::begin_cycle(int cycle) {
  if (cycle == 0) {
    for (const Plan& plan : starts_->known) annealer_.begin(plan);
    for (const Plan& plan : starts_->constructive) annealer_.begin(plan);
    publish();
    if (starts_->constructive.empty() || (!annealer_.best() && random_.chance(0.5))) {
      annealer_.begin(starts_->keep_all);
      return options_.hot;
    }
  }
  const auto from = pool_->any();
  if (!from || (options_.restart && random_.chance(0.5))) {
    annealer_.begin(fresh_start());
    return options_.hot * hotter();
  }
  annealer_.begin(from->plan);
  return options_.hot * options_.reheat * hotter();
}

/// Which temperature suits differs by a factor of a hundred between graphs, orders and budgets: cycles draw
/// from 1/8, 1/4, ..., 16, the first of all takes `hot` itself.
double Worker::hotter() {
  return options_.mix ? static_cast<double>(std::int64_t{1} << random_.below(8)) / 8 : 1.0;
}

void Worker::search_time(Limits& limits) {
  double moves = static_cast<double>(options_.cycle) * static_cast<double>(graph_->graph->num_ops());
  for (int cycle = 0; cycle == 0 || !finished(limits); ++cycle) {
    const double hot = begin_cycle(cycle);
    annealer_.cycle(static_cast<std::int64_t>(moves), hot, std::min(options_.cold, hot / kCooling), limits);
    publish();
    moves *= options_.growth;
  }
}

void Worker::search_peak(Limits& limits) {
  Limits first(limits, kPeakShare);
  annealer_.set_budget(Bytes(kMaxCount - 1));
  annealer_.chase_peak(true);
  double moves = static_cast<double>(options_.cycle) * static_cast<double>(graph_->graph->num_ops());
  annealer_.begin(starts_->keep_all);
  for (const Plan& plan : starts_->known) annealer_.begin(plan);
  for (const Plan& plan : starts_->constructive) annealer_.begin(plan);
  do {
    if (const auto best = pool_->best()) annealer_.begin(best->plan);
    annealer_.cycle(static_cast<std::int64_t>(moves), options_.hot, options_.cold, first);
    publish();
    moves *= options_.growth;
  } while (!first.reached() && !annealer_.idle());
  // The least duration at that peak.
  const auto best = pool_->best();
  if (!best) return;
  annealer_.chase_peak(false);
  annealer_.set_budget(graph_->graph->resident + Bytes(best->peak * graph_->unit));
  while (!limits.reached() && !annealer_.idle()) {
    annealer_.begin(pool_->best()->plan);
    annealer_.cycle(static_cast<std::int64_t>(moves), options_.hot * options_.reheat, options_.cold, limits);
    publish();
    moves *= options_.growth;
  }
}

}  // namespace remat::search
