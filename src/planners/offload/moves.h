// Small changes of a script, the moves of the search in `offload`.
#pragma once

#include <vector>

#include "planners/offload/script.h"
#include "remat/random.h"

namespace remat::offload {

class Moves {
 public:
  Moves(const Graph& graph, Random& random);

  /// False if nothing can be fetched or recomputed.
  bool any() const { return !values_.empty(); }
  /// Sets the script to change, and its peak step.
  void start_from(const Script& script, StepId peak_step);
  /// Makes one or two changes: removes a rerun or a fetch, turns one into the other, or inserts one before a
  /// reader of an idle value; with `too_much`, of a value held at the peak step.
  Script changed(bool too_much);

 private:
  /// Inserts an item before an index (or the end), or removes the item there.
  struct Edit {
    int index;
    bool erases;
    Item item;
  };

  void change_extra();
  void add_one(bool at_peak);
  Script applied();

  const Graph& graph_;
  Random& random_;
  std::vector<ValueId> values_;  ///< made by an op, and not read by the next op alone
  Script script_;
  int peak_ = 0;                                 ///< the item of the peak step
  std::vector<int> extras_;                      ///< fetches and reruns
  IndexVector<ValueId, std::vector<int>> uses_;  ///< items that make or read a value, and the end
  std::vector<Edit> edits_;
};

}  // namespace remat::offload
