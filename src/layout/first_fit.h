// First fit: items one after the other, each in the lowest gap that is free while it lives.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layout/neighbours.h"
#include "layout/sections.h"
#include "remat/limits.h"

namespace remat::layout {

/// Offsets of all items in units, and the height of the packing.
struct Packed {
  std::vector<std::int64_t> offsets;
  std::int64_t height = 0;
};

/// Items that share a section do not overlap, all are at 0 or above, and the highest ends at the height.
/// O(n log n).
bool is_packing(const Packing& packing, const Packed& packed);

/// Items in this sequence. O(n^2), with a small constant.
Packed first_fit(const Packing& packing, std::span<const std::int32_t> sequence);

/// The same with `neighbours`, which may be null: O(pairs log n) then.
Packed first_fit(const Packing& packing, std::span<const std::int32_t> sequence,
                 const Neighbours* neighbours);
/// The work of either, in units.
std::int64_t first_fit_units(const Packing& packing, const Neighbours* neighbours);

/// Places items as an allocator meets them: by their first section or, with `backward`, by their last one
/// from the end. Items alive in more than `long_life` sections go as low as possible; others as high as
/// possible below `ceiling`, else as low as possible. O(n log n) if few gaps are open at once.
struct Sweep {
  bool backward = false;
  std::int32_t long_life = 0;
  std::int64_t ceiling = 0;
};
Packed sweep_fit(const Packing& packing, const Sweep& sweep);

/// The best of several sweeps, at least one, until one reaches `goal`, `limits` is reached, or all are tried.
Packed best_sweep(const Packing& packing, std::int64_t goal, Limits& limits);

/// First fit in several sequences, until `best` is at `goal` or `limits` ends it. `neighbours` may be null.
void lower_by_sequences(const Packing& packing, std::int64_t goal, const Neighbours* neighbours,
                        Limits& limits, Packed& best);

/// Most items for quadratic methods; above, the neighbours are needed.
inline constexpr std::int64_t kMostQuadratic = 20'000;

}  // namespace remat::layout
