// Objective peak: the other moves recompute at most 24 nearby ops. Near the least peak it pays to drop the
// results of whole layers, and to recompute them where memory is lowest, even long before they are read.
#include <algorithm>

#include "planners/search/moves.h"

namespace remat::search {
namespace {

/// Drops a value in memory across a step over the budget, and recomputes it with all that it needs in one
/// chain, mostly at the step with the least memory before its reader.
class DeepChain : public Move {
 public:
  DeepChain() : Move("deep_chain", 4) {}

  bool propose(State& state) override {
    Tracker& tracker = state.tracker;
    const OccId across = step_over_budget(state);
    if (!across) return false;
    const auto [op, reader] = draw_across(state, across);
    if (!reader) return false;
    const OccId before = state.random.chance(0.25) ? reader : lowest(state, across, reader);
    // Longer chains pay on dense graphs, but take as long as many shorter ones.
    ops_left_ = state.random.chance(0.75) ? kMostOps : kMostOpsOfLong;
    if (reader == tracker.end_occ()) ops_left_ = std::min(ops_left_, kMostOpsOfKept);
    room_ = state.threshold + state.price * real(tracker.excess());
    in_chain_.resize(tracker.graph().duration.size(), 0);
    ++generation_;
    state.chain.clear();
    if (!collect(state, op, tracker.key(before))) return false;
    for (OpId run : state.chain) tracker.insert(run, before);
    return true;
  }

 private:
  static constexpr std::int64_t kMostLooks = 2000;
  static constexpr std::int64_t kMostOps = 128, kMostOpsOfLong = 1024, kMostOpsOfKept = 256;

  struct Drawn {
    OpId op;
    OccId reader;
  };

  /// An op with an output that is alive across the step and not read by it, and the next step that reads it.
  /// Outputs only held to the end are drawn less often: recomputing a gradient takes most of the graph.
  static Drawn draw_across(State& state, OccId across) {
    const Tracker& tracker = state.tracker;
    const StepModel& graph = tracker.graph();
    const auto at = tracker.key(across);
    const auto ops = static_cast<std::int64_t>(graph.graph->num_ops());
    const std::int64_t looks = std::min(ops, kMostLooks), first = state.random.below(ops);
    OccId made;
    BundleId bundle;
    std::int64_t count = 0;
    const bool with_kept = state.random.chance(0.75);
    state.ticks += looks;
    for (std::int64_t i = 0; i < looks; ++i) {
      const OpId op((first + i) % ops);
      if (!graph.recomputable(op)) continue;
      const OccId run = tracker.newest_before(op, at);
      if (!run) continue;
      for (BundleId b : graph.bundles(op)) {
        const OccId end = tracker.last_reader(run, b);
        if (tracker.key(end) <= at || (!with_kept && end == tracker.end_occ())) continue;
        if (state.random.below(++count) != 0) continue;
        made = run;
        bundle = b;
      }
    }
    if (!made || tracker.last_reader_before(made, bundle, at + 1) == across) return {};
    return {tracker.op(made), reader_behind(tracker, made, bundle, at)};
  }

  static OccId reader_behind(const Tracker& tracker, OccId made, BundleId bundle, Tracker::Key at) {
    OccId reader = tracker.last_reader(made, bundle);
    while (true) {
      const OccId before = tracker.last_reader_before(made, bundle, tracker.key(reader));
      if (tracker.key(before) <= at) return reader;
      reader = before;
    }
  }

  /// The step with the least memory after `across` and up to the reader.
  static OccId lowest(State& state, OccId across, OccId reader) {
    const Tracker& tracker = state.tracker;
    OccId best = reader, occ = reader;
    std::int64_t least = tracker.blocks().memory(reader);
    for (std::int64_t i = 0; i < kMostLooks; ++i) {
      occ = tracker.prev(occ);
      if (occ == across) break;
      ++state.ticks;
      const std::int64_t memory = tracker.blocks().memory(occ);
      if (memory >= least) continue;
      least = memory;
      best = occ;
    }
    return best;
  }

  /// Appends the op after all its inputs that are dead here. False if that takes too many ops or too long.
  bool collect(State& state, OpId op, Tracker::Key at) {
    const Tracker& tracker = state.tracker;
    const StepModel& graph = tracker.graph();
    in_chain_[op] = generation_;
    room_ -= real(graph.duration[op]);
    if (room_ < 0 || --ops_left_ < 0) return false;
    ++state.ticks;
    const auto inputs = graph.inputs[op];
    const auto n = std::ssize(inputs);
    // In random sequence: the chain computed first stays in memory during the other.
    const std::int64_t first = n > 1 ? state.random.below(n) : 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const BundleId b = inputs[narrow<std::size_t>((first + i) % n)];
      const OpId producer = graph.producer[b];
      if (!graph.recomputable(producer) || in_chain_[producer] == generation_) continue;
      const OccId made = tracker.newest_before(producer, at);
      if (tracker.key(tracker.last_reader(made, b)) >= at) continue;
      if (!collect(state, producer, at)) return false;
    }
    state.chain.push_back(op);
    return true;
  }

  IndexVector<OpId, std::int64_t> in_chain_;  ///< the generation in which the op was added
  std::int64_t generation_ = 0;
  std::int64_t ops_left_ = 0;
  double room_ = 0;
};

}  // namespace

std::unique_ptr<Move> make_deep_chain_move() { return std::make_unique<DeepChain>(); }

}  // namespace remat::search
