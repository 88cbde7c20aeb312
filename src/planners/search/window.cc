// Free order: moves of first runs.
#include <algorithm>

#include "planners/search/moves.h"

namespace remat::search {
namespace {

/// One step, first run or not, to another place near by or at the edge of what its neighbours allow.
class Slide : public Move {
 public:
  Slide() : Move("slide", 30) {}
  bool propose(State& state) override {
    Tracker& tracker = state.tracker;
    const OccId occ = tracker.blocks().random(state.random);
    if (tracker.op(occ) >= tracker.graph().begin_op) return false;
    const auto here = tracker.key(occ);
    const std::int64_t reach = state.random.chance(0.5) ? 16 : 256;
    const auto lo = std::max<std::int64_t>(tracker.key(tracker.begin_occ()) + 1, here - reach);
    const auto hi = std::min<std::int64_t>(tracker.key(tracker.end_occ()), here + reach);
    const OccId before =
        tracker.blocks().at_or_after(static_cast<Tracker::Key>(state.random.between(lo, hi)));
    if (before == occ || tracker.next(occ) == before || !tracker.shiftable(occ, before)) return false;
    tracker.shift(occ, before);
    return true;
  }
};

/// An op with those of its ancestors (or dependents) that stand between it and its new place.
class Window : public Move {
 public:
  Window() : Move("window", 20) {}

  bool propose(State& state) override {
    Tracker& tracker = state.tracker;
    const OccId pivot = tracker.blocks().random(state.random);
    if (tracker.op(pivot) >= tracker.graph().begin_op) return false;
    const auto width = state.random.between(4, state.random.chance(0.3) ? 128 : 32);
    return state.random.chance(0.5) ? earlier(state, pivot, width) : later(state, pivot, width);
  }

 private:
  /// Moves pivot and its ancestors inside the window of `width` steps before it to the window's begin.
  bool earlier(State& state, OccId pivot, std::int64_t width) {
    Tracker& tracker = state.tracker;
    moved_.assign(1, pivot);
    OccId at = pivot;
    for (std::int64_t i = 0; i < width; ++i) {
      const OccId before = tracker.prev(at);
      if (before == tracker.begin_occ()) break;
      at = before;
      if (std::ranges::any_of(moved_, [&](OccId occ) { return needs(tracker, occ, at); }))
        moved_.push_back(at);
    }
    while (!moved_.empty() && moved_.back() == at) {  // already at the begin
      moved_.pop_back();
      at = tracker.next(at);
    }
    if (moved_.empty()) return false;
    for (std::size_t i = moved_.size(); i-- > 0;) {
      const OccId occ = moved_[i];
      if (occ == at) {
        at = tracker.next(at);
        continue;
      }
      if (!tracker.shiftable(occ, at)) return false;
      tracker.shift(occ, at);
    }
    return true;
  }

  /// The mirror image: pivot and its dependents go behind the window.
  bool later(State& state, OccId pivot, std::int64_t width) {
    Tracker& tracker = state.tracker;
    moved_.assign(1, pivot);
    OccId at = tracker.next(pivot);
    for (std::int64_t i = 0; i < width && at != tracker.end_occ(); ++i) {
      if (std::ranges::any_of(moved_, [&](OccId occ) { return needs(tracker, at, occ); }))
        moved_.push_back(at);
      at = tracker.next(at);
    }
    while (!moved_.empty() && tracker.next(moved_.back()) == at) {
      at = moved_.back();
      moved_.pop_back();
    }
    if (moved_.empty()) return false;
    for (std::size_t i = moved_.size(); i-- > 0;) {
      const OccId occ = moved_[i];
      if (!tracker.shiftable(occ, at)) return false;
      at = tracker.shift(occ, at);
    }
    return true;
  }

  /// True where step `a`, behind step `b`, reads what b makes or must otherwise stay behind it.
  static bool needs(const Tracker& tracker, OccId a, OccId b) {
    const OpId op = tracker.op(a);
    const OpId made = tracker.op(b);
    for (BundleId in : tracker.graph().inputs[op]) {
      if (tracker.graph().producer[in] == made) return true;
    }
    return std::ranges::find(tracker.graph().after[op], made) != tracker.graph().after[op].end();
  }

  std::vector<OccId> moved_;
};

}  // namespace

std::unique_ptr<Move> make_window_move() { return std::make_unique<Window>(); }
std::unique_ptr<Move> make_slide_move() { return std::make_unique<Slide>(); }

}  // namespace remat::search
