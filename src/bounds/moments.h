// Bounds on duration from few chosen moments at once.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "exact/stage_model.h"
#include "remat/bounds.h"
#include "remat/limits.h"

namespace remat {

/// Fixed order: the stage model (exact/stage_model.h) whose stages end at moments that are chosen one by one,
/// from walks (bounds/walk.h), each where it raises the relaxation; then its integer programs, the fewest
/// stages first. Then each solution, as a plan, says where it is dearest to repair: one moment more. A
/// solution that fits is the best plan. Goes on, when it is called again, where the limits ended it.
class Moments {
 public:
  /// The graph must outlive it.
  Moments(const Graph& graph, Bytes budget);
  ~Moments();

  /// Raises `best` to what was proved until the limits were reached, never above `known`. Returns a plan that
  /// is faster than that, if one was found.
  std::optional<Plan> raise(std::optional<Duration> known, Limits& limits, DurationBound& best);

 private:
  class Call;
  /// An integer program that the limits ended.
  struct Unsettled;

  const Graph& graph_;
  Bytes budget_;
  std::vector<OpId> chosen_;
  std::vector<Duration> relaxed_;  ///< what the relaxation proves over the first, the first two, ... of them
  std::vector<OpId> turn_;         ///< of the walk, not tried yet, the next one last
  std::vector<OpId> of_no_use_;    ///< since the last that was chosen
  bool is_walked_ = false, is_chosen_ = false;  ///< all
  std::unique_ptr<StageModel> model_;           ///< over the chosen ones
  std::vector<double> x_;                       ///< its relaxation's solution
  std::size_t program_ = 0;                     ///< moments of the next integer program
  std::unique_ptr<Unsettled> unsettled_;
  double seconds_ = 0;  ///< that the longest relaxation took
  std::int64_t work_ = 0;
  std::optional<Plan> solution_;  ///< of the last integer program, over the budget elsewhere
};

}  // namespace remat
