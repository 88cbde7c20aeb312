// Which plans the interval model holds, and at which events their runs can start.
#pragma once

#include <optional>
#include <vector>

#include "base/numbers.h"
#include "remat/plan.h"

namespace remat::moccasin {

enum class Form { kStage, kEvents };

/// Which plans the model holds.
struct Shape {
  Form form = Form::kStage;
  OrderMode order = OrderMode::kFixed;
  IndexVector<OpId, int> runs;           ///< most runs of each op, at least 1
  IndexVector<OpId, bool> rerun_useful;  ///< false: some best plan runs the op once
  /// Stage form: stages of the runs of ops that stay as they are; empty where an op is free. With most ops
  /// pinned to a plan, the model is a neighbourhood of that plan.
  IndexVector<OpId, std::vector<std::int64_t>> pinned;
  /// Last stage (graph order; num_ops for the end of the plan) in which a run of the op can be useful.
  IndexVector<OpId, std::int64_t> last_use;
};

/// At most `c` runs of every op, and one run where a second is never useful: the op must not be recomputed,
/// its outputs hold no bytes, or (fixed order) all its uses come right after its first run.
Shape make_shape(const Graph& graph, OrderMode order, Form form, int c);
/// Raises the number of runs to those of the plan, so that the plan is in the model.
void admit(const Graph& graph, const Plan& plan, Shape& shape);

/// A lower bound on the duration of every plan outside the shape: some op exceeds its runs, or (stage form)
/// two recomputations of one stage or two first runs are out of order. Nothing if the shape excludes no
/// useful plan.
std::optional<Duration> least_duration_outside(const Graph& graph, const Shape& shape);

/// Stages of the runs of each op in a plan in fixed order: the number of first runs before.
IndexVector<OpId, std::vector<std::int64_t>> run_stages(const Graph& graph, const Plan& plan);

/// Events at which each op can start, and back.
class Timeline {
 public:
  Timeline(const Graph& graph, const Shape& shape);
  std::int64_t end() const { return end_; }
  /// Stage form: ascending; the first is that of the first run.
  const std::vector<std::int64_t>& events(OpId op) const { return events_[op]; }
  /// Stage form: first event of stage t in [0, num_ops + 1].
  std::int64_t stage_begin(std::int64_t t) const { return stage_begin_[at(t)]; }
  /// Start of each run of each op; nothing where the plan is not in the shape.
  std::optional<IndexVector<OpId, std::vector<std::int64_t>>> starts(const Graph& graph, const Shape& shape,
                                                                     const Plan& plan) const;

 private:
  void add(OpId op, std::int64_t stage);

  std::int64_t end_ = 0;
  IndexVector<OpId, std::vector<std::int64_t>> stages_, events_;
  std::vector<std::int64_t> stage_begin_;
};

/// The plan changed to match the shape as far as possible: useless reruns are removed, and in stage form the
/// reruns of each stage are sorted, without duplicates. Valid; its peak may differ.
Plan shaped(const Graph& graph, const Shape& shape, const Plan& plan);

}  // namespace remat::moccasin
