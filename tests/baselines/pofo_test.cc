// Rematerialization and offloading on chains.
#include <gtest/gtest.h>

#include <limits>

#include "base/numbers.h"
#include "baselines/pofo/offload_chain.h"
#include "helpers/chains.h"
#include "helpers/graphs.h"
#include "helpers/hosts.h"
#include "remat/error.h"
#include "remat/generate.h"
#include "remat/planner.h"
#include "remat/random.h"

namespace remat::pofo {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

/// Every way to cut the first sweep, to send things and to wait, one after the other; slots are bytes.
class Brute {
 public:
  Brute(const LinkedChain& linked, const rotor::ChainTable& table)
      : linked_(linked), chain_(*linked.chain), table_(table), n_(narrow<int>(std::ssize(chain_.stages))) {}

  std::int64_t solve(std::int64_t m) {
    least_ = kNever;
    from(0, m, 0, false, 0);
    return least_;
  }

 private:
  std::int64_t output(int s) const { return chain_.stages[at(s)].output; }
  /// Slots that the link carries in the time of some stages; a unit of time is a second.
  static std::int64_t carried(const std::vector<std::int64_t>& times, int s, int next, std::int64_t rate) {
    std::int64_t time = 0;
    for (int i = s; i < next; ++i) time += times[at(i)];
    return time * rate;
  }

  void from(int s, std::int64_t m, std::int64_t y, bool is_input_on_host, std::int64_t time) {
    if (s == n_) {
      least_ = std::min(least_, time);
      return;
    }
    const std::int64_t input = is_input_on_host ? output(s - 1) : 0;
    // A slot takes a unit of time each way, however fast the link is: times are rounded up.
    for (std::int64_t waits = 0; waits <= y; ++waits) {
      const std::int64_t left = y - waits, has = m - left - input;
      if (left > m) continue;
      segments(s, m, left, input, has, time + 2 * waits);
    }
  }

  void segments(int s, std::int64_t m, std::int64_t y, std::int64_t input, std::int64_t has,
                std::int64_t time) {
    if (has < 0) return;
    const auto transit = [&](int next) {
      const std::int64_t out = y + input - carried(linked_.forward_time, s, next, linked_.out);
      const std::int64_t in =
          std::max<std::int64_t>(0, y - carried(linked_.backward_time, s, next, linked_.in));
      return std::max({std::int64_t{0}, out, in + input});
    };
    const rotor::StageOption& how = chain_.stages[at(s)].options.front();
    if (std::max(how.first_need, how.backward_need) <= has) {
      const std::int64_t rest = how.saved - output(s);
      for (bool output_goes : {false, true}) {
        for (bool rest_goes : {false, true}) {
          if ((output_goes && (s + 1 == n_ || !linked_.output_goes[at(s)])) ||
              (rest_goes && !linked_.rest_goes[at(s)])) {
            continue;
          }
          const std::int64_t left = m - (output_goes ? 0 : output(s)) - (rest_goes ? 0 : rest);
          if (left < 0) continue;
          from(s + 1, left, transit(s + 1) + (rest_goes ? rest : 0), output_goes, time + how.extra_time);
        }
      }
    }
    std::int64_t passes = 0;
    for (int next = s + 1; next < n_; ++next) {
      const rotor::Stage& last = chain_.stages[at(next) - 1];
      if (last.first_need + (next - 1 > s ? output(next - 2) : 0) > has) return;
      passes += last.first_time;
      const std::int64_t again = table_.part_times(s, next - 1)[at(has)];
      if (again == kNever) continue;
      for (bool goes : {false, true}) {
        if (goes && !linked_.output_goes[at(next) - 1]) continue;
        const std::int64_t left = m - (goes ? 0 : output(next - 1));
        if (left >= 0) from(next, left, transit(next), goes, time + passes + again);
      }
    }
  }

  const LinkedChain& linked_;
  const rotor::Chain& chain_;
  const rotor::ChainTable& table_;
  int n_;
  std::int64_t least_ = kNever;
};

TEST(Pofo, EqualsBruteForceOverItsSchedulesOnTwoThousandChains) {
  Random random(11);
  int solved = 0, sent = 0, waited = 0;
  for (int round = 0; round < 2000; ++round) {
    const rotor::Chain chain = testing::random_chain(random, 1);
    LinkedChain linked;
    linked.chain = &chain;
    linked.out = random.between(1, 3);
    linked.in = random.between(1, 3);
    for (const rotor::Stage& stage : chain.stages) {
      linked.forward_time.push_back(stage.pass_time / 3);
      linked.backward_time.push_back(random.between(0, 4));
      linked.output_goes.push_back(stage.output > 0 && random.chance(0.9));
      linked.rest_goes.push_back(stage.options.front().saved > stage.output && random.chance(0.9));
    }
    const std::int64_t budget = random.between(8, 40);
    Limits limits;
    const rotor::ChainTable table(chain, budget, 64, limits);
    ASSERT_EQ(table.slot(), 1);
    const std::int64_t truth = Brute(linked, table).solve(budget);
    const auto found = solve(linked, table, budget, kNever, limits);
    ASSERT_EQ(found ? found->extra_time : kNever, truth) << "round " << round;
    if (!found) continue;
    ++solved;
    // Without copies it is rotor's schedule.
    if (const auto alone = table.extra_time(budget)) {
      ASSERT_LE(truth, *alone);
    }
    EXPECT_FALSE(solve(linked, table, budget, truth, limits));
    sent += std::ranges::count(found->output_on_host, true) > 0;
    waited += std::ranges::count(found->rest_on_host, true) > 0;
  }
  EXPECT_GT(solved, 1000);
  EXPECT_GT(sent, 200);
  EXPECT_GT(waited, 200);
}

using testing::kBytesPerUs;

PlanResult planned(const char* planner, const Graph& graph, Bytes budget, std::optional<std::int64_t> rate) {
  Problem problem{.graph = &graph, .budget = budget};
  if (rate) problem.host = Host{.out = *rate, .in = *rate, .budget = std::nullopt};
  Limits limits;
  return make_plan(problem, planner, {.set = {{"slots", "100"}}}, limits);
}

void expect_no_slower_than_rotor(const Graph& graph, std::int64_t rate, int& faster, int& points) {
  const Bytes peak = simulate(graph, keep_all_plan(graph)).peak;
  for (std::int64_t percent : {70, 45}) {
    const Bytes budget(peak.count() * percent / 100);
    const PlanResult alone = planned("rotor", graph, budget, std::nullopt);
    const PlanResult both = planned("pofo", graph, budget, rate);
    if (!has_plan(alone)) continue;
    ++points;
    ASSERT_TRUE(has_plan(both));
    ASSERT_LE(both.cost.peak, budget);
    ASSERT_LE(both.cost.duration, alone.cost.duration);
    ASSERT_GE(both.cost.duration, both.duration_bound.duration);
    faster += both.cost.duration < alone.cost.duration;
    const PlanResult again = planned("pofo", graph, budget, rate);
    ASSERT_EQ(again.plan->steps, both.plan->steps);
    ASSERT_EQ(again.plan->copies, both.plan->copies);
  }
}

TEST(Pofo, IsNeverSlowerThanRotorAndKeepsItsBudget) {
  int faster = 0, points = 0;
  for (int layers : {4, 9, 30}) {
    Graph graph = testing::training_chain(layers, 1000, 10);
    graph.time_unit = "us";
    expect_no_slower_than_rotor(graph, 60 * kBytesPerUs, faster, points);
  }
  for (const char* model : {"unet", "gpt", "mobilenet"}) {
    TrainingOptions options;
    options.model = model;
    if (options.model == "gpt") options.settings.depth = 2;
    Graph graph = training_graph(options);
    graph.time_unit = "us";
    // All of the keep-all peak in a quarter of the step.
    const std::int64_t peak = simulate(graph, keep_all_plan(graph)).peak.count();
    const auto rate = static_cast<std::int64_t>(4e6 * real(peak) / real(graph.base_duration.count()));
    SCOPED_TRACE(model);
    expect_no_slower_than_rotor(graph, rate, faster, points);
  }
  EXPECT_GE(points, 8);
  EXPECT_GT(faster, points / 2);
}

TEST(Pofo, MakesNothingAgainWhereTheLinkIsFast) {
  Graph graph = testing::training_chain(30, 1000, 10);
  graph.time_unit = "us";
  const Bytes budget(simulate(graph, keep_all_plan(graph)).peak.count() / 2);
  const PlanResult result = planned("pofo", graph, budget, 10'000 * kBytesPerUs);
  ASSERT_TRUE(has_plan(result));
  EXPECT_EQ(recomputed_ops(graph, *result.plan), 0);
  EXPECT_LT(overhead(graph, result.cost.duration), 0.001);
}

TEST(Pofo, SaysWhyItRefusesAProblem) {
  const auto reason = [](const Problem& problem) {
    return find_planner("pofo").supports(problem).value_or("supported");
  };
  const Graph chain = testing::training_chain(4);
  Problem problem{.graph = &chain, .budget = Bytes(1)};
  EXPECT_EQ(reason(problem), "it needs a host (--host 25GB/s)");
  problem.host = Host{};
  EXPECT_EQ(reason(problem), "supported");
  problem.objective = Objective::kPeak;
  EXPECT_EQ(reason(problem), "it needs a budget (objective time)");
  problem.objective = Objective::kTime;
  problem.order = OrderMode::kFree;
  EXPECT_EQ(reason(problem), "it keeps the order of the graph");
  problem.order = OrderMode::kFixed;
  const Graph layered = random_layered(RandomLayeredOptions());
  problem.graph = &layered;
  EXPECT_EQ(reason(problem), "the graph has no backward pass that phases name or its structure shows");
}

}  // namespace
}  // namespace remat::pofo
