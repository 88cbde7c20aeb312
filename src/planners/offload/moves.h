// Small changes of a script: what the search of `offload` tries.
#pragma once

#include <vector>

#include "planners/offload/script.h"
#include "remat/random.h"

namespace remat::offload {

class Moves {
 public:
  Moves(const Graph& graph, Random& random);

  /// False where nothing can be fetched or made again.
  bool any() const { return !values_.empty(); }
  /// The script that is changed from now on, and the step at which it holds most.
  void start_from(const Script& script, StepId peak_step);
  /// One or two changes: a rerun or a fetch goes, or becomes the other; or one comes, before a reader of a
  /// value that waits for it, where `too_much` is true of a value that is held at the dearest step.
  Script changed(bool too_much);

 private:
  /// Before the item at an index (or the end) comes another one, or the item itself goes.
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
  std::vector<ValueId> values_;  ///< that an op makes and that are not read by the next op alone
  Script script_;
  int peak_ = 0;                                 ///< the item of the dearest step
  std::vector<int> extras_;                      ///< fetches and reruns
  IndexVector<ValueId, std::vector<int>> uses_;  ///< items that make or read a value, and the end
  std::vector<Edit> edits_;
};

}  // namespace remat::offload
