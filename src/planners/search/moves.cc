#include "planners/search/moves.h"

#include <algorithm>

#include "base/numbers.h"

namespace remat::search {
namespace {

constexpr int kMaxChain = 24;
constexpr int kUseDraws = 6;
constexpr int kEraseCandidates = 6;
constexpr int kInsertCandidates = 8;

OccId random_recomputation(State& state) {
  const auto& all = state.tracker.recomputations();
  if (all.empty()) return OccId::none();
  return all[at(state.random.below(std::ssize(all)))];
}

/// A random run of `op`: mostly the last, where gaps are.
OccId random_run(State& state, OpId op) {
  OccId occ = state.tracker.last(op);
  while (state.tracker.prev_run(occ) && state.random.chance(0.4)) occ = state.tracker.prev_run(occ);
  return occ;
}

/// The ops to run, in order, so that `op` can run just before a step without prolonging what is dead there:
/// its dead inputs' producers, theirs, and so on, each taken with `chance`; `op` itself comes last. Nothing
/// is edited. False where their duration alone is over the limit.
class Chain {
 public:
  Chain(State& state, OccId before, double chance, double limit)
      : state_(state), tracker_(state.tracker), at_(tracker_.key(before)), chance_(chance), room_(limit) {
    state.chain.clear();
  }

  bool collect(OpId op) {
    room_ -= real(tracker_.graph().duration[op]);
    if (room_ < 0) return false;
    ++depth_;
    for (BundleId b : tracker_.graph().inputs[op]) {
      const OpId producer = tracker_.graph().producer[b];
      if (!tracker_.graph().recomputable(producer)) continue;
      const OccId made = tracker_.newest_before(producer, at_);
      if (tracker_.key(tracker_.last_reader(made, b)) >= at_) continue;
      if (depth_ + std::ssize(state_.chain) >= kMaxChain) continue;
      if (chance_ < 1 && !state_.random.chance(chance_)) continue;
      if (std::ranges::find(state_.chain, producer) != state_.chain.end()) continue;
      if (!collect(producer)) return false;
    }
    --depth_;
    state_.chain.push_back(op);
    return true;
  }

 private:
  State& state_;
  Tracker& tracker_;
  Tracker::Key at_;
  double chance_;
  double room_;
  std::int64_t depth_ = 0;
};

/// The place in the gap (cut, reader] for the recomputation.
OccId place_in_gap(State& state, OpId op, OccId cut, OccId reader) {
  Tracker& tracker = state.tracker;
  const auto draw = state.random.below(4);
  if (draw < 2) return reader;
  const auto lo = tracker.key(cut) + 1;
  const auto hi = tracker.key(reader);
  if (draw == 2) return tracker.blocks().at_or_after(static_cast<Tracker::Key>(state.random.between(lo, hi)));
  // Up to where all of its own inputs are still alive.
  auto until = hi;
  OccId last = reader;
  for (BundleId b : tracker.graph().inputs[op]) {
    const OccId made = tracker.newest_before(tracker.graph().producer[b], hi);
    const OccId end = tracker.last_reader(made, b);
    if (tracker.key(end) < until) {
      until = tracker.key(end);
      last = end;
    }
  }
  if (last == reader) return reader;
  return until < lo ? tracker.next(cut) : tracker.next(last);
}

}  // namespace

bool insert_for_random_use(State& state, double limit, OccId across) {
  Tracker& tracker = state.tracker;
  if (state.uses.empty()) return false;
  OpId op;
  OccId reader, cut;
  for (int draw = 0; draw < (across ? kUseDraws : 1); ++draw) {
    const Use use = state.uses[at(state.random.below(std::ssize(state.uses)))];
    op = tracker.graph().producer[use.bundle];
    reader = random_run(state, use.reader);
    const auto at = tracker.key(reader);
    cut = OccId::none();
    if (real(tracker.graph().duration[op]) > limit) continue;
    if (across && at <= tracker.key(across)) continue;
    const OccId made = tracker.newest_before(op, at);
    cut = tracker.last_reader_before(made, use.bundle, at);
    if (tracker.next(cut) == reader || (across && tracker.key(cut) >= tracker.key(across))) {
      cut = OccId::none();
      continue;
    }
    break;
  }
  if (!cut) return false;
  const OccId before = place_in_gap(state, op, cut, reader);
  const auto draw = state.random.below(8);
  const double chance = draw < 3 ? 1.0 : draw < 5 ? 0.5 : 0.0;
  if (!Chain(state, before, chance, limit).collect(op)) return false;
  for (OpId run : state.chain) tracker.insert(run, before);
  return true;
}

OccId step_over_budget(State& state) {
  const StepBlocks& blocks = state.tracker.blocks();
  if (state.tracker.excess() == 0) return OccId::none();
  const auto n = static_cast<std::int64_t>(blocks.num_blocks());
  for (int draw = 0; draw < 8; ++draw) {
    const auto rank = narrow<std::size_t>(state.random.below(n));
    if (!blocks.may_exceed(rank)) continue;
    if (const OccId occ = blocks.random_over(rank, state.random)) return occ;
  }
  return OccId::none();
}

namespace {

class InsertChain : public Move {
 public:
  InsertChain() : Move("insert_chain", 30) {}
  bool propose(State& state) override {
    const double limit = state.threshold + state.price * real(state.tracker.excess());
    return insert_for_random_use(state, limit, aim(state));
  }

 private:
  /// Mostly a random step over the budget, where there are any: only gaps around it can help.
  static OccId aim(State& state) {
    if (!state.aimed || state.tracker.excess() == 0 || state.random.chance(0.2)) return OccId::none();
    return step_over_budget(state);
  }
};

class Erase : public Move {
 public:
  explicit Erase(int weight) : Move("erase", weight) {}
  bool propose(State& state) override {
    const OccId occ = random_recomputation(state);
    if (!occ) return false;
    state.tracker.erase(occ);
    return true;
  }
};

/// The first step that reads any instance made by `occ`, or none.
OccId first_reader(const Tracker& tracker, OccId occ) {
  OccId best;
  for (BundleId b : tracker.graph().bundles(tracker.op(occ))) {
    const OccId reader = tracker.first_reader(occ, b);
    if (reader && (!best || tracker.key(reader) < tracker.key(best))) best = reader;
  }
  return best;
}

class Shift : public Move {
 public:
  explicit Shift(int weight) : Move("shift", weight) {}
  bool propose(State& state) override {
    Tracker& tracker = state.tracker;
    const OccId occ = random_recomputation(state);
    if (!occ) return false;
    const OccId before = target(state, occ);
    if (!before || before == occ || tracker.next(occ) == before || !tracker.shiftable(occ, before))
      return false;
    tracker.shift(occ, before);
    return true;
  }

 private:
  static OccId target(State& state, OccId occ) {
    Tracker& tracker = state.tracker;
    const OccId reader = first_reader(tracker, occ);
    if (!reader) return OccId::none();
    const auto draw = state.random.below(4);
    if (draw == 0) return reader;
    const auto here = tracker.key(occ);
    if (draw == 1) {  // a few steps to either side
      const auto lo = std::max<std::int64_t>(tracker.key(tracker.begin_occ()) + 1, here - 16);
      const auto hi = std::min<std::int64_t>(tracker.key(reader), here + 17);
      return tracker.blocks().at_or_after(static_cast<Tracker::Key>(state.random.between(lo, hi)));
    }
    if (draw == 2) {  // anywhere since the run before
      const auto lo = tracker.key(tracker.prev_run(occ)) + 1;
      return tracker.blocks().at_or_after(
          static_cast<Tracker::Key>(state.random.between(lo, tracker.key(reader))));
    }
    // Right behind the last step that reads one of its inputs anyway.
    OccId best;
    for (BundleId b : tracker.graph().inputs[tracker.op(occ)]) {
      const OccId made = tracker.newest_before(tracker.graph().producer[b], here);
      const OccId end = tracker.last_reader(made, b);
      const OccId other = end == occ ? tracker.last_reader_before(made, b, here) : end;
      if (!best || tracker.key(other) < tracker.key(best)) best = other;
    }
    return best && best != tracker.end_occ() ? tracker.next(best) : OccId::none();
  }
};

class InsertErase : public Move {
 public:
  explicit InsertErase(int weight) : Move("insert_erase", weight) {}
  bool propose(State& state) override {
    Tracker& tracker = state.tracker;
    double saved = 0;
    candidates_.clear();
    for (int i = 0; i < kEraseCandidates; ++i) {
      const OccId occ = random_recomputation(state);
      if (!occ) return false;
      saved = std::max(saved, real(tracker.graph().duration[tracker.op(occ)]));
      candidates_.push_back(occ);
    }
    // Steps read only by an erased one go with it, so more than its own time may be saved.
    const double limit = state.threshold + state.price * real(tracker.excess()) + 2 * saved;
    return insert_for_random_use(state, limit, OccId::none()) && erase_best(state);
  }

 private:
  bool erase_best(State& state) {
    Tracker& tracker = state.tracker;
    const Tracker::Mark mark = tracker.mark();
    double best_cost = 0;
    OccId best;
    for (const OccId occ : candidates_) {
      if (occ == best) continue;
      tracker.erase(occ);
      tracker.trim();
      const double cost = state.pending_cost();
      if (!best || cost < best_cost) {
        best = occ;
        best_cost = cost;
      }
      tracker.rollback(mark);
    }
    if (best_cost > state.threshold) return false;
    tracker.erase(best);
    tracker.trim();
    return true;
  }

  std::vector<OccId> candidates_;
};

class EraseInsert : public Move {
 public:
  explicit EraseInsert(int weight) : Move("erase_insert", weight) {}
  bool propose(State& state) override {
    Tracker& tracker = state.tracker;
    const OccId occ = random_recomputation(state);
    if (!occ) return false;
    // Without the erased step, its value is kept across the step before it, where memory is then short.
    OccId across = state.aimed ? tracker.prev(occ) : OccId::none();
    tracker.erase(occ);
    tracker.trim();
    if (across && !tracker.present(across)) across = OccId::none();
    // A candidate is stored as the generator's state from which it can be drawn again.
    const Tracker::Mark mark = tracker.mark();
    Random best_draw = state.random;
    double best_room = 0;
    double best_cost = state.pending_cost();
    bool found = false;
    for (int i = 0; i < kInsertCandidates; ++i) {
      const Random draw = state.random;
      const double room = best_cost - state.cost({tracker.pending_duration(), -tracker.excess()});
      if (insert_for_random_use(state, room, across)) {
        const double cost = state.pending_cost();
        if (cost < best_cost) {
          best_cost = cost;
          best_draw = draw;
          best_room = room;
          found = true;
        }
      }
      tracker.rollback(mark);
    }
    if (!found) return true;
    const Random now = state.random;
    state.random = best_draw;
    insert_for_random_use(state, best_room, across);
    state.random = now;
    return true;
  }
};

/// Shares of the draws. In free order few recomputations remain, and their choice matters more: many quick
/// exchanges instead of few slow ones.
struct Weights {
  int erase, shift, insert_erase, erase_insert;
};
constexpr Weights kFixedOrder{20, 20, 15, 15}, kFreeOrder{10, 10, 30, 4};

}  // namespace

std::vector<std::unique_ptr<Move>> make_moves(const Options& options, OrderMode order) {
  const Weights& weights = order == OrderMode::kFree ? kFreeOrder : kFixedOrder;
  std::vector<std::unique_ptr<Move>> moves;
  if (options.insert_chain) moves.push_back(std::make_unique<InsertChain>());
  if (options.deep_chain) moves.push_back(make_deep_chain_move());
  if (options.erase) moves.push_back(std::make_unique<Erase>(weights.erase));
  if (options.shift) moves.push_back(std::make_unique<Shift>(weights.shift));
  if (options.insert_erase) moves.push_back(std::make_unique<InsertErase>(weights.insert_erase));
  if (options.erase_insert) moves.push_back(std::make_unique<EraseInsert>(weights.erase_insert));
  if (order == OrderMode::kFree && options.window) {
    moves.push_back(make_window_move());
    moves.push_back(make_slide_move());
  }
  return moves;
}

}  // namespace remat::search
