// Bounds on duration from several chosen moments together.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "exact/stage_model.h"
#include "remat/bounds.h"
#include "remat/limits.h"

namespace remat {

/// Fixed order: the stage model (exact/stage_model.h) with stages that end at chosen moments. Moments come
/// from walks (bounds/walk.h) and are added one by one if they raise the relaxation. Then its integer
/// programs, with fewest stages first. Then the solution, read as a plan, gives the next moment: where
/// repairing it costs most. A solution within the budget is an optimal plan. Further calls continue where the
/// limits ended the last.
class Moments {
 public:
  /// The graph must outlive it.
  Moments(const Graph& graph, Bytes budget);
  ~Moments();

  /// Raises `best` as far as proved within the limits, never above `known`. Returns a plan faster than
  /// `known`, if it found one.
  std::optional<Plan> raise(std::optional<Duration> known, Limits& limits, DurationBound& best);

 private:
  class Call;
  /// An integer program that the limits interrupted.
  struct Unsettled;

  const Graph& graph_;
  Bytes budget_;
  std::vector<OpId> chosen_;
  std::vector<Duration> relaxed_;  ///< bounds of the relaxation over the first k moments, for each k
  std::vector<OpId> untried_;      ///< untried moments of the walk, the next one last
  std::vector<OpId> useless_;      ///< tried without gain since the last chosen one
  bool is_walked_ = false, is_chosen_ = false;  ///< all
  std::unique_ptr<StageModel> model_;           ///< over the chosen ones
  std::vector<double> x_;                       ///< its relaxation's solution
  std::size_t program_ = 0;                     ///< moments of the next integer program
  std::unique_ptr<Unsettled> unsettled_;
  double seconds_ = 0;  ///< of the longest relaxation
  std::int64_t work_ = 0;
  std::optional<Plan> solution_;  ///< of the last integer program, over the budget elsewhere
};

}  // namespace remat
