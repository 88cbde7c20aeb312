// Free order: moves of first runs.
#include <algorithm>

#include "planners/search/moves.h"

namespace remat::search {
namespace {

/// Moves one step, first run or not, to a nearby place or to the limit that its dependencies allow.
class Slide : public Move {
 public:
  Slide() : Move("slide", 30) {}
  bool propose(State& state) override {
    Tracker& tracker = state.tracker;
    const OccId occ = tracker.blocks().random(state.random);
    if (tracker.op(occ) >= tracker.graph().begin_op) return false;
    const OccId before = target(state, occ);
    if (before == occ || tracker.next(occ) == before || !tracker.shiftable(occ, before)) return false;
    tracker.shift(occ, before);
    return true;
  }

 private:
  static OccId target(State& state, OccId occ) {
    const Tracker& tracker = state.tracker;
    const auto here = tracker.key(occ);
    const std::int64_t reach = state.random.chance(0.5) ? 16 : 256;
    if (state.random.chance(0.5)) {
      const OccId last = last_needed(tracker, occ);
      if (state.random.chance(0.5)) return tracker.next(last);
      const auto lo = std::max<std::int64_t>(tracker.key(last) + 1, here - reach);
      return tracker.blocks().at_or_after(static_cast<Tracker::Key>(state.random.between(lo, here)));
    }
    const OccId first = first_dependent(tracker, occ);
    if (state.random.chance(0.5)) return first;
    const auto hi = std::min<std::int64_t>(tracker.key(first), here + reach);
    return tracker.blocks().at_or_after(static_cast<Tracker::Key>(state.random.between(here, hi)));
  }

  /// The last of the steps that have to stay before it.
  static OccId last_needed(const Tracker& tracker, OccId occ) {
    const StepModel& graph = tracker.graph();
    OccId last = tracker.begin_occ();
    const auto see = [&](OpId op) {
      const OccId head = tracker.first(op);
      if (tracker.key(head) > tracker.key(last)) last = head;
    };
    for (BundleId b : graph.inputs[tracker.op(occ)]) see(graph.producer[b]);
    for (OpId op : graph.after[tracker.op(occ)]) see(op);
    return last;
  }

  /// The first of the steps that have to stay behind it.
  static OccId first_dependent(const Tracker& tracker, OccId occ) {
    const StepModel& graph = tracker.graph();
    const auto here = tracker.key(occ);
    OccId first = tracker.end_occ();
    const auto see = [&](OccId other) {
      if (other && tracker.key(other) > here && tracker.key(other) < tracker.key(first)) first = other;
    };
    for (BundleId b : graph.bundles(tracker.op(occ))) see(tracker.first_reader(occ, b));
    for (OpId op : graph.before[tracker.op(occ)]) see(tracker.first(op));
    return first;
  }
};

/// Moves an op together with its ancestors (or dependents) between it and its new place. Needs no validity
/// check: dependencies are by op, whichever run it is. Drawn seldom, since it takes ten times as long as a
/// slide.
class Window : public Move {
 public:
  Window() : Move("window", 5) {}

  bool propose(State& state) override {
    Tracker& tracker = state.tracker;
    const OccId pivot = tracker.blocks().random(state.random);
    if (tracker.op(pivot) >= tracker.graph().begin_op) return false;
    const auto width = state.random.between(4, state.random.chance(0.3) ? 128 : 32);
    marked_.resize(tracker.graph().duration.size(), 0);
    ++generation_;
    first_.clear();
    second_.clear();
    return state.random.chance(0.5) ? earlier(state, pivot, width) : later(state, pivot, width);
  }

 private:
  bool earlier(State& state, OccId pivot, std::int64_t width) {
    const Tracker& tracker = state.tracker;
    first_.push_back(pivot);
    mark_needed(tracker, pivot);
    OccId at = pivot;
    for (std::int64_t i = 0; i < width; ++i) {
      at = tracker.prev(at);
      if (at == tracker.begin_occ()) break;
      if (marked_[tracker.op(at)] == generation_) {
        first_.push_back(at);
        mark_needed(tracker, at);
      } else {
        second_.push_back(at);
      }
    }
    state.ticks += (std::ssize(first_) + std::ssize(second_)) / 2;
    std::ranges::reverse(first_);
    std::ranges::reverse(second_);
    return swap(state, tracker.next(pivot));
  }

  /// The mirror image: moves the pivot and its dependents behind the window.
  bool later(State& state, OccId pivot, std::int64_t width) {
    const Tracker& tracker = state.tracker;
    second_.push_back(pivot);
    marked_[tracker.op(pivot)] = generation_;
    OccId at = tracker.next(pivot);
    for (std::int64_t i = 0; i < width && at != tracker.end_occ(); ++i) {
      const bool moves = needs_marked(tracker, at);
      if (moves) marked_[tracker.op(at)] = generation_;
      (moves ? second_ : first_).push_back(at);
      at = tracker.next(at);
    }
    state.ticks += (std::ssize(first_) + std::ssize(second_)) / 2;
    return swap(state, at);
  }

  /// Puts all of `first_` before all of `second_`, which together end before `end`. The fewer ones move.
  bool swap(State& state, OccId end) {
    Tracker& tracker = state.tracker;
    if (first_.empty() || second_.empty()) return false;
    if (first_.size() < second_.size()) {
      std::size_t i = 0;
      // Some stand at the begin already.
      OccId at = tracker.key(first_[0]) < tracker.key(second_[0]) ? first_[0] : second_[0];
      for (; i < first_.size() && first_[i] == at; ++i) at = tracker.next(at);
      for (; i < first_.size(); ++i) tracker.shift(first_[i], at);
      return true;
    }
    std::size_t i = second_.size();
    for (; i > 0 && tracker.next(second_[i - 1]) == end; --i) end = second_[i - 1];
    for (; i > 0; --i) end = tracker.shift(second_[i - 1], end);
    return true;
  }

  void mark_needed(const Tracker& tracker, OccId occ) {
    const StepModel& graph = tracker.graph();
    const OpId op = tracker.op(occ);
    for (BundleId in : graph.inputs[op]) marked_[graph.producer[in]] = generation_;
    for (OpId before : graph.after[op]) marked_[before] = generation_;
  }
  bool needs_marked(const Tracker& tracker, OccId occ) const {
    const StepModel& graph = tracker.graph();
    const OpId op = tracker.op(occ);
    const auto is_marked = [&](OpId other) { return marked_[other] == generation_; };
    return std::ranges::any_of(graph.inputs[op],
                               [&](BundleId in) { return is_marked(graph.producer[in]); }) ||
           std::ranges::any_of(graph.after[op], is_marked);
  }

  std::vector<OccId> first_, second_;       ///< of the window, in their new order
  IndexVector<OpId, std::int64_t> marked_;  ///< the generation in which the op was marked
  std::int64_t generation_ = 0;
};

}  // namespace

std::unique_ptr<Move> make_window_move() { return std::make_unique<Window>(); }
std::unique_ptr<Move> make_slide_move() { return std::make_unique<Slide>(); }

}  // namespace remat::search
