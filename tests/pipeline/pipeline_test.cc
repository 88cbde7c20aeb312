#include "remat/pipeline.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "helpers/errors.h"
#include "helpers/graphs.h"
#include "pipeline/blocks.h"
#include "pipeline/choices.h"
#include "pipeline/part.h"
#include "remat/error.h"
#include "remat/generate.h"
#include "remat/keep_all.h"

namespace remat {
namespace {

Graph gpt(std::int64_t depth, Optimizer optimizer = Optimizer::kAdam, std::int64_t width = 32) {
  TrainingOptions options;
  options.model = "gpt";
  options.settings.depth = depth;
  options.settings.width = width;
  options.settings.heads = 2;
  options.settings.vocabulary = 64;
  options.settings.batch = 4;
  options.settings.sequence = 32;
  options.optimizer = optimizer;
  options.device = parse_device("flops=1e12,bandwidth=1e11,launch=1e-6");
  return training_graph(options);
}

PipelineResult planned(const Graph& graph, const PipelineOptions& options) {
  Limits limits;
  return plan_pipeline({{&graph, 1}}, options, limits);
}

PipelineOptions options_of(int stages, int microbatches, std::int64_t budget,
                           PipelineExecutor executor = PipelineExecutor::kSaved) {
  PipelineOptions options;
  options.stages = stages;
  options.microbatches = microbatches;
  options.budget = Bytes(budget);
  options.executor = executor;
  return options;
}

/// Every op that is no update in one block, every block with a value in and out.
TEST(PipelineBlocks, OfAModelAreItsLayersAndItsTwoEnds) {
  for (Optimizer optimizer : {Optimizer::kNone, Optimizer::kAdam}) {
    const Graph graph = gpt(4, optimizer);
    const auto blocks = pipeline::cut_into_blocks(graph, {});
    ASSERT_EQ(blocks.size(), 6U);
    std::vector<std::string> names;
    std::size_t ops = 0, updates = 0;
    for (OpId op : graph.ops()) updates += graph.phase[op] == Phase::kUpdate;
    for (const auto& block : blocks) {
      names.push_back(block.name);
      ops += block.forward.size() + block.backward.size();
    }
    EXPECT_EQ(names,
              (std::vector<std::string>{"embed", "layers.0", "layers.1", "layers.2", "layers.3", "loss"}));
    // The op that adds up the two gradients of the tied embedding belongs to no block.
    EXPECT_EQ(ops, graph.num_ops() - updates - 1);
    for (std::size_t b = 0; b + 1 < blocks.size(); ++b) {
      EXPECT_EQ(blocks[b].sent, blocks[b + 1].received);
      EXPECT_EQ(blocks[b].gradient_received, blocks[b + 1].gradient_sent);
      EXPECT_TRUE(blocks[b].sent && blocks[b].gradient_received);
    }
    EXPECT_EQ(pipeline::kinds_of(blocks, 0).kind, (std::vector<int>{0, 1, 1, 1, 1, 2}));
  }
}

TEST(PipelineBlocks, OfOneStructureMayTakeTheirOwnTimes) {
  Graph graph = gpt(4);
  for (OpId op : graph.ops()) graph.duration[op] += Duration(op.index());
  const auto kinds = pipeline::kinds_of(pipeline::cut_into_blocks(graph, {}), 0);
  EXPECT_EQ(kinds.kind, (std::vector<int>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(kinds.structure, (std::vector<int>{0, 1, 1, 1, 1, 2}));
  const PipelineResult found = planned(graph, options_of(2, 4, 1 << 30));
  ASSERT_TRUE(found.plan && found.uniform_full);
  EXPECT_EQ(found.uniform_full->stages[0].last, 3);
  for (const PipelineStage& stage : found.uniform_full->stages) {
    for (int b = std::max(1, stage.first); b < std::min(5, stage.last); ++b) {
      const auto& curve =
          found.curves[static_cast<std::size_t>(found.blocks[static_cast<std::size_t>(b)].curve)];
      EXPECT_EQ(stage.choices[static_cast<std::size_t>(b - stage.first)] + 1,
                static_cast<int>(curve.choices.size()));
    }
  }
}

TEST(PipelineBlocks, AreFinerWhereEveryCutCounts) {
  const Graph graph = gpt(3);
  EXPECT_GT(pipeline::cut_into_blocks(graph, {.whole_layers = false}).size(), 8U);
  EXPECT_EQ(pipeline::cut_into_blocks(testing::training_chain(5), {}).size(), 5U);
}

TEST(PipelineBlocks, HoldParametersGradientsAndMomentsAndNoBatch) {
  const Graph graph = gpt(2);
  const auto blocks = pipeline::cut_into_blocks(graph, {});
  Bytes parameters;
  for (ValueId v : blocks[1].held) {
    const std::string name(graph.value_name[v]);
    EXPECT_TRUE(name.starts_with("layers.0.")) << name;
    if (!name.ends_with("moment1") && !name.ends_with("moment2")) parameters += graph.bytes[v];
  }
  EXPECT_EQ(blocks[1].gradients, parameters);
  ASSERT_EQ(blocks[0].data.size(), 1U);
  EXPECT_EQ(graph.value_name[blocks[0].data.front()], "ids");
  // Without updates only its name distinguishes a batch from a parameter.
  const Graph plain = gpt(2, Optimizer::kNone);
  EXPECT_TRUE(pipeline::cut_into_blocks(plain, {})[0].data.empty());
  EXPECT_EQ(pipeline::cut_into_blocks(plain, {.data = {"ids"}})[0].data.size(), 1U);
  EXPECT_EQ(testing::usage_error([&] { pipeline::cut_into_blocks(plain, {.data = {"nothing"}}); }),
            "graph '" + plain.name + "' has no input named 'nothing'");
}

TEST(PipelineChoices, OfACheckpointRunAllAgainThatIsNotSaved) {
  const Graph graph = gpt(2);
  const auto blocks = pipeline::cut_into_blocks(graph, {});
  Limits limits;
  const BlockCurve curve = pipeline::make_curve(blocks[1], PipelineExecutor::kCheckpoint, 0, limits);
  EXPECT_GT(curve.choices.size(), 5U);
  EXPECT_EQ(curve.choices.front().extra, Duration());
  const BlockChoice& least = curve.choices.back();
  EXPECT_TRUE(least.saved_ops.empty());
  EXPECT_EQ(least.saved, graph.bytes[blocks[1].received]);
  for (const BlockChoice& choice : curve.choices) {
    Duration again;
    for (int step : choice.second) {
      if (step < static_cast<int>(blocks[1].forward.size())) {
        again += graph.duration[blocks[1].forward[static_cast<std::size_t>(step)]];
      }
    }
    EXPECT_EQ(choice.extra, again);
    EXPECT_GE(choice.need, choice.saved);
  }
}

/// The reference: every choice of every block, the stage simulated with all its micro-batches in flight.
class BruteForce {
 public:
  BruteForce(const Graph& graph, const PipelineOptions& options) : options_(options) {
    blocks_ = pipeline::cut_into_blocks(graph, {options.whole_layers, options.data});
    Limits limits;
    for (const auto& block : blocks_)
      curves_.push_back(pipeline::make_curve(block, options.executor, 0, limits));
  }

  std::optional<std::int64_t> slowest() { return from(0, 0); }

 private:
  using Time = std::optional<std::int64_t>;

  Time from(int stage, int first) {
    const int blocks = static_cast<int>(blocks_.size());
    if (stage == options_.stages) return first == blocks ? Time(0) : std::nullopt;
    Time best;
    for (int last = first + 1; last <= blocks; ++last) {
      const Time own = time(std::min(options_.stages - stage, options_.microbatches), first, last);
      const Time rest = own ? from(stage + 1, last) : std::nullopt;
      if (rest && (!best || std::max(*own, *rest) < *best)) best = std::max(*own, *rest);
    }
    return best;
  }

  Time time(int in_flight, int first, int last) {
    const auto [known, is_new] = known_.try_emplace({in_flight, first, last});
    if (!is_new) return known->second;
    std::vector<pipeline::Placed> placed;
    const std::function<void(int, Duration)> extend = [&](int b, Duration time) {
      if (known->second && *known->second <= time.count()) return;
      if (b == last) {
        const auto part = pipeline::build_part(placed, pipeline::turns_in_flight(in_flight), 0, true);
        EXPECT_FALSE(validate(part.graph, part.plan, OrderMode::kFixed));
        if (simulate(part.graph, part.plan).peak <= options_.budget) known->second = time.count();
        return;
      }
      const BlockCurve& curve = curves_[static_cast<std::size_t>(b)];
      for (const BlockChoice& choice : curve.choices) {
        placed.push_back({&blocks_[static_cast<std::size_t>(b)], &choice});
        extend(b + 1, time + curve.forward + curve.backward + choice.extra);
        placed.pop_back();
      }
    };
    extend(first, Duration());
    return known->second;
  }

  PipelineOptions options_;
  std::vector<pipeline::Block> blocks_;
  std::vector<BlockCurve> curves_;
  std::map<std::tuple<int, int, int>, Time> known_;
};

TEST(Pipeline, IsTheFastestOfAllCutsAndChoices) {
  const Graph graph = gpt(2);
  int with = 0, without = 0;
  for (const auto& [stages, microbatches] : {std::pair(2, 4), std::pair(3, 2), std::pair(2, 1)}) {
    const std::int64_t least = planned(graph, options_of(stages, microbatches, 1000)).least_budget->count();
    for (int percent : {99, 100, 103, 110, 130}) {
      const auto options = options_of(stages, microbatches, least * percent / 100);
      const PipelineResult found = planned(graph, options);
      const auto slowest = BruteForce(graph, options).slowest();
      ASSERT_EQ(found.plan.has_value(), slowest.has_value()) << stages << " stages, " << percent << " %";
      EXPECT_EQ(found.status, slowest ? Status::kOptimal : Status::kInfeasible);
      ++(slowest ? with : without);
      if (!slowest) continue;
      EXPECT_EQ(found.plan->slowest.count(), *slowest) << stages << " stages, " << percent << " %";
      for (const PipelineStage& stage : found.plan->stages) EXPECT_LE(stage.peak, options.budget);
    }
  }
  EXPECT_EQ(with, 12);
  EXPECT_EQ(without, 3);
}

TEST(Pipeline, SaysWhatIsSimulated) {
  const Graph graph = gpt(6);
  const PipelineResult wide = planned(graph, options_of(3, 4, keep_all_peak(graph).count()));
  ASSERT_TRUE(wide.plan);
  std::int64_t least = wide.plan->stages.front().peak.count();
  const PipelineResult found = planned(graph, options_of(3, 4, least * 3 / 4));
  ASSERT_TRUE(found.plan);
  EXPECT_GT(found.plan->slowest, wide.plan->slowest);
  int next = 0;
  for (const PipelineStage& stage : found.plan->stages) {
    EXPECT_EQ(stage.first, next);
    next = stage.last;
    EXPECT_LE(stage.peak, Bytes(least * 3 / 4));
    EXPECT_LE(stage.duration(), found.plan->slowest);
    // k - 1 micro-batches that wait, and the highest step of one more.
    EXPECT_GE(stage.peak.count(), stage.held.count() + stage.in_flight * stage.saved.count());
  }
  EXPECT_EQ(next, 8);
  EXPECT_EQ(found.plan->stages.front().in_flight, 3);
  // No uniform plan has a faster slowest stage.
  for (const auto& other : {found.uniform_full, found.uniform_same, found.uniform_own}) {
    if (other) {
      EXPECT_GE(other->slowest, found.plan->slowest);
    }
  }
}

TEST(Pipeline, KnowsTheLeastBudget) {
  const Graph graph = gpt(4);
  const PipelineResult none = planned(graph, options_of(3, 8, 100'000));
  EXPECT_EQ(none.status, Status::kInfeasible);
  EXPECT_FALSE(none.plan);
  ASSERT_TRUE(none.least_budget);
  EXPECT_EQ(none.reason, "stages 0 to 1 have room for 1 of 6 blocks");
  const std::int64_t least = none.least_budget->count();
  EXPECT_EQ(planned(graph, options_of(3, 8, least)).status, Status::kOptimal);
  EXPECT_EQ(planned(graph, options_of(3, 8, least - 1)).status, Status::kInfeasible);
}

TEST(Pipeline, TakesGraphsInARow) {
  const Graph graph = gpt(2);
  Limits limits;
  const PipelineResult found = plan_pipeline({{&graph, 3}}, options_of(3, 3, 1 << 30), limits);
  ASSERT_TRUE(found.plan);
  EXPECT_EQ(found.blocks.size(), 12U);
  EXPECT_EQ(found.curves.size(), 3U);
  EXPECT_EQ(found.plan->stages.front().last, 4);
  EXPECT_EQ(found.status, Status::kOptimal);
}

TEST(Pipeline, InterleavesChunksWithinTheBudgetOfADevice) {
  const Graph graph = gpt(8);
  PipelineOptions options = options_of(2, 4, 1 << 30);
  options.schedule = Schedule::kInterleaved;
  options.chunks = 2;
  const PipelineResult wide = planned(graph, options);
  ASSERT_TRUE(wide.plan);
  EXPECT_EQ(wide.status, Status::kFeasible);
  ASSERT_EQ(wide.plan->stages.size(), 4U);
  EXPECT_EQ(wide.plan->stages[2].device, 0);
  EXPECT_EQ(wide.plan->stages[2].chunk, 1);
  EXPECT_EQ(wide.plan->stages[0].peak, wide.plan->stages[2].peak);
  options.budget = Bytes(wide.plan->stages[0].peak.count() * 8 / 10);
  const PipelineResult found = planned(graph, options);
  ASSERT_TRUE(found.plan);
  for (const PipelineStage& stage : found.plan->stages) EXPECT_LE(stage.peak, options.budget);
  EXPECT_GE(found.plan->slowest, wide.plan->slowest);
}

TEST(Pipeline, TellsACheckpointWhichCallsItSaves) {
  const Graph graph = gpt(4);
  const PipelineResult wide = planned(graph, options_of(2, 4, 1 << 30, PipelineExecutor::kCheckpoint));
  ASSERT_TRUE(wide.plan);
  EXPECT_FALSE(policies_of(wide, {{&graph, 1}}, wide.plan->stages[0])[1].runs_again);
  const std::int64_t budget = wide.plan->stages[0].peak.count() * 3 / 4;
  const PipelineResult found = planned(graph, options_of(2, 4, budget, PipelineExecutor::kCheckpoint));
  ASSERT_TRUE(found.plan);
  const PipelineStage& stage = found.plan->stages[0];
  const auto policies = policies_of(found, {{&graph, 1}}, stage);
  ASSERT_EQ(policies.size(), static_cast<std::size_t>(stage.last));
  bool any = false;
  for (std::size_t b = 0; b < policies.size(); ++b) {
    const PipelineBlock& block = found.blocks[b];
    const auto& curve = found.curves[static_cast<std::size_t>(block.curve)];
    const BlockChoice& choice = curve.choices[static_cast<std::size_t>(stage.choices[b])];
    std::size_t calls = 0;
    for (const auto& [kind, which] : policies[b].saved) calls += which.size();
    EXPECT_EQ(calls, policies[b].runs_again ? choice.saved_ops.size() : 0);
    EXPECT_EQ(policies[b].runs_again, choice.as_a_whole);
    any = any || policies[b].runs_again;
  }
  EXPECT_TRUE(any);
}

TEST(Pipeline, RefusesWhatIsNone) {
  const Graph graph = gpt(2);
  Limits limits;
  EXPECT_EQ(testing::usage_error([&] { planned(graph, options_of(5, 8, 1 << 30)); }),
            "5 stages need as many blocks, found 4");
  EXPECT_EQ(testing::usage_error([&] { plan_pipeline({{&graph, 0}}, options_of(2, 8, 1 << 30), limits); }),
            "a graph counts at least once, found 0");
  EXPECT_EQ(testing::usage_error([&] { plan_pipeline({}, options_of(2, 8, 1 << 30), limits); }),
            "a pipeline needs at least one graph");
  ChainOptions chain_options;
  chain_options.training = false;
  const Graph inference = chain(chain_options);
  EXPECT_EQ(testing::error_of<InputError>([&] { planned(inference, options_of(2, 8, 1 << 30)); }),
            "graph '" + inference.name + "' has no backward half that a pipeline could be made of");
}

TEST(Pipeline, StopsAtItsLimits) {
  const Graph graph = gpt(4);
  Limits limits;
  limits.set_work(1);
  const PipelineResult found = plan_pipeline({{&graph, 1}}, options_of(2, 4, 1 << 30), limits);
  EXPECT_NE(found.status, Status::kOptimal);
  EXPECT_NE(found.status, Status::kInfeasible);
  EXPECT_EQ(found.stopped_by, StoppedBy::kWork);
}

}  // namespace
}  // namespace remat
