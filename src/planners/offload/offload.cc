#include "planners/offload/offload.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "base/numbers.h"
#include "base/portable_math.h"
#include "bounds/host.h"
#include "exact/relief.h"
#include "exact/retention_cut.h"
#include "plan/copies.h"
#include "planners/offload/channel_prices.h"
#include "planners/offload/fetch_graph.h"
#include "planners/offload/moves.h"
#include "planners/offload/timetable.h"
#include "planners/offload/worth_copying.h"
#include "planning/incumbent.h"
#include "remat/random.h"

namespace remat::offload {
namespace {

using Chosen = IndexVector<ValueId, bool>;

/// A script, and what its plan costs.
struct Candidate {
  Script script;
  Simulation cost;
};

class Offload {
 public:
  Offload(const Problem& problem, const PlanOptions& options, Limits& limits)
      : problem_(problem),
        graph_(*problem.graph),
        host_(*problem.host),
        seed_(options.seed),
        limits_(limits),
        random_(options.seed),
        clock_(graph_, host_),
        timetable_(graph_, problem.budget, host_),
        moves_(graph_, random_),
        prices_(graph_, host_),
        best_(problem, "offload", limits) {}

  PlanResult run() {
    take(evaluated(script_of(keep_all_plan(graph_))));
    start_from_worth();
    start_from_prices();
    start_from_reruns();
    search();
    return best_.result(
        {{"joint_choices", joint_choices_}, {"evaluations", evaluations_}, {"accepted", accepted_}});
  }

 private:
  Candidate evaluated(const Script& script) {
    Candidate candidate{without_unread(graph_, script), {}};
    candidate.cost = timetable_.evaluate(candidate.script);
    ++evaluations_;
    limits_.spend(1 + std::ssize(candidate.script) / 64);
    return candidate;
  }

  /// Ranks by bytes over the budgets of device and host first, then by time.
  std::tuple<Bytes, Duration, Bytes> rank(const Candidate& one) const {
    return {over(one), one.cost.duration, one.cost.traffic.out};
  }
  Bytes over(const Candidate& one) const {
    const Bytes host = host_.budget ? std::max(Bytes(), one.cost.traffic.host_peak - *host_.budget) : Bytes();
    return std::max(Bytes(), one.cost.peak - problem_.budget) + host;
  }

  /// Keeps the best candidate, with its plan confirmed by the reference simulator.
  bool take(Candidate candidate) {
    if (!current_best_.script.empty() && rank(candidate) >= rank(current_best_)) return false;
    timetable_.evaluate(candidate.script);
    Plan plan = timetable_.plan();
    const Simulation cost = simulate(graph_, plan, &host_);
    best_.offer(std::move(plan), cost);
    current_best_ = std::move(candidate);
    return true;
  }

  bool is_optimal() const {
    const Duration least = problem_.duration_bound ? problem_.duration_bound->duration : graph_.base_duration;
    return best_.fits() && best_.cost().duration <= least;
  }
  bool is_over() { return is_optimal() || limits_.reached(); }

  std::optional<Plan> plan_without_host(const Graph& graph, const char* planner, std::span<const Plan> starts,
                                        std::uint64_t round, Limits& limits) const {
    Problem inner{.graph = &graph, .budget = problem_.budget};
    const PeakBound peak_bound = host_peak_bound(graph);
    const DurationBound duration_bound{"base", graph.base_duration};
    inner.peak_bound = &peak_bound;
    inner.duration_bound = &duration_bound;
    inner.starts = starts;
    return make_plan(inner, planner, {.seed = seed_ + round, .threads = 1, .set = {}}, limits).plan;
  }

  /// For a fixed set of values that may be fetched, `retention` chooses fetches and reruns at several prices
  /// of a fetch (near 1 if the channels are the bottleneck).
  void recompute_around(const Chosen& may_be_fetched, Limits& limits) {
    for (double price : {0.2, 0.05, 1.0, 0.5, 0.01}) {
      if (limits.reached() || is_optimal()) return;
      const FetchGraph around(graph_, may_be_fetched, host_, price);
      const std::optional<Plan> plan = plan_without_host(around.graph(), "retention", {}, 0, limits);
      if (!plan) return;
      take(evaluated(around.script_of(*plan)));
    }
  }

  /// Starts without a linear program; the last one copies and recomputes nothing.
  void start_from_worth() {
    constexpr double kMostTime = 0.2;
    const OpId dearest(simulate(graph_, keep_all_plan(graph_)).peak_step.index());
    Limits part(limits_, kMostTime);
    for (double share : {0.9, 0.6, 1.2}) recompute_around(worth_copying(graph_, dearest, host_, share), part);
    recompute_around(Chosen(graph_.num_values(), true), part);
  }

  /// Updates the prices of the channels by the stalls at the last prices; the choice at each is a start.
  void start_from_prices() {
    constexpr int kRounds = 100;
    constexpr double kMostTime = 0.35, kLearning = 0.5, kPace = 0.3, kSlower = 0.1;
    if (!prices_.any() || is_over()) return;
    Limits part(limits_, kMostTime);
    Limits learning(part, kLearning);
    ChannelPrices now = prices_;
    for (int round = 0; round < kRounds && !learning.reached() && !is_optimal(); ++round) {
      try_prices(now, problem_.budget, learning);
      now.learn(timetable_.stalls(), kPace / std::sqrt(1 + kSlower * round));
    }
    search_prices(part);
    polish(limits_);
  }

  /// Removes useless reruns and fetches from the best script, and replaces reruns by fetches if better.
  void polish(Limits& limits) {
    constexpr double kMostTime = 0.2;
    if (current_best_.script == polished_) return;
    Limits part(limits, kMostTime);
    take(without_extras(current_best_, part));
    take_with_fetches(current_best_, part);
    polished_ = current_best_.script;
  }

  /// Tries to remove each rerun and fetch, the longest first.
  Candidate without_extras(Candidate one, Limits& limits) {
    for (bool again = true; again;) {
      again = false;
      for (int i : extras_by_time(one.script)) {
        if (limits.reached()) return one;
        Script less = one.script;
        less.erase(less.begin() + i);
        Candidate next = evaluated(less);
        if (energy(next) >= energy(one)) continue;
        one = std::move(next);
        again = true;
        break;
      }
    }
    return one;
  }

  std::vector<int> extras_by_time(const Script& script) const {
    std::vector<int> extras;
    std::vector<Wide> time(script.size());
    IndexVector<OpId, bool> has_run(graph_.num_ops(), false);
    for (int i : indices(script)) {
      const Item& item = script[at(i)];
      if (!item.op || has_run[item.op]) extras.push_back(i);
      if (item.op) has_run[item.op] = true;
      time[at(i)] =
          item.op ? graph_.duration[item.op].count() : clock_.time(Way::kIn, graph_.bytes[item.fetched]);
    }
    std::ranges::stable_sort(extras, std::greater(), [&](int i) { return time[at(i)]; });
    return extras;
  }

  /// Copies in flight take memory that the choice does not count; less room leaves some for them.
  void search_prices(Limits& limits) {
    constexpr double kLessRoom = 0.3, kMostLess = 0.1;
    while (prices_.any() && !limits.reached() && !is_optimal()) {
      ChannelPrices next = prices_;
      next.shake(random_);
      const double less = random_.chance(kLessRoom) ? kMostLess * random_.unit() : 0;
      try_prices(next, Bytes(static_cast<std::int64_t>((1 - less) * real(problem_.budget))), limits);
    }
  }

  /// The timetable then holds the script chosen at these prices.
  void try_prices(const ChannelPrices& prices, Bytes room, Limits& limits) {
    ++joint_choices_;
    Script choice = script_of(keep_all_plan(graph_));
    const FetchPrices per_fetch = prices.fetch_prices();
    relieve(graph_, choice, room, &per_fetch, limits, ReliefEffort::kFull, [&](const Script& script, Bytes) {
      choice = script;
      return true;
    });
    Candidate found = evaluated(choice);
    if (const double worth = energy(found); worth <= least_energy_) {
      least_energy_ = worth;
      prices_ = prices;
    }
    take(std::move(found));
  }

  /// Starts from the best plan without a host, with reruns replaced by fetches.
  void start_from_reruns() {
    constexpr double kMostTime = 0.4, kPlanning = 0.7;
    if (is_over()) return;
    Limits part(limits_, kMostTime);
    Limits planning(part, kPlanning);
    const std::optional<Plan> plan = plan_without_host(graph_, "search", {}, 0, planning);
    if (!plan) return;
    take_with_fetches(evaluated(script_of(*plan)), part);
    polish(part);
  }

  /// Runs `search` around the fetches of the best script. It knows no channels, so each fetch has a price.
  void search_around(double price, std::uint64_t round, Limits& limits) {
    constexpr double kPlanning = 0.8;
    if (limits.reached()) return;
    const FetchGraph around(graph_, fetched_values(graph_, current_best_.script), host_, price);
    const std::vector<Plan> starts{around.plan_of(current_best_.script)};
    Limits planning(limits, kPlanning);
    const std::optional<Plan> plan = plan_without_host(around.graph(), "search", starts, round, planning);
    if (plan) take_with_fetches(evaluated(around.script_of(*plan)), limits);
  }

  /// A run of an op after its first one.
  struct Rerun {
    OpId op;
    int run;
    double worth;  ///< time for a byte
  };

  std::vector<Rerun> reruns_by_worth(const Script& script) const {
    std::vector<Rerun> reruns;
    IndexVector<OpId, int> runs(graph_.num_ops(), 0);
    for (const Item& item : script) {
      if (!item.op || ++runs[item.op] == 1) continue;
      Bytes bytes;
      for (ValueId v : graph_.outputs[item.op]) bytes += graph_.bytes[v];
      const double worth = real(graph_.duration[item.op]) / std::max(1.0, real(bytes));
      reruns.push_back({item.op, runs[item.op], worth});
    }
    std::ranges::stable_sort(reruns, std::greater(), &Rerun::worth);
    return reruns;
  }

  Script fetched_instead(const Script& script, const Rerun& rerun) const {
    Script next;
    int run = 0;
    for (const Item& item : script) {
      if (item.op != rerun.op || ++run != rerun.run) {
        next.push_back(item);
        continue;
      }
      for (ValueId v : graph_.outputs[item.op]) {
        if (graph_.bytes[v] > Bytes()) next.push_back({OpId::none(), v});
      }
    }
    return next;
  }

  /// Replaces reruns by fetches where that is better, those with the most time per byte first.
  Candidate with_fetches(Candidate one, Limits& limits) {
    for (bool again = true; again;) {
      again = false;
      for (const Rerun& rerun : reruns_by_worth(one.script)) {
        if (limits.reached()) return one;
        Candidate next = evaluated(fetched_instead(one.script, rerun));
        if (energy(next) >= energy(one)) continue;
        one = std::move(next);
        again = true;
      }
    }
    return one;
  }
  void take_with_fetches(Candidate one, Limits& limits) {
    take(one);
    take(with_fetches(std::move(one), limits));
  }

  /// In turns: `search` and `retention` around the values on the host, and annealing with small changes.
  void search() {
    constexpr int kTurns = 4;
    constexpr double kSearching = 0.6, kRecomputing = 0.15;
    constexpr std::array kPrices{0.03, 0.3, 0.1};
    Chosen last;
    for (int turn = 0; turn < kTurns && moves_.any() && !is_over(); ++turn) {
      Limits part(limits_, 1.0 / (kTurns - turn));
      Limits searching(part, kSearching);
      search_around(kPrices[at(turn) % kPrices.size()], narrow<std::uint64_t>(turn), searching);
      polish(part);
      Chosen fetched = fetched_values(graph_, current_best_.script);
      Limits recomputing(part, kRecomputing);
      if (fetched != last) recompute_around(fetched, recomputing);
      last = std::move(fetched);
      anneal(part);
    }
  }

  /// Time, and a price on every byte over the budgets.
  double energy(const Candidate& one) const {
    const double share = real(over(one)) / std::max(1.0, real(problem_.budget));
    return real(one.cost.duration) + share * real(graph_.base_duration);
  }

  /// Simulated annealing in rounds, each from the best plan so far.
  void anneal(Limits& limits) {
    constexpr std::int64_t kRound = 3000;
    constexpr double kLeast = 1e-12;
    const double warm = 0.001 * real(graph_.base_duration);
    Candidate current;
    for (std::int64_t i = 0; !limits.reached() && !is_optimal(); ++i) {
      if (i % kRound == 0) {
        current = current_best_;
        moves_.start_from(current.script, current.cost.peak_step);
      }
      Candidate next = evaluated(moves_.changed(over(current) > Bytes()));
      const double left = 1 - real(i % kRound) / real(kRound);
      const double allowed = warm * left * left * minus_log(std::max(kLeast, random_.unit()));
      if (energy(next) > energy(current) + allowed) continue;
      current = std::move(next);
      moves_.start_from(current.script, current.cost.peak_step);
      if (take(current)) ++accepted_;
    }
  }

  const Problem& problem_;
  const Graph& graph_;
  const Host& host_;
  const std::uint64_t seed_;
  Limits& limits_;
  Random random_;
  CopyClock clock_;
  Timetable timetable_;
  Moves moves_;
  ChannelPrices prices_;  ///< the best tried
  double least_energy_ = std::numeric_limits<double>::infinity();
  Incumbent best_;
  Candidate current_best_;
  Script polished_;  ///< the last one polished
  std::int64_t joint_choices_ = 0, evaluations_ = 0, accepted_ = 0;
};

}  // namespace

PlanResult plan_with_host(const Problem& problem, const PlanOptions& options, Limits& limits) {
  return Offload(problem, options, limits).run();
}

}  // namespace remat::offload
