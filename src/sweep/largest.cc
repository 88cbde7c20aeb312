#include "remat/largest.h"

#include <algorithm>
#include <bit>
#include <set>

#include "base/numbers.h"
#include "planning/options.h"
#include "remat/bounds.h"
#include "remat/error.h"
#include "remat/keep_all.h"

namespace remat {

Status SizeRow::status() const {
  const auto any = [this](Status status) {
    return std::ranges::any_of(results, [status](const PlanResult& r) { return r.status == status; });
  };
  for (Status status : {Status::kInfeasible, Status::kUnknown, Status::kFeasible}) {
    if (any(status)) return status;
  }
  return Status::kOptimal;
}

Bytes SizeRow::peak() const {
  Bytes highest;
  for (const PlanResult& r : results) highest = std::max(highest, r.cost.peak);
  return highest;
}

Bytes SizeRow::keep_all_peak() const {
  Bytes highest;
  for (const Graph& graph : graphs) highest = std::max(highest, remat::keep_all_peak(graph));
  return highest;
}

Bytes SizeRow::peak_bound() const {
  Bytes highest;
  for (const PlanResult& r : results) highest = std::max(highest, r.peak_bound.peak);
  return highest;
}

Duration SizeRow::duration() const { return results.front().cost.duration; }

double SizeRow::throughput() const { return real(size) / std::max(1.0, real(duration())); }

namespace {

/// Thrown to leave the search when the graph of a size is unknown.
struct MissingSize {
  std::int64_t size;
};

/// Counts in multiples: step k is the size k * multiple.
class Search {
 public:
  Search(const StepsOfSize& steps, Bytes budget, const LargestOptions& options, Limits& limits,
         PlanStore& store)
      : steps_(steps),
        budget_(budget),
        options_(options),
        limits_(limits),
        store_(store),
        least_((options.least + options.multiple - 1) / options.multiple),
        most_(options.most / options.multiple) {}

  LargestResult run() {
    try {
      Limits half(limits_, options_.rows > 0 ? kSearchShare : 1.0);
      search(half);
      if (lo_ >= least_ && options_.rows > 0) fill_table();
    } catch (const MissingSize& missing) {
      result_.missing = missing.size;
    }
    collect();
    if (limits_.reached()) result_.stopped_by = limits_.stopped_by();
    result_.seconds = limits_.seconds();
    return std::move(result_);
  }

 private:
  static constexpr double kSearchShare = 0.5;  // of the time; the rest is for the table
  static constexpr int kRefinements = 3;       // of the size with the best throughput
  static constexpr std::int64_t kNeighbours = 2;
  static constexpr double kAnyGap = 1e9;  // from the fastest

  SizeRow& row(std::int64_t step) {
    const auto known = rows_.find(step);
    if (known != rows_.end()) return known->second;
    SizeRow made{step * options_.multiple, steps_(step * options_.multiple), {}};
    if (made.graphs.empty()) throw MissingSize{made.size};
    return rows_.emplace(step, std::move(made)).first->second;
  }

  bool keeps_all(std::int64_t step) { return row(step).keep_all_peak() <= budget_; }

  /// Bounds and a first plan: milliseconds.
  const SizeRow& glance(std::int64_t step, Limits& limits) {
    SizeRow& looked = row(step);
    if (!looked.results.empty()) return looked;
    for (const Graph& graph : looked.graphs) {
      const Problem problem{&graph, budget_, options_.order};
      const PeakBound bound = best_peak_bound(graph, options_.order);
      PlanResult result;
      result.peak_bound = bound;
      result.order = options_.order;
      if (bound.peak > budget_) {
        result.status = Status::kInfeasible;
        result.stopped_by = StoppedBy::kProof;
      } else if (options_.planner == "auto" || remat::keep_all_peak(graph) <= budget_) {
        result = run_planner(problem, first_planner(problem), limits);
      }
      looked.results.push_back(std::move(result));
    }
    return looked;
  }

  std::string first_planner(const Problem& problem) const {
    const bool has_first = !find_planner("retention").supports(problem);
    return has_first && options_.planner == "auto" ? "retention" : options_.planner;
  }

  /// Uses nested limits, since a plan within the gap ends them.
  PlanResult run_planner(const Problem& problem, const std::string& planner, Limits& all) {
    Limits limits(all, 1.0);
    const bool takes_starts = options_.planner == "auto" || find_planner(planner).improves_starts;
    PlanOptions options = options_.plan;
    if (planner != options_.planner) options.set.clear();
    return takes_starts ? make_plan_from(store_, problem, planner, options, limits)
                        : make_plan(problem, planner, options, limits);
  }

  /// Searches until the limits are reached, or, with `any_plan`, until any plan is within the budget.
  const SizeRow& examine(std::int64_t step, Limits& limits, bool any_plan) {
    glance(step, limits);
    SizeRow& looked = row(step);
    for (std::size_t i = 0; i < looked.graphs.size(); ++i) {
      if (looked.status() == Status::kInfeasible) break;
      const PlanResult& known = looked.results[i];
      if (known.status == Status::kOptimal || (any_plan && has_plan(known))) continue;
      Limits share(limits, 1.0 / real(looked.graphs.size() - i));
      const Problem problem{&looked.graphs[i], budget_, options_.order};
      any_plan ? decide(problem, looked.results[i], share) : improve(problem, looked.results[i], share);
    }
    return looked;
  }

  /// Any plan within the budget; if none is found, the least peak.
  void decide(const Problem& problem, PlanResult& known, Limits& limits) {
    Problem by_peak = problem;
    by_peak.objective = Objective::kPeak;
    const bool has_peak = !find_planner(options_.planner).supports(by_peak);
    Limits first(limits, has_peak ? 0.5 : 1.0);
    first.set_gap(kAnyGap);
    improve(problem, known, first);
    if (!has_peak || has_plan(known) || known.status == Status::kInfeasible || limits.reached()) return;
    PlanResult found = run_planner(by_peak, options_.planner, limits);
    if (found.status == Status::kOptimal)
      found.status = Status::kFeasible;  // the least peak, not the least time
    take(problem, known, std::move(found));
  }

  void improve(const Problem& problem, PlanResult& known, Limits& limits) {
    take(problem, known, run_planner(problem, options_.planner, limits));
  }

  static void take(const Problem& problem, PlanResult& known, PlanResult found) {
    const bool settles = found.status == Status::kInfeasible || found.status == Status::kOptimal;
    if (settles || better(problem, found, known)) known = std::move(found);
  }

  void search(Limits& limits) {
    if (!look_at_least(limits)) return;
    do {
      bracket(limits);
      close_gap(limits);
    } while (neighbour_fits(limits));
    result_.largest = lo_ * options_.multiple;
    const auto above = std::ranges::find_if(rows_, [&](const auto& entry) {
      return entry.first > lo_ && !entry.second.results.empty() &&
             entry.second.status() == Status::kInfeasible;
    });
    if (above != rows_.end()) result_.impossible = above->second.size;
  }

  bool look_at_least(Limits& limits) {
    if (!glance(least_, limits).fits() && !examine(least_, limits, true).fits()) {
      if (row(least_).status() == Status::kInfeasible) result_.impossible = row(least_).size;
      return false;
    }
    lo_ = least_;
    return true;
  }

  /// By first plans: afterwards `lo_` is the largest step known to fit.
  void bracket(Limits& limits) {
    std::int64_t step = 0;
    std::optional<std::int64_t> over;
    if (options_.guess) {
      const std::int64_t guess = std::clamp(*options_.guess / options_.multiple, least_, most_);
      (glance(guess, limits).fits() ? lo_ : over.emplace(guess)) = guess;
      step = 1;
    }
    while (!over && lo_ < most_) {
      const std::int64_t next = std::min(most_, step ? lo_ + step : 2 * lo_);
      if (step) step *= 2;
      (glance(next, limits).fits() ? lo_ : over.emplace(next)) = next;
    }
    while (over && *over - lo_ > 1) {
      const std::int64_t middle = lo_ + (*over - lo_) / 2;
      (glance(middle, limits).fits() ? lo_ : *over) = middle;
    }
  }

  /// The least step above `lo_` proved impossible, assuming that all above are too; `most_ + 1` if none is.
  std::int64_t least_impossible(Limits& limits) {
    const auto refuted = [&](std::int64_t step) {
      return glance(step, limits).status() == Status::kInfeasible;
    };
    std::int64_t open = lo_, stride = 1;
    while (open < most_) {
      const std::int64_t next = std::min(most_, lo_ + stride);
      if (!refuted(next)) {
        open = next;
        stride *= 2;
        continue;
      }
      std::int64_t closed = next;
      while (closed - open > 1) {
        const std::int64_t middle = open + (closed - open) / 2;
        (refuted(middle) ? closed : open) = middle;
      }
      return closed;
    }
    return most_ + 1;
  }

  /// Between the largest that fits and the least that is proved impossible, with searches.
  void close_gap(Limits& limits) {
    std::int64_t over = least_impossible(limits);
    while (over - lo_ > 1 && !limits.reached()) {
      const std::int64_t middle = lo_ + (over - lo_) / 2;
      const int left = 1 + narrow<int>(std::bit_width(narrow<std::uint64_t>(over - lo_ - 1)));
      Limits share(limits, 1.0 / left);
      (examine(middle, share, true).fits() ? lo_ : over) = middle;
    }
    // Retries the next step, which was tried before its neighbours had plans.
    while (lo_ < most_ && !limits.reached() && examine(lo_ + 1, limits, true).fits()) ++lo_;
  }

  /// Checks the neighbours, since peaks need not rise with the size everywhere.
  bool neighbour_fits(Limits& limits) {
    for (std::int64_t next = lo_ + 2; next <= std::min(most_, lo_ + 1 + kNeighbours); ++next) {
      try {
        if (!glance(next, limits).fits()) continue;
      } catch (const MissingSize&) {
        return false;
      }
      lo_ = next;
      return true;
    }
    return false;
  }

  /// The largest that keeps everything.
  std::int64_t last_that_keeps_all() {
    if (!keeps_all(least_)) return least_;
    std::int64_t within = least_, over = lo_ + 1;
    while (over - within > 1) {
      const std::int64_t middle = within + (over - within) / 2;
      (keeps_all(middle) ? within : over) = middle;
    }
    return within;
  }

  void fill_table() {
    const std::int64_t keeps = last_that_keeps_all();
    std::set<std::int64_t> listed{least_, keeps, lo_};
    if (lo_ < most_) listed.insert(lo_ + 1);
    // Most of them where plans recompute.
    const std::int64_t few = std::max(1, options_.rows / 3), many = std::max(1, options_.rows - 2);
    for (std::int64_t i = 1; i < few; ++i) listed.insert(least_ + (keeps - least_) * i / few);
    for (std::int64_t i = 1; i < many; ++i) listed.insert(keeps + (lo_ - keeps) * i / many);
    auto left = listed.size() + kRefinements;
    for (std::int64_t step : listed) list(step, 1.0 / real(left--));
    for (int i = 0; i < kRefinements; ++i) refine(1.0 / real(left--));
  }

  void list(std::int64_t step, double part) {
    Limits share(limits_, part);
    listed_.insert(step);
    const bool was_looked_at = step > lo_ && rows_.contains(step) && !rows_.at(step).results.empty();
    if (!was_looked_at) examine(step, share, false);
  }

  std::optional<std::int64_t> best() const {
    std::optional<std::int64_t> found;
    for (std::int64_t step : listed_) {
      const SizeRow& here = rows_.at(step);
      if (here.fits() && (!found || here.throughput() > rows_.at(*found).throughput())) found = step;
    }
    return found;
  }

  /// Halves the wider of the gaps beside the best size.
  void refine(double part) {
    const auto found = best();
    if (!found) return;
    const auto at_best = listed_.find(*found);
    std::int64_t below = *found, above = *found;
    if (at_best != listed_.begin()) below = *std::prev(at_best);
    if (std::next(at_best) != listed_.end()) above = std::min(lo_, *std::next(at_best));
    const std::int64_t middle =
        *found - below > above - *found ? below + (*found - below) / 2 : *found + (above - *found) / 2;
    if (!listed_.contains(middle)) list(middle, part);
  }

  void collect() {
    if (listed_.empty()) {  // only the answer was requested, or nothing fits
      for (std::int64_t step : {std::max(lo_, least_), lo_ + 1}) {
        if (rows_.contains(step) && !rows_.at(step).results.empty()) listed_.insert(step);
      }
    }
    if (const auto found = best()) result_.best = *found * options_.multiple;
    for (std::int64_t step : listed_) result_.rows.push_back(std::move(rows_.at(step)));
  }

  const StepsOfSize& steps_;
  Bytes budget_;
  const LargestOptions& options_;
  Limits& limits_;
  PlanStore& store_;
  std::int64_t least_, most_;
  std::int64_t lo_ = 0;  ///< the largest step that is known to fit
  std::map<std::int64_t, SizeRow> rows_;
  std::set<std::int64_t> listed_;  ///< what the table shows
  LargestResult result_;
};

void check(const LargestOptions& options) {
  const auto refuse = [](const std::string& what) { throw UsageError(what); };
  if (options.least < 1 || options.most > kMostSize || options.multiple < 1) {
    refuse("sizes and multiples are integers in [1, " + std::to_string(kMostSize) + "]");
  }
  if (options.most / options.multiple * options.multiple < options.least) {
    refuse("no multiple of " + std::to_string(options.multiple) + " is in [" + std::to_string(options.least) +
           ", " + std::to_string(options.most) + "]");
  }
  check_options(find_planner(options.planner), options.plan);
}

}  // namespace

LargestResult find_largest(const StepsOfSize& steps, Bytes budget, const LargestOptions& options,
                           Limits& limits, PlanStore& store) {
  check(options);
  return Search(steps, budget, options, limits, store).run();
}

}  // namespace remat
