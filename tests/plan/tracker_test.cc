// The incremental tracker against recomputation from scratch, over random sequences of random edits.
#include "plan/tracker.h"

#include <gtest/gtest.h>

#include <optional>

#include "helpers/graphs.h"

namespace remat {
namespace {

using testing::RandomShape;

struct Truth {
  std::int64_t duration = 0;
  std::int64_t excess = 0;
};

/// Duration and excess of a sequence by the reference simulator; the pseudo step at the end included.
Truth truth_of(const StepModel& compact, const Plan& plan, Bytes budget) {
  const Graph& graph = *compact.graph;
  IndexVector<StepId, Bytes> memory;
  Truth truth;
  truth.duration = simulate(graph, plan, memory).duration.count();
  const std::int64_t limit = compact.budget_units(budget);
  const auto count = [&](Bytes bytes) {
    truth.excess += std::max<std::int64_t>(0, (bytes - graph.resident).count() / compact.unit - limit);
  };
  for (Bytes bytes : memory) count(bytes);
  Bytes kept = graph.resident;
  for (ValueId v : graph.graph_outputs) {
    if (!graph.is_graph_input(v)) kept += graph.bytes[v];
  }
  count(kept);
  return truth;
}

class Editor {
 public:
  Editor(const Graph& graph, OrderMode order, std::uint64_t seed)
      : compact_(graph), tracker_(compact_, order), random_(seed), graph_(&graph) {}

  Tracker& tracker() { return tracker_; }
  const StepModel& compact() const { return compact_; }

  /// One random valid edit; false where the draw offers none.
  bool edit() {
    switch (random_.below(4)) {
      case 0:
        return insert();
      case 1:
        return erase();
      case 2:
        return shift();
      default:
        tracker_.trim();
        return true;
    }
  }

 private:
  OccId any_step() {
    for (;;) {
      const OccId occ = tracker_.blocks().random(random_);
      if (occ != tracker_.begin_occ()) return occ;
    }
  }

  bool insert() {
    const OpId op(random_.below(static_cast<std::int64_t>(graph_->num_ops())));
    const OccId before = any_step();
    // Behind its first run an op finds everything that it reads.
    if (!graph_->recomputable[op] || before == tracker_.begin_occ()) return false;
    if (tracker_.key(tracker_.first(op)) >= tracker_.key(before)) return false;
    tracker_.insert(op, before);
    return true;
  }

  bool erase() {
    if (tracker_.recomputations().empty()) return false;
    const auto at = random_.below(std::ssize(tracker_.recomputations()));
    tracker_.erase(tracker_.recomputations()[static_cast<std::size_t>(at)]);
    return true;
  }

  bool shift() {
    const OccId occ = any_step();
    const OccId before = any_step();
    if (occ == tracker_.end_occ() || !tracker_.shiftable(occ, before)) return false;
    tracker_.shift(occ, before);
    return true;
  }

  StepModel compact_;
  Tracker tracker_;
  Random random_;
  const Graph* graph_;
};

struct Case {
  int max_ops;
  OrderMode order;
};

class TrackerEdits : public ::testing::TestWithParam<Case> {};

TEST_P(TrackerEdits, AgreeWithRecomputationFromScratchAfterEveryEdit) {
  const auto [max_ops, order] = GetParam();
  Random random(7);
  RandomShape shape;
  shape.max_ops = max_ops;
  shape.max_values = 3 * max_ops;
  std::int64_t edits = 0, commits = 0;
  for (int round = 0; round < 60; ++round) {
    const Graph graph = testing::random_graph(random, shape);
    const Plan start = testing::random_plan(graph, random, max_ops);
    const Bytes budget(simulate(graph, start).peak.count() * random.between(40, 110) / 100);
    Editor editor(graph, order, random.next());
    Tracker& tracker = editor.tracker();
    tracker.reset(start, budget);
    ASSERT_EQ(tracker.verify(), "");
    for (int trial = 0; trial < 60; ++trial) {
      const Plan before = tracker.plan();
      const auto wanted = random.between(1, 5);
      for (std::int64_t i = 0; i < wanted; ++i) {
        const Tracker::Mark mark = tracker.mark();
        const Plan at_mark = tracker.plan();
        const Change change_at_mark = tracker.change();
        if (!editor.edit()) continue;
        ++edits;
        const Truth now = truth_of(editor.compact(), tracker.plan(), budget);
        const Change change = tracker.change();
        ASSERT_EQ(tracker.duration() + change.duration, now.duration);
        ASSERT_EQ(tracker.excess() + change.excess, now.excess);
        if (random.chance(0.3)) {
          tracker.rollback(mark);
          ASSERT_EQ(tracker.plan(), at_mark);
          ASSERT_EQ(tracker.change(), change_at_mark);
        }
      }
      if (random.chance(0.5)) {
        tracker.rollback();
        ASSERT_EQ(tracker.plan(), before);
      } else {
        tracker.commit();
        ++commits;
      }
      ASSERT_EQ(tracker.verify(), "");
      if (tracker.steps() > 6 * max_ops) tracker.reset(start, budget);
    }
  }
  EXPECT_GT(edits, 1000);
  EXPECT_GT(commits, 100);
}

INSTANTIATE_TEST_SUITE_P(Sizes, TrackerEdits,
                         ::testing::Values(Case{7, OrderMode::kFixed}, Case{7, OrderMode::kFree},
                                           Case{60, OrderMode::kFixed}, Case{60, OrderMode::kFree}),
                         [](const auto& test) {
                           return std::to_string(test.param.max_ops) + "_ops_" +
                                  std::string(to_string(test.param.order));
                         });

TEST(Tracker, SplitsAndMergesBlocksAsSequencesGrowAndShrink) {
  const Graph graph = testing::training_chain(40, 8);
  const StepModel compact(graph);
  Tracker tracker(compact, OrderMode::kFixed);
  tracker.reset(keep_all_plan(graph), Bytes(200));
  const std::size_t blocks = tracker.blocks().num_blocks();
  std::vector<OccId> made;
  for (int i = 0; i < 400; ++i) {
    made.push_back(tracker.insert(OpId(i % 40), tracker.end_occ()));
    tracker.commit();
  }
  ASSERT_EQ(tracker.verify(), "");
  EXPECT_GT(tracker.blocks().num_blocks(), blocks + 5);
  for (OccId occ : made) {
    tracker.erase(occ);
    tracker.commit();
  }
  ASSERT_EQ(tracker.verify(), "");
  EXPECT_LE(tracker.blocks().num_blocks(), blocks + 1);
  EXPECT_EQ(tracker.plan(), keep_all_plan(graph));
}

TEST(Tracker, HoldsAmountsOnBothSidesOf32Bits) {
  for (const std::int64_t bytes : {std::int64_t{3}, (std::int64_t{1} << 33) + 1}) {
    const Graph graph = testing::make_graph({}, {{{}, {bytes}}, {{0}, {7}}, {{1}, {5}}, {{0, 2}, {1}}}, {});
    const StepModel compact(graph);
    EXPECT_EQ(compact.unit, 1);
    EXPECT_EQ(compact.narrow, bytes == 3);
    Tracker tracker(compact, OrderMode::kFixed);
    tracker.reset(keep_all_plan(graph), Bytes(12));
    tracker.insert(OpId(0), tracker.last(OpId(3)));
    // Step 2 no longer holds the first value: 7 + 5 in place of `bytes` + 12.
    EXPECT_EQ(tracker.change().duration, 1);
    tracker.commit();
    EXPECT_EQ(tracker.verify(), "");
    EXPECT_EQ(tracker.blocks().memory(tracker.last(OpId(2))), 12);
  }
}

TEST(Tracker, TreatsOutputsWithTheSameReadersAsOne) {
  const Graph graph = testing::make_graph({}, {{{}, {4, 6, 8}}, {{0, 1, 2}, {2}}, {{2}, {2}}}, {});
  const StepModel compact(graph);
  EXPECT_EQ(compact.num_bundles(OpId(0)), 2);
  EXPECT_EQ(compact.inputs[OpId(1)].size(), 2u);
}

}  // namespace
}  // namespace remat
