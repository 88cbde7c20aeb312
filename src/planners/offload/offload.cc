#include "planners/offload/offload.h"

#include <algorithm>
#include <tuple>

#include "base/numbers.h"
#include "bounds/host.h"
#include "exact/offload_moment.h"
#include "exact/retention_cut.h"
#include "planners/offload/copy_schedule.h"
#include "planning/incumbent.h"
#include "polish/polish.h"
#include "remat/random.h"

namespace remat::offload {
namespace {

/// What happens to every op and value that is wanted after the moment; what is neither is kept.
struct Choice {
  OpId at;  ///< the moment; earlier ops may run again after it
  IndexVector<OpId, bool> rerun;
  IndexVector<ValueId, bool> on_host;
};

/// A choice, the plan that it makes, and what that costs.
struct Candidate {
  Choice choice;
  Plan plan;
  Simulation cost;
};

class Offload {
 public:
  Offload(const Problem& problem, const PlanOptions& options, Limits& limits)
      : problem_(problem),
        graph_(*problem.graph),
        host_(*problem.host),
        limits_(limits),
        random_(options.seed),
        best_(problem, "offload", limits) {}

  PlanResult run() {
    best_.offer(keep_all_plan(graph_));
    find_first();
    if (!current_.plan.steps.empty()) improve();
    return best_.result(
        {{"relaxations", relaxations_}, {"evaluations", evaluations_}, {"accepted", accepted_}});
  }

 private:
  static constexpr int kMostRelaxations = 8;

  Candidate evaluated(Choice choice) {
    Candidate candidate;
    Plan steps =
        polish::without_unread_steps(graph_, plan_of(graph_, {choice.at, choice.rerun, Duration(), Bytes()}));
    candidate.plan = with_copies(graph_, steps, choice.on_host, problem_.budget, host_);
    candidate.cost = simulate(graph_, candidate.plan, &host_);
    candidate.choice = std::move(choice);
    ++evaluations_;
    limits_.spend(1 + std::ssize(candidate.plan.steps) / 64);
    return candidate;
  }

  /// Bytes over the budgets of device and host first, then time.
  std::tuple<Bytes, Duration, Bytes> rank(const Candidate& one) const {
    const Bytes over = std::max(Bytes(), one.cost.peak - problem_.budget);
    const Bytes host = host_.budget ? std::max(Bytes(), one.cost.traffic.host_peak - *host_.budget) : Bytes();
    return {over + host, one.cost.duration, one.cost.traffic.out};
  }

  bool take_if_better(Candidate candidate) {
    const bool better = current_.plan.steps.empty() || rank(candidate) < rank(current_);
    const bool as_good = !better && rank(candidate) == rank(current_);
    if (better) best_.offer(candidate.plan, candidate.cost);
    if (better || as_good) current_ = std::move(candidate);
    return better;
  }

  static bool is_most(double share, double a, double b) { return share >= a && share >= b; }

  /// Each value and op by its largest share.
  Choice rounded(OpId at, const OffloadMoment& moment) const {
    Choice choice{at, IndexVector<OpId, bool>(graph_.num_ops(), false),
                  IndexVector<ValueId, bool>(graph_.num_values(), false)};
    for (OpId op : graph_.ops()) choice.rerun[op] = moment.rerun[op] > 0.5;
    for (ValueId v : graph_.values()) {
      if (graph_.is_graph_input(v) || choice.rerun[graph_.producer[v]]) continue;
      const double again = moment.rerun[graph_.producer[v]];
      choice.on_host[v] = moment.on_host[v] > 0.01 && is_most(moment.on_host[v], moment.kept[v], again);
    }
    return choice;
  }

  /// The best start from some moments; the others only where there is time for more than one.
  void find_first() {
    constexpr int kMostMoments = 6;
    constexpr double kShare = 0.3;
    Candidate best;
    Limits part(limits_, kShare);
    for (OpId at : scarce_moments(graph_, problem_.budget, kMostMoments)) {
      if (!best.plan.steps.empty() && part.reached()) break;
      current_ = {};
      find_at(at);
      if (current_.plan.steps.empty()) continue;
      relieve();
      if (best.plan.steps.empty() || rank(current_) < rank(best)) best = std::move(current_);
      if (is_optimal()) break;
    }
    current_ = std::move(best);
  }

  /// The relaxation at the budget, and where its rounding does not fit, at smaller ones.
  void find_at(OpId at) {
    Bytes room = problem_.budget;
    for (int i = 0; i < kMostRelaxations && !limits_.reached(); ++i) {
      const OffloadMoment moment = solve_offload(graph_, at, room, host_, limits_);
      ++relaxations_;
      if (!moment.has_choice) return;
      Candidate candidate = evaluated(rounded(at, moment));
      const Bytes over = std::max(Bytes(), candidate.cost.peak - problem_.budget);
      take_if_better(std::move(candidate));
      if (over == Bytes()) return;
      room -= std::max(over, Bytes(room.count() / 64));
      if (room <= Bytes()) return;
    }
  }

  /// Where the plan is over the budget at other moments: there the values that are needed last go to the
  /// host, one by one, as long as that brings the plan nearer to the budget.
  void relieve() {
    IndexVector<ValueId, bool> tried(graph_.num_values(), false);
    while (current_.cost.peak > problem_.budget && !limits_.reached()) {
      const ValueId v = needed_last(current_.plan, current_.cost.peak_step, tried);
      if (!v) return;
      tried[v] = true;
      Choice choice = current_.choice;
      choice.on_host[v] = true;
      choice.rerun[graph_.producer[v]] = false;
      take_if_better(evaluated(std::move(choice)));
    }
  }

  /// Of what is alive at a step and not used by it, and is neither copied nor tried: the value whose instance
  /// is held longest after it.
  ValueId needed_last(const Plan& plan, StepId step, const IndexVector<ValueId, bool>& tried) const {
    const OpId op = plan.steps[step];
    const auto uses = [&](ValueId v) {
      return std::ranges::binary_search(graph_.inputs[op], v) || graph_.producer[v] == op;
    };
    InstanceLife best;
    for (const InstanceLife& life : instance_lives(graph_, plan)) {
      if (life.first > step || step >= life.end || uses(life.value) || tried[life.value]) continue;
      if (graph_.bytes[life.value] == Bytes() || !graph_.copyable[life.value]) continue;
      if (best.end.is_none() || life.end > best.end) best = life;
    }
    return best.value;
  }

  /// Changes one to three choices at a time. In rounds, each from the best so far: what is no worse is taken,
  /// and at the beginning of a round also what is a little slower.
  void improve() {
    constexpr std::int64_t kRound = 1000;
    constexpr double kSlower = 0.003;  // of the base duration, falling to nothing over a round
    collect();
    if (values_.empty()) return;
    Candidate best = current_;
    for (std::int64_t i = 0; !limits_.reached() && !is_optimal(); ++i) {
      if (i % kRound == 0 && rank(best) < rank(current_)) current_ = best;
      Choice choice = current_.choice;
      const std::int64_t changes = 1 + random_.below(3);
      for (std::int64_t k = 0; k < changes; ++k) change(choice);
      Candidate next = evaluated(std::move(choice));
      const double left = 1 - real(i % kRound) / kRound;
      const auto slower = static_cast<std::int64_t>(kSlower * left * left * real(graph_.base_duration));
      auto allowed = rank(current_);
      std::get<Duration>(allowed) += Duration(slower);
      if (rank(next) > allowed) continue;
      current_ = std::move(next);
      if (rank(current_) >= rank(best)) continue;
      best = current_;
      best_.offer(best.plan, best.cost);
      ++accepted_;
    }
  }

  bool is_optimal() const {
    const Duration least = problem_.duration_bound ? problem_.duration_bound->duration : graph_.base_duration;
    return best_.fits() && best_.cost().duration <= least;
  }

  /// Values with a gap between two uses.
  void collect() {
    for (ValueId v : graph_.values()) {
      const OpId maker = graph_.producer[v];
      const auto readers = graph_.readers[v];
      if (!maker || graph_.bytes[v] == Bytes()) continue;
      const bool has_gap = graph_.kept[v] || (!readers.empty() && readers.back() > maker.next());
      if (has_gap) values_.push_back(v);
    }
  }

  /// Another of keep, make again and copy for a random value; its op's other outputs follow where it runs.
  void change(Choice& choice) {
    const ValueId v = values_[at(random_.below(std::ssize(values_)))];
    const OpId maker = graph_.producer[v];
    const bool was_rerun = choice.rerun[maker], was_copied = choice.on_host[v];
    const bool may_rerun = graph_.recomputable[maker] && maker < choice.at;
    choice.rerun[maker] = false;
    choice.on_host[v] = false;
    const bool to_copy =
        graph_.copyable[v] &&
        (was_rerun ? random_.chance(0.5) : !was_copied && (!may_rerun || random_.chance(0.5)));
    if (to_copy) {
      choice.on_host[v] = true;
    } else if (!was_rerun && may_rerun && (!was_copied || random_.chance(0.5))) {
      choice.rerun[maker] = true;
    }
  }

  const Problem& problem_;
  const Graph& graph_;
  const Host& host_;
  Limits& limits_;
  Random random_;
  Incumbent best_;
  Candidate current_;
  std::vector<ValueId> values_;
  std::int64_t relaxations_ = 0, evaluations_ = 0, accepted_ = 0;
};

}  // namespace

PlanResult plan_with_host(const Problem& problem, const PlanOptions& options, Limits& limits) {
  return Offload(problem, options, limits).run();
}

}  // namespace remat::offload
