// The state of one search thread, and the cost by which it judges moves.
#pragma once

#include <cstdint>
#include <vector>

#include "base/numbers.h"
#include "plan/tracker.h"
#include "remat/random.h"

namespace remat::search {

/// Every technique that can be switched off (`--set NAME=off`), and the numbers that can be set. Described by
/// the table in search.cc; measured in docs/planners/search.md.
struct Options {
  bool insert_chain = true;
  bool erase = true;
  bool shift = true;
  bool insert_erase = true;
  bool erase_insert = true;
  bool deep_chain = true;
  bool window = true;
  bool aim = true;
  bool trim = true;
  bool restart = true;
  bool mix = true;
  bool adapt = true;
  bool constructive = true;
  bool retention = true;
  double reheat = 0.5;
  double hot = 0.05;
  double cold = 0.01;
  double coolest = 0.1;
  std::int64_t cycle = 300;
  double growth = 1.3;
  double cooling = 8;
  double lead = 0.65;
  double restarts = 0.5;
  double constructive_below = 0.5;
  double constructive_share = 0.15;
  double peak_share = 0.7;
};

/// A place where an instance is read: op `reader` reads `bundle`.
struct Use {
  OpId reader;
  BundleId bundle;
};

/// One thread's sequence with its own random numbers. Cost = duration + price * excess.
struct State {
  State(const StepModel& graph, OrderMode order, std::uint64_t seed) : tracker(graph, order), random(seed) {}

  double cost(const Change& change) const { return real(change.duration) + price * real(change.excess); }
  /// Cost of all pending edits.
  double pending_cost() { return cost(tracker.change()); }

  Tracker tracker;
  Random random;
  double price = 0;
  /// A move is accepted if its cost is at most this, drawn for every move from the temperature, so that moves
  /// can give up early.
  double threshold = 0;
  std::int64_t ticks = 0;   ///< work of moves, without the tracker's own
  bool aimed = true;        ///< Options::aim
  std::vector<OpId> chain;  ///< scratch: ops of the chain that is being tried
  std::vector<Use> uses;    ///< all of them, the pseudo step at the end included
};

}  // namespace remat::search
