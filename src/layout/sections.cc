#include "layout/sections.h"

#include <algorithm>

#include "base/numbers.h"

namespace remat::layout {
namespace {

/// Times just before which a section ends, ascending: ends that follow a start.
std::vector<std::int64_t> section_ends(const LayoutProblem& problem) {
  struct Event {
    std::int64_t time;
    bool is_start;
  };
  std::vector<Event> events;
  for (const Buffer& buffer : problem.buffers) {
    if (buffer.size == Bytes()) continue;
    events.push_back({buffer.first, true});
    events.push_back({buffer.end, false});
  }
  // Ends before starts: lives are half open.
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.time != b.time ? a.time < b.time : a.is_start < b.is_start;
  });
  std::vector<std::int64_t> ends;
  bool started = false;
  for (const Event& event : events) {
    if (!event.is_start && started) ends.push_back(event.time);
    started = event.is_start;
  }
  return ends;
}

void sum_loads(Packing& packing, std::size_t sections) {
  packing.load.assign(sections + 1, 0);
  for (const Item& item : packing.items) {
    packing.load[at(item.first)] += item.size;
    packing.load[at(item.end)] -= item.size;
  }
  for (std::size_t s = 1; s < packing.load.size(); ++s) packing.load[s] += packing.load[s - 1];
  packing.load.pop_back();
}

}  // namespace

Packing make_packing(const LayoutProblem& problem) {
  const std::vector<std::int64_t> ends = section_ends(problem);
  const auto section = [&](std::int64_t time) {
    return narrow<std::int32_t>(std::upper_bound(ends.begin(), ends.end(), time) - ends.begin());
  };
  Packing packing;
  for (BufferId id : problem.buffers.ids()) {
    const Buffer& buffer = problem.buffers[id];
    if (buffer.size == Bytes()) continue;
    const std::int64_t units = (buffer.size.count() - 1) / problem.alignment + 1;
    packing.items.push_back({section(buffer.first), section(buffer.end), units});
    packing.buffer.push_back(id);
  }
  sum_loads(packing, ends.size());
  return packing;
}

std::vector<Part> split(const Packing& packing) {
  // connected[s]: how many items live in both section s - 1 and s.
  std::vector<std::int32_t> connected(packing.load.size() + 1, 0);
  for (const Item& item : packing.items) {
    ++connected[at(item.first) + 1];
    --connected[at(item.end)];
  }
  std::vector<std::int32_t> part_of(packing.load.size(), 0), start{0};
  for (std::int32_t s = 1; s < packing.sections(); ++s) {
    const std::size_t k = at(s);
    connected[k] += connected[k - 1];
    if (connected[k] == 0) start.push_back(s);
    part_of[k] = narrow<std::int32_t>(start.size()) - 1;
  }
  std::vector<Part> parts(packing.items.empty() ? 0 : start.size());
  for (std::size_t i = 0; i < packing.items.size(); ++i) {
    Item item = packing.items[i];
    const auto p = at(part_of[at(item.first)]);
    item.first -= start[p];
    item.end -= start[p];
    parts[p].packing.items.push_back(item);
    parts[p].packing.buffer.push_back(packing.buffer[i]);
    parts[p].item.push_back(narrow<std::int32_t>(i));
  }
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const auto begin = packing.load.begin() + start[p];
    const auto end = p + 1 < start.size() ? packing.load.begin() + start[p + 1] : packing.load.end();
    parts[p].packing.load.assign(begin, end);
  }
  return parts;
}

std::int64_t height(const Packing& packing, const std::vector<std::int64_t>& offsets) {
  std::int64_t top = 0;
  for (std::size_t i = 0; i < offsets.size(); ++i) top = std::max(top, offsets[i] + packing.items[i].size);
  return top;
}

}  // namespace remat::layout
