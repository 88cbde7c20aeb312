// What one searching thread works on, and the objective that its moves are judged by.
#pragma once

#include <cstdint>
#include <vector>

#include "base/numbers.h"
#include "plan/tracker.h"
#include "remat/random.h"

namespace remat::search {

/// Every technique that can be switched off (`--set NAME=off`), and the numbers that can be set. What each is
/// worth stands in docs/planners/search.md.
struct Options {
  bool insert_chain = true;  ///< insert a recomputation together with its dead predecessors
  bool erase = true;         ///< erase a recomputation
  bool shift = true;         ///< move a recomputation to another place
  bool insert_erase = true;  ///< insert one, then erase the best of several others
  bool erase_insert = true;  ///< erase one, then insert the best of several others
  bool deep_chain = true;    ///< objective peak: drop across a dear step, however much it takes to make again
  bool window = true;        ///< free order: reorder steps inside a window
  bool aim = true;           ///< insertions look for gaps around steps where memory is short
  bool trim = true;          ///< drop what nobody reads after every move
  bool restart = true;       ///< some cycles begin from a start plan and not from the best
  bool mix = true;           ///< cycles differ in the temperature at which they begin
  bool adapt = true;         ///< the price of excess follows feasibility
  bool constructive = true;  ///< begin from constructive low-memory plans where keep-all is over the budget
  bool retention = true;     ///< begin from the best choices at the moments of the peak
  double reheat = 0.5;       ///< cycles that begin from the best plan begin at this share of `hot`
  double hot = 0.05;         ///< temperature at the start of a cycle, in mean recomputations
  double cold = 0.01;        ///< and at its end
  double coolest = 0.1;      ///< free order: of both, where few ops run again
  std::int64_t cycle = 300;  ///< moves per op in the first cycle
  double growth = 1.3;       ///< each cycle is longer than the last by this factor
  double cooling = 8;        ///< a cycle ends at most at this part of the temperature at which it began
  double lead = 0.65;        ///< share of the cycles that the line with the better plan gets
  double restarts = 0.5;     ///< share of the cycles of `restart`; half of it in free order
  double constructive_below = 0.5;   ///< of the keep-all peak: budgets for which `constructive` is of use
  double constructive_share = 0.15;  ///< of the limits, for making those plans
  double peak_share = 0.7;  ///< objective peak: of the limits; the rest makes a plan of that peak faster
};

/// A place where an instance is read: op `reader` reads `bundle`.
struct Use {
  OpId reader;
  BundleId bundle;
};

/// One thread's sequence with its own random numbers. Cost = duration + price * excess.
struct State {
  State(const TrackerGraph& graph, OrderMode order, std::uint64_t seed)
      : tracker(graph, order), random(seed) {}

  double cost(const Change& change) const { return real(change.duration) + price * real(change.excess); }
  /// Cost of all pending edits.
  double pending_cost() { return cost(tracker.change()); }

  Tracker tracker;
  Random random;
  double price = 0;
  /// A move is taken where its cost is at most this: drawn anew for every move from the temperature, so
  /// that moves can give up early.
  double threshold = 0;
  std::int64_t ticks = 0;   ///< looks of moves beside those that the tracker counts
  bool aimed = true;        ///< Options::aim
  std::vector<OpId> chain;  ///< scratch: ops of the chain that is being tried
  std::vector<Use> uses;    ///< all of them, the pseudo step at the end included
};

}  // namespace remat::search
