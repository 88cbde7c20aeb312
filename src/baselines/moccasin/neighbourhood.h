// Which ops to free when the rest of a plan stays as it is: large neighbourhoods for the stage form.
//
// An op is idle between two uses (its run or a read of its outputs) that are more than a stage apart. Over
// that gap its outputs are either held, and may be dropped at the price of a rerun, or dropped, and may be
// held instead:
//
//   stage      3    4    5    6    7    8
//   held       made ============== read         dropping it lowers stages 4 to 7
//   dropped    read                again read   holding it saves the rerun and raises stages 4 to 7
#pragma once

#include <vector>

#include "exact/interval_shape.h"
#include "remat/random.h"

namespace remat::moccasin {

/// Stages (first, end), both exclusive, in which an op's outputs are idle.
struct Gap {
  OpId op;
  std::int64_t first, end;
  bool dropped;
  bool contains(std::int64_t stage) const { return first < stage && stage < end; }
};

class Neighbourhoods {
 public:
  /// A plan of the shape, in stage form.
  Neighbourhoods(const Graph& graph, const Shape& shape, const Plan& plan);

  /// Largest memory of the steps of each stage.
  const std::vector<Bytes>& levels() const { return levels_; }
  bool has_reruns() const { return !dropped_.empty(); }

  /// Up to `size` ops whose change may lower the memory of `stage`.
  std::vector<OpId> around(std::int64_t stage, std::size_t size, Random& random) const;
  /// Up to `size` ops whose change may save one of the reruns. There must be one.
  std::vector<OpId> around_some_rerun(std::size_t size, Random& random) const;

  /// The shape with all ops pinned to the plan but these.
  Shape freed(const std::vector<OpId>& ops) const;

 private:
  void find_gaps();
  std::vector<OpId> pick(std::int64_t stage, std::vector<OpId> chosen, std::size_t size,
                         Random& random) const;

  const Graph& graph_;
  const Shape& shape_;
  IndexVector<OpId, std::vector<std::int64_t>> stages_;
  std::vector<Bytes> levels_;
  std::vector<Gap> gaps_;
  std::vector<Gap> dropped_;
};

}  // namespace remat::moccasin
