#include "planners/search/worker.h"

#include <algorithm>

#include "base/numbers.h"

namespace remat::search {
Worker::Worker(const Problem& problem, const StepModel& graph, const Options& options, const Starts& starts,
               Pool& pool, std::uint64_t seed)
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
  if (const auto& found = annealer_.best()) {
    auto& held = best_[at(line_)];
    if (!held || found->duration < held->duration) held = found;
    pool_->offer(*found, true);
  }
  if (annealer_.closest()) pool_->offer(*annealer_.closest(), false);
}

/// The plan that a line begins from: a given one, a constructed one, or keep-all.
const Plan& Worker::start_of(Line line) {
  if (line == Line::kKeepAll) return starts_->keep_all;
  const auto& plans = line == Line::kGiven ? starts_->known : starts_->constructive;
  return plans[narrow<std::size_t>(random_.below(std::ssize(plans)))];
}

/// Given and constructed plans are good at once, but the best results may descend from others: all lines
/// continue, the best one more often.
Worker::Line Worker::draw_line(int cycle) {
  std::vector<Line> lines;
  if (!starts_->known.empty()) lines.push_back(Line::kGiven);
  if (!starts_->constructive.empty()) lines.push_back(Line::kMade);
  lines.push_back(Line::kKeepAll);
  if (cycle < std::ssize(lines)) return lines[at(cycle)];
  const auto worse = [&](Line a, Line b) {
    const auto& first = best_[at(a)];
    const auto& second = best_[at(b)];
    return second && (!first || second->duration < first->duration);
  };
  const auto leader = std::ranges::max_element(lines, worse);
  if (lines.size() == 1 || random_.chance(options_.lead)) return *leader;
  lines.erase(leader);
  return lines[at(random_.below(std::ssize(lines)))];
}

/// The best plan of the line so far; that of all threads if the line leads, or if no line has a plan yet.
std::optional<Found> Worker::best_of(Line line) const {
  const auto& own = best_[at(line)];
  for (const auto& other : best_) {
    if (other && (!own || other->duration < own->duration)) return own;
  }
  return pool_->any();
}

void Worker::look_at(Line line, const std::vector<Plan>& plans) {
  line_ = line;
  annealer_.forget();
  for (const Plan& plan : plans) annealer_.begin(plan);
  publish();
}

double Worker::begin_cycle(int cycle) {
  const Line line = line_ = draw_line(cycle);
  annealer_.forget();
  if (cycle == 0) {
    look_at(Line::kGiven, starts_->known);
    look_at(Line::kMade, starts_->constructive);
    line_ = line;
    // Plans within the budget give no price of a byte.
    annealer_.begin(starts_->keep_all);
  }
  const auto from = best_of(line);
  if (!from || (cycle > 0 && restarts())) {
    annealer_.begin(start_of(line));
    return options_.hot * hotter();
  }
  annealer_.begin(from->plan);
  return options_.hot * options_.reheat * hotter();
}

/// The best temperature differs by a factor of a hundred between graphs, orders and budgets: cycles draw a
/// factor from 1/8, 1/4, ..., 16; the first takes `hot` itself.
double Worker::hotter() { return options_.mix ? real(std::int64_t{1} << random_.below(8)) / 8 : 1.0; }

/// Free order: with few recomputations, orders of less memory are found at temperatures that leave the
/// recomputations as they are.
double Worker::cooler() const {
  constexpr double kMany = 100;
  if (!reorders()) return 1;
  const auto best = pool_->best();
  if (!best) return 1;
  const double again = real(best->duration - graph_->graph->base_duration.count());
  return std::clamp(again / (kMany * annealer_.mean_recomputation()), options_.coolest, 1.0);
}

/// In free order, plans differ by less than the final temperature of a cycle accepts.
double Worker::draw_cold(double cold) {
  return reorders() && options_.mix && random_.chance(0.5) ? cold / 10 : cold;
}

bool Worker::restarts() {
  const double share = reorders() ? options_.restarts / 2 : options_.restarts;
  return options_.restart && random_.chance(share);
}

void Worker::search_time(Limits& limits) {
  double moves = real(options_.cycle) * real(graph_->graph->num_ops());
  for (int cycle = 0; cycle == 0 || !finished(limits); ++cycle) {
    const double begin = begin_cycle(cycle), cool = cooler();
    const double hot = cool * begin;
    const double cold = std::min(draw_cold(cool * options_.cold), hot / options_.cooling);
    annealer_.cycle(static_cast<std::int64_t>(moves), hot, cold, limits);
    publish();
    moves *= options_.growth;
  }
}

void Worker::search_peak(Limits& limits) {
  Limits first(limits, options_.peak_share);
  annealer_.set_budget(Bytes(kMaxCount - 1));
  annealer_.chase_peak(true);
  double moves = real(options_.cycle) * real(graph_->graph->num_ops());
  annealer_.begin(starts_->keep_all);
  for (const Plan& plan : starts_->known) annealer_.begin(plan);
  for (const Plan& plan : starts_->constructive) annealer_.begin(plan);
  constexpr int kCyclesToSettle = 2;
  int cycle = 0;
  do {
    // A second descent often ends lower than a long search from the first.
    if (options_.restart && ++cycle > kCyclesToSettle && random_.chance(options_.restarts)) {
      annealer_.begin(starts_->keep_all);
    } else if (const auto best = pool_->best()) {
      annealer_.begin(best->plan);
    }
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
