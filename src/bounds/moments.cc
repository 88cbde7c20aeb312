#include "bounds/moments.h"

#include <algorithm>
#include <utility>

#include "base/numbers.h"
#include "bounds/walk.h"
#include "exact/stage_solve.h"
#include "lp/highs.h"

namespace remat {
namespace {

constexpr std::int64_t kMostColumns = 400'000;
constexpr std::int64_t kMostInTurn = 24;
constexpr double kLeastExcess = 1e-3;    ///< of the budget
constexpr std::size_t kMostUseless = 6;  ///< in sequence
constexpr std::size_t kMostUselessSmall = 3;
constexpr std::int64_t kLeastOfGap = 100;  ///< a further moment must close this part of the gap
constexpr std::int64_t kLeastOfStep = 2000;
constexpr std::int64_t kMostWork = 300'000'000;  ///< of one integer program: about half a minute
constexpr std::int64_t kWholeNumbers = 24;       ///< integer programs mostly prove this part more
constexpr std::int64_t kLeastOfSmallGap = 25;    ///< the same if integer programs are quick
constexpr std::int64_t kSmallOps = 220;

}  // namespace

struct Moments::Unsettled {
  Unsettled(const Graph& graph, std::vector<OpId> chosen, const StageSpec& spec, const StageEffort& effort)
      : moments(std::move(chosen)),
        cutoff(spec.cutoff),
        model(graph, spec),
        solver(graph, model, spec, effort) {}

  std::vector<OpId> moments;
  std::optional<Duration> cutoff;
  StageModel model;
  StageSolver solver;
  double seconds = 0;     ///< spent
  std::int64_t work = 0;  ///< spent
};

Moments::Moments(const Graph& graph, Bytes budget) : graph_(graph), budget_(budget) {}
Moments::~Moments() = default;

/// One call: the limits, and what is known by then.
class Moments::Call {
 public:
  Call(Moments& state, std::optional<Duration> known, Limits& limits, DurationBound& best)
      : state_(state), graph_(state.graph_), known_(known), limits_(limits), best_(best) {}

  std::optional<Plan> run() {
    if (too_large({})) return std::nullopt;
    choose();
    solve_programs();
    return std::move(faster_);
  }

 private:
  enum class Trial { kChosen, kOfNoUse, kEnded };

  bool done() const { return limits_.reached() || (known_ && best_.duration >= *known_); }

  /// Moments of the walk, then those at which the relaxation's solution exceeds the budget most. Each is kept
  /// if the bound rises with it.
  void choose() {
    if (!state_.is_walked_) walk();
    while (!state_.is_chosen_ && !done()) {
      const OpId next = next_moment();
      if (!next || state_.useless_.size() >= (is_small() ? kMostUselessSmall : kMostUseless)) {
        state_.is_chosen_ = true;
        return;
      }
      const Trial trial = try_moment(next);
      if (trial == Trial::kEnded) {
        state_.untried_.push_back(next);
        return;
      }
      if (trial == Trial::kOfNoUse) {
        state_.useless_.push_back(next);
      } else {
        state_.useless_.clear();
      }
    }
  }

  void walk() {
    const std::vector<Repair> repairs = repairs_in_turn(graph_, state_.budget_, kMostInTurn, limits_);
    if (!repairs.empty()) raise({"retention", graph_.base_duration + repairs.front().extra});
    for (const Repair& repair : repairs) state_.untried_.push_back(repair.at);
    std::ranges::reverse(state_.untried_);
    state_.is_walked_ = true;
  }

  OpId next_moment() {
    while (!state_.untried_.empty()) {
      const OpId at = state_.untried_.back();
      state_.untried_.pop_back();
      if (!state_.model_ || state_.model_->excess_at(state_.x_, at) > kLeastExcess) return at;
    }
    OpId furthest;
    if (!state_.model_) return furthest;
    double most = kLeastExcess;
    for (OpId op : graph_.ops()) {
      const auto is_in = [&](const std::vector<OpId>& list) {
        return std::ranges::find(list, op) != list.end();
      };
      if (is_in(state_.chosen_) || is_in(state_.useless_)) continue;
      const double excess = state_.model_->excess_at(state_.x_, op);
      if (excess <= most) continue;
      most = excess;
      furthest = op;
    }
    return furthest;
  }

  bool is_small() const { return graph_.ops().size() <= kSmallOps; }

  /// A share of the gap; of the step if no plan is known.
  Duration least_gain() const {
    if (!known_) return Duration(graph_.base_duration.count() / kLeastOfStep);
    const std::int64_t part = is_small() ? kLeastOfSmallGap : kLeastOfGap;
    return Duration((*known_ - best_.duration).count() / part);
  }

  Trial try_moment(OpId at) {
    std::vector<OpId> moments = state_.chosen_;
    moments.push_back(at);
    if (too_large(moments)) return Trial::kOfNoUse;
    // A relaxation that does not finish proves nothing.
    if (limits_.seconds_left().value_or(state_.seconds_) < state_.seconds_ ||
        limits_.work_left().value_or(state_.work_) < state_.work_) {
      return Trial::kEnded;
    }
    Limits part(limits_, 1);
    std::unique_ptr<StageModel> model;
    StageOutcome outcome = relax(std::move(moments), part, model);
    const Duration bound = outcome.bound;
    state_.seconds_ = std::max(state_.seconds_, part.seconds());
    state_.work_ = std::max(state_.work_, part.work());
    std::vector<Duration>& relaxed = state_.relaxed_;
    if (!relaxed.empty() && bound - relaxed.back() <= least_gain())
      return limits_.reached() ? Trial::kEnded : Trial::kOfNoUse;
    state_.chosen_.push_back(at);
    relaxed.push_back(bound);
    if (outcome.relaxed_x) {
      state_.model_ = std::move(model);
      state_.x_ = std::move(*outcome.relaxed_x);
    }
    return Trial::kChosen;
  }

  /// Each further moment multiplies the time of the program, so the first unsettled one is the last.
  void solve_programs() {
    std::vector<OpId>& chosen = state_.chosen_;
    std::size_t& count = state_.program_;
    count = std::max(count, worthwhile());
    for (; count <= chosen.size(); ++count) {
      std::vector<OpId> some(chosen.begin(), chosen.begin() + narrow<std::ptrdiff_t>(count));
      if (done() || !settled(std::move(some))) return;
    }
    while (!done() && !too_large(chosen)) {
      const OpId next = moment_to_repair();
      if (!next) return;
      chosen.push_back(next);
      state_.is_chosen_ = true;  // the bounds of the relaxation from here on are unknown
      if (!settled(chosen)) return;
      ++count;
    }
  }

  /// The least number of moments whose integer program may prove more than all relaxations.
  std::size_t worthwhile() const {
    const auto is_worthwhile = [&](Duration relaxed) {
      const Duration extra = relaxed - graph_.base_duration;
      return relaxed + Duration(extra.count() / kWholeNumbers) > best_.duration;
    };
    const auto first = std::ranges::find_if(state_.relaxed_, is_worthwhile);
    return std::min(state_.chosen_.size(), narrow<std::size_t>(first - state_.relaxed_.begin()) + 1);
  }

  bool too_large(const std::vector<OpId>& moments) const {
    const auto each = static_cast<std::int64_t>(graph_.num_ops() + graph_.num_values());
    return (std::ssize(moments) + 2) * each > kMostColumns;
  }

  /// Continues the interrupted program over these moments; restarts it only if a faster plan is known and the
  /// limits leave as much as it took.
  bool settled(std::vector<OpId> moments) {
    Limits part(limits_, 1);
    part.set_work(std::min(kMostWork, part.work_left().value_or(kMostWork)));
    std::unique_ptr<Unsettled>& program = state_.unsettled_;
    const StageSpec spec = spec_of(moments);
    if (!program || program->moments != moments ||
        (program->cutoff != spec.cutoff && can_restart(*program))) {
      StageEffort effort = effort_for(moments);
      effort.fixing_rounds = 2;
      effort.seconds = limits_.outermost().seconds_left();
      program = std::make_unique<Unsettled>(graph_, std::move(moments), spec, effort);
    }
    const StageOutcome outcome = program->solver.run(part);
    program->seconds += part.seconds();
    program->work += part.work();
    raise({"stage_milp", outcome.bound});
    state_.solution_.reset();
    if (outcome.x) take(program->model.plan_late(*outcome.x));
    if (outcome.settled) program.reset();
    return outcome.settled;
  }

  /// True if the limits leave enough to start the program again.
  bool can_restart(const Unsettled& program) const {
    return limits_.seconds_left().value_or(program.seconds) >= program.seconds &&
           limits_.work_left().value_or(program.work) >= program.work;
  }

  /// The moment at which repairing the last solution, read as a plan, costs most; none if it fits, or if only
  /// chosen moments are over the budget.
  OpId moment_to_repair() const {
    if (!state_.solution_) return OpId::none();
    return dearest_repair(graph_, script_of(*state_.solution_), state_.budget_, state_.chosen_, limits_).at;
  }

  StageSpec spec_of(std::vector<OpId> moments) const {
    std::ranges::sort(moments);
    StageSpec spec{.budget = state_.budget_, .first = {OpId(0)}};
    for (OpId op : moments) spec.first.push_back(op.next());
    if (known_) spec.cutoff = *known_ - Duration(1);
    spec.first_runs = false;
    return spec;
  }

  static StageEffort effort_for(const std::vector<OpId>& moments) {
    StageEffort effort;
    effort.fixing_rounds = 1;
    effort.heuristics = 0;
    effort.strong_branching = false;
    effort.paths = std::ssize(moments) > 1;
    return effort;
  }

  StageOutcome relax(std::vector<OpId> moments, Limits& limits, std::unique_ptr<StageModel>& model) {
    const StageSpec spec = spec_of(moments);
    model = std::make_unique<StageModel>(graph_, spec);
    StageEffort effort = effort_for(moments);
    effort.integer = false;
    StageOutcome outcome = solve_stages(graph_, *model, spec, effort, limits);
    raise({"stage_lp", outcome.bound});
    return outcome;
  }

  void take(Plan plan) {
    const Simulation cost = simulate(graph_, plan);
    if (cost.peak <= state_.budget_ && (!known_ || cost.duration < *known_)) {
      known_ = cost.duration;
      best_.duration = std::min(best_.duration, cost.duration);
      faster_ = plan;
    }
    state_.solution_ = std::move(plan);
  }

  void raise(DurationBound bound) {
    if (bound.duration > best_.duration) best_ = std::move(bound);
    if (known_) best_.duration = std::min(best_.duration, *known_);
  }

  Moments& state_;
  const Graph& graph_;
  std::optional<Duration> known_;
  Limits& limits_;
  DurationBound& best_;
  std::optional<Plan> faster_;  ///< than what was known, within the budget
};

std::optional<Plan> Moments::raise(std::optional<Duration> known, Limits& limits, DurationBound& best) {
  if (lp::unavailable()) return std::nullopt;
  return Call(*this, known, limits, best).run();
}

}  // namespace remat
