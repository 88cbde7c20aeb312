#include "remat/pipeline.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/numbers.h"
#include "pipeline/blocks.h"
#include "pipeline/choices.h"
#include "pipeline/part.h"
#include "pipeline/stage.h"
#include "remat/error.h"

namespace remat {
namespace pipeline {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

/// Blocks [first, last) of a virtual stage.
struct Range {
  int first, last;
};

class Planner {
 public:
  Planner(const std::vector<PipelinePart>& parts, const PipelineOptions& options, Limits& limits)
      : options_(options),
        limits_(limits),
        turns_(schedule_turns(options.schedule, options.stages, options.chunks, options.microbatches)),
        in_flight_(most_in_flight(turns_, options.chunks)) {
    for (int g : indices(parts)) {
      for (int copy = 0; copy < parts[at(g)].count; ++copy) add_graph(*parts[at(g)].graph, g);
    }
    const int stages = options.stages * options.chunks;
    if (stages > narrow<int>(blocks_.size())) {
      throw UsageError(std::to_string(stages) + " stages need as many blocks, found " +
                       std::to_string(blocks_.size()));
    }
    const Kinds kinds = kinds_of(blocks_, options.state_per_gradient);
    for (int b : indices(blocks_)) {
      const int kind = kinds.kind[at(b)];
      if (kind == narrow<int>(result_.curves.size())) {
        result_.curves.push_back(
            make_curve(blocks_[at(b)], options.executor, options.state_per_gradient, limits));
        structure_.push_back(kinds.structure[at(b)]);
      }
      const Block& block = blocks_[at(b)];
      result_.blocks.push_back({block.name, graphs_[at(b)], kind, block.forward, block.backward});
    }
  }

  PipelineResult run() {
    const auto cuts = options_.chunks > 1 ? searched_cuts() : best_cuts(options_.budget);
    if (cuts) {
      result_.plan = planned(*cuts, own());
      const bool proved = proved_ && options_.chunks == 1 && !limits_.reached();
      result_.status = proved ? Status::kOptimal : Status::kFeasible;
      beside();
    } else {
      explain();
    }
    if (limits_.reached()) result_.stopped_by = limits_.stopped_by();
    result_.seconds = limits_.seconds();
    return std::move(result_);
  }

 private:
  /// The choices allowed for the blocks of a device: all, or for blocks of one structure only the choice
  /// whose saved bytes are nearest to a target.
  struct Rule {
    int structure = -1;
    std::int64_t saved = 0;
  };
  static Rule own() { return {}; }

  int choice_by(const Rule& rule, int kind) const {
    const auto& choices = result_.curves[at(kind)].choices;
    const auto off = [&](const BlockChoice& choice) { return std::abs(choice.saved.count() - rule.saved); };
    return narrow<int>(std::ranges::min_element(choices, {}, off) - choices.begin());
  }

  void add_graph(const Graph& graph, int number) {
    std::vector<std::string> data;
    const bool first = graphs_.empty();
    for (const std::string& name : options_.data) {
      const auto named = [&](ValueId v) { return graph.value_name[v] == name; };
      if (first || std::ranges::any_of(graph.graph_inputs, named)) data.push_back(name);
    }
    std::vector<Block> blocks = cut_into_blocks(graph, {options_.whole_layers, data});
    const int source = sources_++;
    for (Block& block : blocks) {
      block.source = source;
      blocks_.push_back(std::move(block));
      graphs_.push_back(number);
    }
  }

  const BlockCurve& curve(int block) const { return result_.curves[at(result_.blocks[at(block)].curve)]; }
  int devices() const { return options_.stages; }
  int device_of(int stage) const { return stage % devices(); }

  Bytes held(std::span<const Range> ranges) const {
    std::vector<Placed> placed;
    for (const Range& range : ranges) {
      for (int b = range.first; b < range.last; ++b) placed.push_back({&blocks_[at(b)], nullptr});
    }
    return held_by(placed, options_.state_per_gradient);
  }

  Bytes held_once(const Range& range) {
    const auto [known, is_new] = held_.try_emplace({range.first, range.last});
    if (is_new) known->second = held(std::span(&range, 1));
    return known->second;
  }

  Duration base_time(const Range& range) const {
    Duration sum;
    for (int b = range.first; b < range.last; ++b) sum += curve(b).forward + curve(b).backward;
    return sum;
  }

  /// The best choices of a device with these ranges; nothing if none fit.
  std::optional<StageChoices> device_choices(std::span<const Range> ranges, std::span<const int> stages,
                                             Bytes budget, const Rule& rule) {
    std::vector<StageBlock> asked;
    std::vector<int> asked_kinds;
    const auto is_ruled = [&](int k) { return rule.structure >= 0 && structure_[at(k)] == rule.structure; };
    std::map<int, BlockCurve> narrowed;
    const Bytes taken = ranges.size() == 1 ? held_once(ranges.front()) : held(ranges);
    Key key{{}, taken.count(), budget.count(), rule.structure, rule.saved};
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const int in_flight = in_flight_[at(stages[i])];
      for (int b = ranges[i].first; b < ranges[i].last; ++b) {
        const int kind = result_.blocks[at(b)].curve;
        const BlockCurve& all = result_.curves[at(kind)];
        if (is_ruled(kind)) narrowed[kind].choices = {all.choices[at(choice_by(rule, kind))]};
        asked.push_back({is_ruled(kind) ? &narrowed[kind] : &all, in_flight});
        asked_kinds.push_back(kind);
        std::get<0>(key).push_back(kind);
      }
      std::get<0>(key).push_back(-in_flight);
    }
    const auto known = known_.find(key);
    if (known != known_.end()) return known->second;
    auto found = choose(asked, budget - taken, ranges.size() == 1, limits_);
    if (found && !found->proved) proved_ = false;
    for (std::size_t i = 0; found && i < asked.size(); ++i) {
      if (is_ruled(asked_kinds[i])) found->choices[i] = choice_by(rule, asked_kinds[i]);
    }
    return known_[key] = found;
  }

  /// Time of one micro-batch, or kNever.
  std::int64_t stage_time(int stage, const Range& range, Bytes budget) {
    const auto found = device_choices(std::span(&range, 1), std::span(&stage, 1), budget, own());
    return found ? (base_time(range) + found->extra).count() : kNever;
  }

  /// The cuts with the fastest slowest stage; of those, the cuts with the least total time.
  std::optional<std::vector<Range>> best_cuts(Bytes budget) {
    const int blocks = narrow<int>(blocks_.size());
    std::vector<std::int64_t> before(at(blocks) + 1, kNever);  // slowest of the stages so far, by end
    before[0] = 0;
    for (int s = 0; s < devices(); ++s) {
      std::vector<std::int64_t> now(before.size(), kNever);
      for (int last = s + 1; last <= blocks - (devices() - 1 - s); ++last) {
        if (s + 1 == devices() && last < blocks) continue;
        if (limits_.reached()) return std::nullopt;
        now[at(last)] = s == 0 ? stage_time(0, {0, last}, budget) : crossing(s, last, before, budget);
      }
      before = std::move(now);
    }
    if (before.back() == kNever) return std::nullopt;
    return cuts_within(before.back(), budget);
  }

  /// min over first of max(before[first], time of [first, last)): one grows with `first`, the other falls.
  std::int64_t crossing(int s, int last, const std::vector<std::int64_t>& before, Bytes budget) {
    int low = s, high = last - 1;  // the least `first` at which the stage is not the slower one
    while (low < high) {
      const int middle = low + (high - low) / 2;
      if (before[at(middle)] >= stage_time(s, {middle, last}, budget)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    std::int64_t best = std::max(before[at(low)], stage_time(s, {low, last}, budget));
    if (low > s) best = std::min(best, std::max(before[at(low - 1)], stage_time(s, {low - 1, last}, budget)));
    return best;
  }

  /// The cuts with the least total time among those with no stage above `most`.
  std::optional<std::vector<Range>> cuts_within(std::int64_t most, Bytes budget) {
    const int blocks = narrow<int>(blocks_.size());
    std::vector<std::vector<std::int64_t>> sum(at(devices()) + 1,
                                               std::vector<std::int64_t>(at(blocks) + 1, kNever));
    std::vector<std::vector<int>> from(sum.size(), std::vector<int>(at(blocks) + 1, -1));
    sum[0][0] = 0;
    for (int s = 0; s < devices(); ++s) {
      for (int last = s + 1; last <= blocks; ++last) {
        for (int first = last - 1; first >= s; --first) {
          if (base_time({first, last}).count() > most) break;
          if (sum[at(s)][at(first)] == kNever) continue;
          const std::int64_t time = stage_time(s, {first, last}, budget);
          if (time > most) break;
          const std::int64_t all = sum[at(s)][at(first)] + time;
          if (all < sum[at(s) + 1][at(last)]) {
            sum[at(s) + 1][at(last)] = all;
            from[at(s) + 1][at(last)] = first;
          }
        }
      }
    }
    if (sum.back().back() == kNever) return std::nullopt;
    std::vector<Range> ranges(at(devices()));
    for (int s = devices(), last = blocks; s > 0; --s) {
      ranges[at(s) - 1] = {from[at(s)][at(last)], last};
      last = from[at(s)][at(last)];
    }
    return ranges;
  }

  /// Distributes the blocks of the commonest structure evenly over the virtual stages; blocks before and
  /// after go to the first and the last stage.
  std::vector<Range> uniform_cuts() const {
    const int stages = devices() * options_.chunks, blocks = narrow<int>(blocks_.size());
    const int structure = commonest();
    int begin = 0, end = blocks;
    while (structure_of(begin) != structure) ++begin;
    while (structure_of(end - 1) != structure) --end;
    if (end - begin < stages) begin = 0, end = blocks;
    std::vector<Range> ranges;
    for (int s = 0; s < stages; ++s) {
      const auto cut = [&](int i) { return begin + narrow<int>(std::int64_t{end - begin} * i / stages); };
      ranges.push_back({s == 0 ? 0 : cut(s), s + 1 == stages ? blocks : cut(s + 1)});
    }
    return ranges;
  }

  int structure_of(int block) const { return structure_[at(result_.blocks[at(block)].curve)]; }

  int commonest() const {
    std::vector<int> count(blocks_.size());
    for (int b : indices(blocks_)) ++count[at(structure_of(b))];
    return narrow<int>(std::ranges::max_element(count) - count.begin());
  }

  /// The ranges of a device, and their stages.
  std::pair<std::vector<Range>, std::vector<int>> of_device(const std::vector<Range>& cuts, int d) const {
    std::pair<std::vector<Range>, std::vector<int>> found;
    for (int stage = d; stage < narrow<int>(cuts.size()); stage += devices()) {
      found.first.push_back(cuts[at(stage)]);
      found.second.push_back(stage);
    }
    return found;
  }

  /// The number of devices on which nothing fits, and the time of a step with the best choices of each
  /// device.
  std::pair<int, std::int64_t> step_time(const std::vector<Range>& cuts) {
    std::vector<Duration> forward(cuts.size()), backward(cuts.size());
    int without = 0;
    for (int d = 0; d < devices(); ++d) {
      const auto [ranges, stages] = of_device(cuts, d);
      const auto found = device_choices(ranges, stages, options_.budget, own());
      if (!found) {
        ++without;
        continue;
      }
      std::size_t next = 0;
      for (std::size_t i = 0; i < ranges.size(); ++i) {
        for (int b = ranges[i].first; b < ranges[i].last; ++b) {
          forward[at(stages[i])] += curve(b).forward;
          backward[at(stages[i])] += curve(b).backward + curve(b).choices[at(found->choices[next++])].extra;
        }
      }
    }
    if (without > 0) return {without, kNever};
    return {0, time_schedule(turns_, forward, backward).duration.count()};
  }

  /// Interleaved: local search from uniform cuts. Moves one cut by one block as long as the step gets faster,
  /// or fewer devices are without a plan.
  std::optional<std::vector<Range>> searched_cuts() {
    std::vector<Range> cuts = uniform_cuts();
    auto best = step_time(cuts);
    for (bool moved = true; moved && !limits_.reached();) {
      moved = false;
      for (std::size_t s = 0; s + 1 < cuts.size(); ++s) {
        for (int by : {-1, 1}) {
          std::vector<Range> next = cuts;
          next[s].last += by;
          next[s + 1].first += by;
          if (next[s].first >= next[s].last || next[s + 1].first >= next[s + 1].last) continue;
          const auto found = step_time(next);
          if (found >= best) continue;
          best = found;
          cuts = std::move(next);
          moved = true;
        }
      }
    }
    if (best.first > 0) return std::nullopt;
    return cuts;
  }

  /// The plan of these cuts with the choices that a rule allows, each device simulated; nothing if one is
  /// over.
  std::optional<PipelinePlan> planned(const std::vector<Range>& cuts, const Rule& rule) {
    PipelinePlan plan;
    plan.stages.resize(cuts.size());
    for (int d = 0; d < devices(); ++d) {
      const auto [ranges, stages] = of_device(cuts, d);
      const auto found = device_choices(ranges, stages, options_.budget, rule);
      if (!found) return std::nullopt;
      Duration time;
      std::size_t next = 0;
      for (std::size_t i = 0; i < ranges.size(); ++i) {
        PipelineStage& stage = plan.stages[at(stages[i])];
        const auto begin = found->choices.begin() + narrow<std::ptrdiff_t>(next);
        stage = made_stage(stages[i], ranges[i], {begin, begin + (ranges[i].last - ranges[i].first)});
        next += stage.choices.size();
        time += stage.duration();
      }
      plan.slowest = std::max(plan.slowest, time);
      confirm(plan, stages, d);
    }
    std::vector<Duration> forward, backward;
    for (const PipelineStage& stage : plan.stages) {
      forward.push_back(stage.forward);
      backward.push_back(stage.backward + stage.recomputed);
    }
    const ScheduleTimes times = time_schedule(turns_, forward, backward);
    plan.duration = times.duration;
    plan.bubble = times.bubble();
    return plan;
  }

  PipelineStage made_stage(int number, const Range& range, std::vector<int> choices) const {
    PipelineStage stage;
    stage.device = device_of(number);
    stage.chunk = number / devices();
    stage.first = range.first;
    stage.last = range.last;
    stage.in_flight = in_flight_[at(number)];
    stage.held = held(std::span(&range, 1));
    for (int b = range.first; b < range.last; ++b) {
      const BlockChoice& choice = curve(b).choices[at(choices[at(b - range.first)])];
      stage.saved += choice.saved;
      stage.forward += curve(b).forward;
      stage.backward += curve(b).backward;
      stage.recomputed += choice.extra;
    }
    stage.choices = std::move(choices);
    return stage;
  }

  /// Checks a device with the reference simulator, from its first turn until it holds most.
  void confirm(PipelinePlan& plan, const std::vector<int>& stages, int d) const {
    std::vector<Placed> placed;
    for (int number : stages) {
      const PipelineStage& stage = plan.stages[at(number)];
      for (int b = stage.first; b < stage.last; ++b) {
        const BlockChoice& choice = curve(b).choices[at(stage.choices[at(b - stage.first)])];
        placed.push_back({&blocks_[at(b)], &choice, stage.chunk});
      }
    }
    const Part part = build_part(placed, device_turns(d), options_.state_per_gradient, false);
    const auto broken = validate(part.graph, part.plan, OrderMode::kFixed, options_.budget);
    if (broken) {
      throw std::logic_error("the plan of device " + std::to_string(d) + " breaks " + broken->message);
    }
    const Simulation cost = simulate(part.graph, part.plan);
    for (int number : stages) plan.stages[at(number)].peak = cost.peak;
  }

  /// 1F1B repeats itself after the first micro-batch is through.
  std::vector<Turn> device_turns(int d) const {
    return options_.chunks == 1 ? turns_in_flight(in_flight_[at(d)]) : turns_[at(d)];
  }

  void beside() {
    const std::vector<Range> cuts = uniform_cuts();
    const int structure = commonest();
    result_.uniform_full = planned(cuts, {structure, 0});
    result_.uniform_own = planned(cuts, own());
    int first = 0;
    while (structure_of(first) != structure) ++first;
    for (const BlockChoice& choice : curve(first).choices) {
      if (limits_.reached()) break;
      auto plan = planned(cuts, {structure, choice.saved.count()});
      const auto& best = result_.uniform_same;
      if (plan && (!best || plan->duration < best->duration)) result_.uniform_same = std::move(plan);
    }
  }

  void explain() {
    if (limits_.reached()) {
      result_.reason = "no cuts found within the limits, nothing proved";
      return;
    }
    if (options_.chunks > 1) {
      result_.reason = "no cuts with a plan for every device found, nothing proved";
      return;
    }
    result_.status = proved_ ? Status::kInfeasible : Status::kUnknown;
    const int blocks = narrow<int>(blocks_.size());
    int first = 0, s = 0;
    for (; s < devices(); ++s) {
      int last = first;
      while (last < blocks && fits(s, {first, last + 1}, options_.budget)) ++last;
      if (last == first || last == blocks) break;
      first = last;
    }
    s = std::min(s, devices() - 1);
    result_.least_budget = least_budget();
    result_.reason = "stages 0 to " + std::to_string(s) + " have room for " + std::to_string(first) + " of " +
                     std::to_string(blocks) + " blocks";
  }

  bool fits(int s, const Range& range, Bytes budget) { return stage_time(s, range, budget) != kNever; }

  /// The least budget that has cuts, by bisection.
  std::optional<Bytes> least_budget() {
    std::int64_t none = options_.budget.count(), some = none;
    const auto reaches = [&](std::int64_t budget) {
      int first = 0;
      for (int s = 0; s < devices(); ++s) {
        int last = first;
        const int most = narrow<int>(blocks_.size()) - (devices() - 1 - s);
        while (last < most && fits(s, {first, last + 1}, Bytes(budget))) ++last;
        if (last == first) return false;
        first = last;
      }
      return first == narrow<int>(blocks_.size());
    };
    do {
      some = std::max<std::int64_t>(1, 2 * some);
      if (limits_.reached() || some >= kMaxCount / 4) return std::nullopt;
    } while (!reaches(some));
    while (some - none > 1) {
      if (limits_.reached()) return std::nullopt;
      const std::int64_t middle = none + (some - none) / 2;
      (reaches(middle) ? some : none) = middle;
    }
    return Bytes(some);
  }

  using Key = std::tuple<std::vector<int>, std::int64_t, std::int64_t, int, std::int64_t>;

  const PipelineOptions& options_;
  Limits& limits_;
  std::vector<std::vector<Turn>> turns_;
  std::vector<int> in_flight_;  ///< by virtual stage
  std::vector<Block> blocks_;
  std::vector<int> graphs_;     ///< by block
  std::vector<int> structure_;  ///< by curve
  int sources_ = 0;
  std::map<Key, std::optional<StageChoices>> known_;
  std::map<std::pair<int, int>, Bytes> held_;  ///< by range
  bool proved_ = true;
  PipelineResult result_;
};

}  // namespace
}  // namespace pipeline

PipelineResult plan_pipeline(const std::vector<PipelinePart>& parts, const PipelineOptions& options,
                             Limits& limits) {
  if (parts.empty()) throw UsageError("a pipeline needs at least one graph");
  for (const PipelinePart& part : parts) {
    if (part.count < 1) throw UsageError("a graph counts at least once, found " + std::to_string(part.count));
  }
  return pipeline::Planner(parts, options, limits).run();
}

}  // namespace remat
