// The problem as the search sees it: sizes in units of the alignment, time cut down to the sections that
// matter.
#pragma once

#include <cstdint>
#include <vector>

#include "base/numbers.h"
#include "remat/layout.h"

namespace remat::layout {

/// A buffer of at least one unit that lives in the sections [first, end).
struct Item {
  std::int32_t first = 0;
  std::int32_t end = 0;
  std::int64_t size = 0;
};

/// Two buffers overlap in time if and only if they share a section. A section is a maximal set of buffers
/// that live at once (a maximal clique of the interval graph): time just before an end that follows a start.
///
///   time      0  1  2  3  4  5        ends that follow a start: 2 and 5
///   a         [-----)                 sections 0 = {a, b} and 1 = {b, c}; what lives at 3 is less than
///   b            [--------)           either and says nothing new
///   c                    [--)
struct Packing {
  std::vector<Item> items;
  std::vector<BufferId> buffer;    ///< of each item; buffers of no bytes are left out
  std::vector<std::int64_t> load;  ///< of each section: the units that live in it
  std::int32_t sections() const { return narrow<std::int32_t>(load.size()); }
};

/// O(n log n).
Packing make_packing(const LayoutProblem& problem);

/// The parts of a packing that no item connects, by time; items keep their sequence.
struct Part {
  Packing packing;
  std::vector<std::int32_t> item;  ///< of the whole packing
};
std::vector<Part> split(const Packing& packing);

/// Offsets of items in units; the largest end.
std::int64_t height(const Packing& packing, const std::vector<std::int64_t>& offsets);

}  // namespace remat::layout
