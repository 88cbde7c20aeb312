#include "remat/layout.h"

#include <memory>
#include <vector>

#include "c/common.h"

struct remat_layout {
  remat_layout_info info{};
  std::vector<std::int64_t> offsets, first, end, bytes, values;
};

namespace remat::c {
namespace {

/// Buffers as they are given, or those of a plan with the value that each piece holds.
struct Asked {
  LayoutProblem problem;
  std::vector<PlanPiece> pieces;
  bool of_plan = false;
};

Asked read_buffers(const remat_layout_data& data, std::int64_t alignment) {
  Asked asked;
  asked.of_plan = data.graph != nullptr;
  if (asked.of_plan) {
    if (data.num_buffers != 0)
      throw UsageError("a graph and buffers are given: a layout is of one of the two");
    const auto steps = array(data.steps, data.num_steps, "steps", "num_steps");
    const Graph& graph = data.graph->graph;
    if (const auto violation = validate(graph, steps, OrderMode::kFree)) throw InputError(violation->message);
    Plan plan;
    for (const std::int64_t op : steps) plan.steps.push_back(OpId(op));
    PlanBuffers buffers = plan_buffers(graph, plan, alignment);
    asked.problem = std::move(buffers.problem);
    asked.pieces = std::move(buffers.pieces);
    return asked;
  }
  const auto first = array(data.first, data.num_buffers, "first", "num_buffers");
  const auto end = array(data.end, data.num_buffers, "end", "num_buffers");
  const auto bytes = array(data.bytes, data.num_buffers, "bytes", "num_buffers");
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto place = "buffer " + std::to_string(i);
    if (first[i] >= end[i]) {
      throw InputError(place + ": its end " + std::to_string(end[i]) + " is not after its first " +
                       std::to_string(first[i]));
    }
    if (bytes[i] < 0 || bytes[i] >= kMaxCount) {
      throw InputError(place + ": " + std::to_string(bytes[i]) + " bytes are not from 0 to 2^62 - 1");
    }
    asked.problem.buffers.push_back({first[i], end[i], Bytes(bytes[i])});
    asked.pieces.push_back({ValueId(), {first[i], end[i], Bytes(bytes[i])}, BufferId(std::int64_t(i))});
  }
  return asked;
}

remat_layout* make_offsets(const remat_layout_data& data) {
  const auto alignment =
      std::max<std::int64_t>(1, within<std::int64_t>(data.alignment, 0, kMaxCount - 1, "alignment"));
  Asked asked = read_buffers(data, alignment);
  asked.problem.alignment = alignment;
  if (within<std::int64_t>(data.capacity, 0, kMaxCount - 1, "capacity") > 0) {
    asked.problem.capacity = Bytes(data.capacity);
  }
  Effort effort(data);
  LayoutOptions options;
  options.seed = data.seed;
  const LayoutResult result = make_layout(asked.problem, options, effort.limits());
  auto layout = std::make_unique<remat_layout>();
  for (const PlanPiece& piece : asked.pieces) {
    layout->offsets.push_back(result.offsets[piece.buffer].count());
    layout->first.push_back(piece.life.first);
    layout->end.push_back(piece.life.end);
    layout->bytes.push_back(piece.life.size.count());
    layout->values.push_back(piece.value.is_none() ? -1 : piece.value.index());
  }
  remat_layout_info& info = layout->info;
  info.status = static_cast<std::int32_t>(result.status);
  info.stopped_by = static_cast<std::int32_t>(result.stopped_by);
  info.num_buffers = std::ssize(layout->offsets);
  info.offsets = layout->offsets.data();
  info.first = layout->first.data();
  info.end = layout->end.data();
  info.bytes = layout->bytes.data();
  info.values = asked.of_plan ? layout->values.data() : nullptr;
  info.arena = result.arena.count();
  info.arena_bound = result.bound.arena.count();
  info.seconds = result.seconds;
  return layout.release();
}

}  // namespace
}  // namespace remat::c

using remat::c::guarded;
using remat::c::require;

int remat_make_layout(const remat_layout_data* data, remat_layout** layout) {
  return guarded([&] {
    require(layout, "layout");
    *layout = remat::c::make_offsets(remat::c::read_struct(data, "remat_layout_data"));
  });
}

int remat_get_layout(const remat_layout* layout, remat_layout_info* info) {
  return guarded([&] {
    require(layout, "layout");
    remat::c::write_struct(layout->info, info, "remat_layout_info");
  });
}

void remat_free_layout(remat_layout* layout) { delete layout; }
