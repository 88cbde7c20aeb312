#include "bounds/moments.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/numbers.h"
#include "bounds/walk.h"
#include "exact/stage_solve.h"

namespace remat {
namespace {

constexpr std::int64_t kMostColumns = 400'000;
constexpr std::int64_t kMostInTurn = 24;
constexpr std::int64_t kLessBudget = 32;         ///< this part less, for moments that are nearly as dear
constexpr std::int64_t kLeastGain = 2000;        ///< this part of the step, for one moment more
constexpr std::int64_t kLeastOfGap = 20;         ///< or this part of what is missing
constexpr std::int64_t kMostWork = 300'000'000;  ///< of one integer program: half a minute
constexpr std::int64_t kWholeNumbers = 16;       ///< this part more than the relaxation, mostly
constexpr int kMostWalks = 4;
constexpr std::int64_t kSmallOps = 220;  ///< larger graphs: integer programs take long and prove little more
constexpr double kChoosing = 0.4;        ///< of the limits
constexpr double kChoosingLarge = 0.9;

class Moments {
 public:
  Moments(const Graph& graph, Bytes budget, std::optional<Duration> known, Limits& limits,
          DurationBound& best)
      : graph_(graph), budget_(budget), known_(known), limits_(limits), best_(best) {}

  std::optional<Plan> run() {
    if (!too_large({})) {
      choose();
      solve_programs();
    }
    return std::move(faster_);
  }

 private:
  void solve_programs() {
    // Each moment more makes the program dearer by a multiple: what was not settled was the last.
    for (std::size_t count = worthwhile(); count <= chosen_.size() && !done(limits_); ++count) {
      std::vector<OpId> some(chosen_.begin(), chosen_.begin() + narrow<std::ptrdiff_t>(count));
      if (!settled(std::move(some))) return;
    }
    while (!done(limits_) && !too_large(chosen_)) {
      const OpId next = forgotten();
      if (!next) return;
      chosen_.push_back(next);
      if (!settled(chosen_)) return;
    }
  }

  /// The least number of moments whose whole numbers may prove more than all relaxations did.
  std::size_t worthwhile() const {
    const auto is_worthwhile = [&](Duration relaxed) {
      const Duration extra = relaxed - graph_.base_duration;
      return relaxed + Duration(extra.count() / kWholeNumbers) > best_.duration;
    };
    const auto first = std::ranges::find_if(relaxed_, is_worthwhile);
    return std::min(chosen_.size(), narrow<std::size_t>(first - relaxed_.begin()) + 1);
  }

  bool done(Limits& limits) const { return limits.reached() || (known_ && best_.duration >= *known_); }

  /// Those of a walk, each where it proves more beside those before it; then the others again, which may be
  /// worth something beside those after them. Walks within a little less find further ones.
  void choose() {
    Limits part(limits_, is_large() ? kChoosingLarge : kChoosing);
    std::vector<OpId> tried;
    Bytes budget = budget_;
    for (int walk = 0; walk < kMostWalks && !done(part); ++walk) {
      std::vector<OpId> rest;
      for (OpId at : in_turn(budget, part)) {
        if (std::ranges::find(tried, at) == tried.end()) rest.push_back(at);
      }
      tried.insert(tried.end(), rest.begin(), rest.end());
      while (std::erase_if(rest, [&](OpId at) { return adds(at, part); }) > 0) {
      }
      budget = budget - Bytes(budget.count() / kLessBudget);
    }
  }

  bool is_large() const { return graph_.ops().size() > kSmallOps; }

  /// Where all else is left as it is, a repair that costs little is hardly worth a moment.
  std::vector<OpId> in_turn(Bytes budget, Limits& limits) {
    const std::vector<Repair> repairs = repairs_in_turn(graph_, budget, kMostInTurn, limits);
    if (budget == budget_ && !repairs.empty())
      raise({"retention", graph_.base_duration + repairs.front().extra});
    std::vector<OpId> result;
    for (const Repair& repair : repairs) {
      if (repair.extra > least_gain()) result.push_back(repair.at);
    }
    return result;
  }

  /// Where little is missing, less is worth a moment.
  Duration least_gain() const {
    std::int64_t worth = graph_.base_duration.count() / kLeastGain;
    if (known_) worth = std::min(worth, (*known_ - best_.duration).count() / kLeastOfGap);
    return Duration(worth);
  }

  bool adds(OpId at, Limits& limits) {
    std::vector<OpId> moments = chosen_;
    moments.push_back(at);
    if (done(limits) || too_large(moments)) return false;
    const Duration bound = solve(std::move(moments), false, limits).bound;
    if (!chosen_.empty() && bound - reached_ <= least_gain()) return false;
    reached_ = bound;
    chosen_.push_back(at);
    relaxed_.push_back(bound);
    return true;
  }

  bool too_large(const std::vector<OpId>& moments) const {
    const auto each = static_cast<std::int64_t>(graph_.num_ops() + graph_.num_values());
    return (std::ssize(moments) + 2) * each > kMostColumns;
  }

  bool settled(std::vector<OpId> moments) {
    Limits part(limits_, 1);
    part.set_work(std::min(kMostWork, part.work_left().value_or(kMostWork)));
    return solve(std::move(moments), true, part).settled;
  }

  /// The moment at which the last solution, as a plan, is dearest to repair; none where it fits, or only
  /// moments that were chosen are over the budget.
  OpId forgotten() const {
    return solution_ ? dearest_repair(graph_, script_of(*solution_), budget_, chosen_, limits_).at
                     : OpId::none();
  }

  StageOutcome solve(std::vector<OpId> moments, bool integer, Limits& limits) {
    std::ranges::sort(moments);
    StageSpec spec{.budget = budget_, .first = {OpId(0)}};
    for (OpId op : moments) spec.first.push_back(op.next());
    if (known_) spec.cutoff = *known_ - Duration(1);
    spec.first_runs = false;
    const StageModel model(graph_, spec);
    StageEffort effort;
    effort.integer = integer;
    effort.fixing_rounds = integer ? 2 : 1;
    effort.heuristics = 0;
    effort.strong_branching = false;
    effort.paths = std::ssize(moments) > 1;
    StageOutcome outcome = solve_stages(graph_, model, spec, effort, limits);
    raise({integer ? "stage_milp" : "stage_lp", outcome.bound});
    if (integer) {
      solution_.reset();
      if (outcome.x) take(model.plan_late(*outcome.x));
    }
    return outcome;
  }

  void take(Plan plan) {
    const Simulation cost = simulate(graph_, plan);
    if (cost.peak <= budget_ && (!known_ || cost.duration < *known_)) {
      known_ = cost.duration;
      best_.duration = std::min(best_.duration, cost.duration);
      faster_ = plan;
    }
    solution_ = std::move(plan);
  }

  void raise(DurationBound bound) {
    if (bound.duration > best_.duration) best_ = std::move(bound);
    if (known_) best_.duration = std::min(best_.duration, *known_);
  }

  const Graph& graph_;
  Bytes budget_;
  std::optional<Duration> known_;
  Limits& limits_;
  DurationBound& best_;
  std::vector<OpId> chosen_;
  std::optional<Plan> faster_;     ///< than what was known, within the budget
  std::optional<Plan> solution_;   ///< what the last integer program found, over the budget elsewhere
  std::vector<Duration> relaxed_;  ///< what the relaxation proves over the first, the first two, ... of them
  Duration reached_;               ///< what the relaxation over the chosen ones proves
};

}  // namespace

std::optional<Plan> raise_by_moments(const Graph& graph, Bytes budget, std::optional<Duration> known,
                                     Limits& limits, DurationBound& best) {
  return Moments(graph, budget, known, limits, best).run();
}

}  // namespace remat
