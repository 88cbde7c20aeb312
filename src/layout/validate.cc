// The validator of layouts, independent of the code that makes them.
#include <algorithm>
#include <array>
#include <iterator>
#include <map>

#include "base/numbers.h"
#include "remat/layout.h"

namespace remat {

std::string_view to_string(LayoutRule rule) {
  static constexpr std::array<std::string_view, 4> kNames{"every_buffer", "in_range", "aligned", "disjoint"};
  return kNames[at(rule)];
}

namespace {

std::string spell(const LayoutProblem& problem, std::span<const Bytes> offsets, BufferId id) {
  const std::int64_t offset = offsets[at(id)].count();
  const Buffer& buffer = problem.buffers[id];
  return "buffer " + std::to_string(id.index()) + " at [" + std::to_string(offset) + ", " +
         to_string(Wide{offset} + buffer.size.count()) + ") living in [" + std::to_string(buffer.first) +
         ", " + std::to_string(buffer.end) + ")";
}

std::optional<LayoutViolation> misplaced(const LayoutProblem& problem, std::span<const Bytes> offsets,
                                         Bytes arena) {
  for (BufferId id : problem.buffers.ids()) {
    const Bytes offset = offsets[at(id)];
    const auto end = checked_add(offset, problem.buffers[id].size);
    if (offset < Bytes() || !end || *end > arena) {
      return LayoutViolation{LayoutRule::kInRange, id,
                             spell(problem, offsets, id) + " is outside the arena of " +
                                 std::to_string(arena.count()) + " bytes"};
    }
    if (offset.count() % problem.alignment != 0) {
      return LayoutViolation{
          LayoutRule::kAligned, id,
          spell(problem, offsets, id) + " is not a multiple of " + std::to_string(problem.alignment)};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<LayoutViolation> validate_layout(const LayoutProblem& problem, std::span<const Bytes> offsets,
                                               Bytes arena) {
  if (offsets.size() != problem.buffers.size()) {
    return LayoutViolation{LayoutRule::kEveryBuffer, BufferId(),
                           std::to_string(offsets.size()) + " offsets for " +
                               std::to_string(problem.buffers.size()) + " buffers"};
  }
  if (auto violation = misplaced(problem, offsets, arena)) return violation;
  struct Event {
    std::int64_t time;
    bool is_start;
    BufferId id;
  };
  std::vector<Event> events;
  for (BufferId id : problem.buffers.ids()) {
    if (problem.buffers[id].size == Bytes()) continue;
    events.push_back({problem.buffers[id].first, true, id});
    events.push_back({problem.buffers[id].end, false, id});
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.time != b.time ? a.time < b.time : a.is_start < b.is_start;
  });
  // Live buffers by offset. While they are disjoint, a new one can only overlap its neighbours.
  std::map<Bytes, BufferId> living;
  for (const Event& event : events) {
    const Bytes offset = offsets[at(event.id)];
    if (!event.is_start) {
      living.erase(offset);
      continue;
    }
    const auto next = living.lower_bound(offset);
    std::optional<BufferId> other;
    if (next != living.end() && next->first < offset + problem.buffers[event.id].size) other = next->second;
    if (next != living.begin()) {
      const auto& [below, id] = *std::prev(next);
      if (below + problem.buffers[id].size > offset) other = id;
    }
    if (other) {
      return LayoutViolation{
          LayoutRule::kDisjoint, event.id,
          spell(problem, offsets, event.id) + " overlaps " + spell(problem, offsets, *other)};
    }
    living.emplace(offset, event.id);
  }
  return std::nullopt;
}

Bytes arena_of(const LayoutProblem& problem, std::span<const Bytes> offsets) {
  Wide end = 0;
  for (BufferId id : problem.buffers.ids()) {
    const Wide size = problem.buffers[id].size.count();
    const Wide room = (size + problem.alignment - 1) / problem.alignment * problem.alignment;
    end = std::max(end, offsets[at(id)].count() + room);
  }
  return Bytes(capped(end));
}

}  // namespace remat
