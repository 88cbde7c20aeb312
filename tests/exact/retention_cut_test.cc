#include "exact/retention_cut.h"

#include <gtest/gtest.h>

#include "helpers/graphs.h"
#include "helpers/places.h"
#include "remat/bounds.h"
#include "remat/io.h"

namespace remat {
namespace {

constexpr std::int64_t kAmple = 100'000'000;

/// The bytes that the op may save by writing over the value; 0 if the value certainly stays in memory.
Bytes overlap(const Graph& g, OpId at, ValueId v) {
  if (g.kept[v] && !g.recomputable[g.producer[v]]) return Bytes();
  for (const Over& pair : g.over[at]) {
    if (pair.input == v) return std::min(g.bytes[v], g.bytes[pair.output]);
  }
  return Bytes();
}

/// The cost of running `rerun` again, and the memory it holds at the first run of `at` in fixed order.
struct Cost {
  Duration extra;
  Bytes held;
};
Cost cost_of(const Graph& g, OpId at, const IndexVector<OpId, bool>& rerun) {
  Cost cost;
  const auto inputs = g.inputs[at];
  for (ValueId v : g.values()) {
    const OpId maker = g.producer[v];
    if (!maker || maker >= at || rerun[maker]) continue;
    const bool is_input = std::find(inputs.begin(), inputs.end(), v) != inputs.end();
    bool wanted = g.kept[v];
    for (OpId reader : g.readers[v]) wanted |= reader > at || (reader < at && rerun[reader]);
    if (wanted) cost.held += is_input ? overlap(g, at, v) : g.bytes[v];
  }
  for (OpId op : g.ops()) {
    if (rerun[op]) cost.extra += g.duration[op];
  }
  return cost;
}

Bytes need(const Graph& g, OpId at) {
  Bytes sum = g.resident + g.workspace[at];
  for (ValueId v : g.outputs[at]) sum += g.bytes[v];
  for (ValueId v : g.inputs[at]) {
    if (!g.is_graph_input(v)) sum += g.bytes[v] - overlap(g, at, v);
  }
  return sum;
}

/// All sets of reruns that the graph allows.
template <class See>
void see_reruns(const Graph& g, OpId at, See&& see) {
  for (unsigned set = 0; set < 1U << at.index(); ++set) {
    IndexVector<OpId, bool> rerun(g.num_ops(), false);
    bool allowed = true;
    for (OpId op : IdRange<OpId>(OpId(0), at)) {
      rerun[op] = (set >> op.index() & 1) != 0;
      allowed &= !rerun[op] || g.recomputable[op];
    }
    if (allowed) see(rerun);
  }
}

/// The least extra duration over all sets of reruns that fit, or nothing.
std::optional<Duration> best_by_hand(const Graph& g, OpId at, Bytes budget) {
  std::optional<Duration> best;
  see_reruns(g, at, [&](const IndexVector<OpId, bool>& rerun) {
    const Cost cost = cost_of(g, at, rerun);
    if (need(g, at) + cost.held <= budget && (!best || cost.extra < *best)) best = cost.extra;
  });
  return best;
}

TEST(Retention, BoundsTheBestChoiceOfAMomentAndFindsOneThatFits) {
  Random random(41);
  int exact = 0, cases = 0;
  for (int round = 0; round < 1500; ++round) {
    const Graph g = testing::random_graph(random, {.min_ops = 3, .max_ops = 9, .max_values = 12});
    const OpId at(random.below(std::ssize(g.duration.raw())));
    const Bytes most = simulate(g, keep_all_plan(g)).peak;
    const Bytes budget(random.between(most.count() / 3, most.count()));
    const auto truth = best_by_hand(g, at, budget);
    const RetentionResult found = solve_retention(g, at, budget, OrderMode::kFixed, kAmple);
    SCOPED_TRACE(::testing::Message() << "graph " << round << " op " << at.index());
    if (!truth) {
      ASSERT_FALSE(found.choice);
      continue;
    }
    ASSERT_LE(found.bound, *truth);
    ASSERT_EQ(retention_bound(g, at, budget, OrderMode::kFixed, kAmple), found.bound);
    ASSERT_TRUE(found.choice);
    ASSERT_GE(found.choice->extra, *truth);
    const Cost cost = cost_of(g, at, found.choice->rerun);
    ASSERT_EQ(cost.extra, found.choice->extra);
    ASSERT_EQ(cost.held, found.choice->held);
    ASSERT_LE(need(g, at) + cost.held, budget);
    if (*truth == Duration()) continue;
    ++cases;
    exact += found.choice->extra == *truth;
  }
  EXPECT_GT(cases, 120);
  EXPECT_GT(exact * 3, cases * 2);
}

TEST(Retention, PlansRunAgainWhatTheChoiceDropsAndFitAtItsMoment) {
  Random random(42);
  int reruns = 0;
  for (int round = 0; round < 1000; ++round) {
    const Graph g =
        testing::random_graph(random, {.min_ops = 3, .max_ops = 12, .max_values = 16, .states = 0});
    const OpId at(random.below(std::ssize(g.duration.raw())));
    const Bytes most = simulate(g, keep_all_plan(g)).peak;
    const Bytes budget(random.between(most.count() / 3, most.count()));
    const RetentionResult found = solve_retention(g, at, budget, OrderMode::kFixed, kAmple);
    if (!found.choice) continue;
    const Plan plan = plan_of(g, *found.choice);
    SCOPED_TRACE(::testing::Message() << "graph " << round << " op " << at.index());
    ASSERT_FALSE(validate(g, plan, OrderMode::kFixed)) << validate(g, plan, OrderMode::kFixed)->message;
    IndexVector<StepId, Bytes> memory;
    ASSERT_EQ(simulate(g, plan, memory).duration, g.base_duration + found.choice->extra);
    // Nothing runs again before the moment, so its step is its op.
    ASSERT_LE(memory[StepId(at.index())], budget);
    reruns += std::ssize(plan.steps.raw()) > std::ssize(g.duration.raw());
  }
  EXPECT_GT(reruns, 120);
}

/// The least sum of reruns and fetches over all sets of both that fit, or nothing.
std::optional<Duration> best_with_fetches(const Graph& g, OpId at, Bytes budget, const FetchPrices& prices) {
  std::optional<Duration> best;
  see_reruns(g, at, [&](const IndexVector<OpId, bool>& rerun) {
    const Cost kept = cost_of(g, at, rerun);
    // The saving of fetching each value alone.
    std::vector<std::pair<Bytes, Duration>> fetchable;
    for (ValueId v : g.values()) {
      const OpId maker = g.producer[v];
      if (!maker || maker >= at || rerun[maker] || prices[v] == kMaxCount) continue;
      bool wanted = g.kept[v];
      for (OpId reader : g.readers[v]) wanted |= reader > at || (reader < at && rerun[reader]);
      const auto inputs = g.inputs[at];
      const bool is_input = std::find(inputs.begin(), inputs.end(), v) != inputs.end();
      const Bytes saved = is_input ? overlap(g, at, v) : g.bytes[v];
      if (wanted && saved > Bytes()) fetchable.emplace_back(saved, Duration(prices[v]));
    }
    for (unsigned some = 0; some < 1U << fetchable.size(); ++some) {
      Cost cost = kept;
      for (std::size_t i = 0; i < fetchable.size(); ++i) {
        if ((some >> i & 1) == 0) continue;
        cost.held -= fetchable[i].first;
        cost.extra += fetchable[i].second;
      }
      if (need(g, at) + cost.held <= budget && (!best || cost.extra < *best)) best = cost.extra;
    }
  });
  return best;
}

TEST(Retention, FetchesForAPriceWhereThatIsBest) {
  Random random(43);
  int exact = 0, cases = 0, fetches = 0;
  for (int round = 0; round < 3000; ++round) {
    const Graph g = testing::random_graph(random, {.min_ops = 3, .max_ops = 7, .max_values = 9, .states = 0});
    const OpId at(random.below(std::ssize(g.duration.raw())));
    const Bytes most = simulate(g, keep_all_plan(g)).peak;
    const Bytes budget(random.between(most.count() / 3, most.count()));
    FetchPrices prices(g.num_values());
    for (ValueId v : g.values()) prices[v] = random.chance(0.3) ? kMaxCount : 1 + random.below(12);
    const auto truth = best_with_fetches(g, at, budget, prices);
    const RetentionResult found = solve_retention(g, at, budget, OrderMode::kFixed, kAmple, nullptr, &prices);
    SCOPED_TRACE(::testing::Message() << "graph " << round << " op " << at.index());
    if (!truth) {
      ASSERT_FALSE(found.choice);
      continue;
    }
    ASSERT_LE(found.bound, *truth);
    ASSERT_TRUE(found.choice);
    ASSERT_GE(found.choice->extra, *truth);
    ASSERT_LE(need(g, at) + found.choice->held, budget);
    // The script has the reruns and fetches of the choice, each value before its readers.
    Duration extra;
    IndexVector<OpId, int> runs(g.num_ops(), 0);
    IndexVector<ValueId, bool> is_there(g.num_values(), false);
    for (ValueId v : g.graph_inputs) is_there[v] = true;
    for (const Item& item : script_of(g, *found.choice)) {
      if (!item.op) {
        extra += Duration(prices[item.fetched]);
        is_there[item.fetched] = true;
        ++fetches;
        continue;
      }
      for (ValueId v : g.inputs[item.op]) ASSERT_TRUE(is_there[v]);
      for (ValueId v : g.outputs[item.op]) is_there[v] = true;
      if (++runs[item.op] > 1) extra += g.duration[item.op];
      if (item.op != at) continue;
      for (ValueId v : g.values()) {
        const OpId maker = g.producer[v];
        if (maker && maker < at && found.choice->rerun[maker]) is_there[v] = false;
        if (found.choice->fetches(v)) is_there[v] = false;
      }
      for (ValueId v : g.inputs[at]) is_there[v] = true;
    }
    ASSERT_LE(extra, found.choice->extra);
    if (*truth == Duration()) continue;
    ++cases;
    exact += found.choice->extra == *truth;
  }
  EXPECT_GT(cases, 100);
  EXPECT_GT(fetches, 100);
  EXPECT_GT(exact * 3, cases * 2);
}

// Eight alike layers: the hull jumps from none dropped to all dropped; a finer price drops as many as it
// takes.
TEST(Retention, AlikeLayersChangeSidesOneByOne) {
  const Graph g = testing::training_chain(8, 10, 3);
  const Simulation keep_all = simulate(g, keep_all_plan(g));
  const OpId at(keep_all.peak_step.index());
  for (std::int64_t dropped = 0; dropped < 5; ++dropped) {
    const Bytes budget(keep_all.peak.count() - 10 * dropped);
    const RetentionResult found = solve_retention(g, at, budget, OrderMode::kFixed, kAmple);
    ASSERT_TRUE(found.choice) << dropped;
    EXPECT_EQ(found.choice->extra, Duration(3 * dropped));
    EXPECT_EQ(found.bound, Duration(3 * dropped));
  }
}

// The price is met between two others, not by halving: half as many minimum cuts.
TEST(Retention, ManyAlikeLayersTakeFewCuts) {
  constexpr std::int64_t kLayers = 300, kLooksAtArcs = 30'000;
  const Graph g = testing::training_chain(kLayers, 10, 3);
  const Simulation keep_all = simulate(g, keep_all_plan(g));
  const OpId at(keep_all.peak_step.index());
  for (std::int64_t dropped = 10; dropped < kLayers - 10; dropped += 31) {
    const Bytes budget(keep_all.peak.count() - 10 * dropped);
    const RetentionResult found = solve_retention(g, at, budget, OrderMode::kFixed, kAmple);
    ASSERT_TRUE(found.choice) << dropped;
    EXPECT_EQ(found.choice->extra, Duration(3 * dropped));
    EXPECT_EQ(found.bound, Duration(3 * dropped));
    EXPECT_LT(found.ticks, kLooksAtArcs);
  }
}

// One cut at the last price gives the result of forty at rising prices.
TEST(Retention, FewCutsTellThatNothingFits) {
  const Graph g = testing::training_chain(300, 10, 3);
  const OpId at(simulate(g, keep_all_plan(g)).peak_step.index());
  const RetentionResult found = solve_retention(g, at, need(g, at) - Bytes(1), OrderMode::kFixed, kAmple);
  EXPECT_FALSE(found.choice);
  EXPECT_LT(found.ticks, 40'000);
}

TEST(Retention, StopsWithWhatIsProvedWhereItsTicksRunOut) {
  const Graph g = testing::training_chain(8, 10, 3);
  const Bytes half(simulate(g, keep_all_plan(g)).peak.count() / 2);
  const RetentionResult found = solve_retention(g, OpId(7), half, OrderMode::kFixed, 1);
  EXPECT_FALSE(found.choice);
  EXPECT_EQ(found.bound, Duration());
}

// The bound of a real training step is within a thousandth of the best plan known.
TEST(Retention, IsTightOnTrainingGraphs) {
  const std::filesystem::path file = testing::shared_graph("torch_gpt2_12");
  if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there";
  const Graph g = load_graph(file).graph;
  const Bytes budget(simulate(g, keep_all_plan(g)).peak.count() * 7 / 10);
  const double bound = overhead(g, cheap_duration_bound(g, budget, OrderMode::kFixed).duration);
  EXPECT_GT(bound, 0.0632);
  EXPECT_LE(bound, 0.0634611);
  EXPECT_EQ(cheap_duration_bound(g, budget, OrderMode::kFree).argument, "retention");
}

}  // namespace
}  // namespace remat
