// The exact search: does a packing fit below a capacity?
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "layout/sections.h"
#include "remat/layout.h"
#include "remat/limits.h"

namespace remat::layout {

/// Nothing was proved with `kUnknown`: a limit was reached, or `most_nodes` were visited.
enum class Answer { kFits, kImpossible, kUnknown };

/// Depth-first search over packings that grow from the bottom, restarted with other tastes until it finds a
/// packing, proves that there is none, or stops. It goes on where it stopped. `packing` should be connected
/// (one part of `split`) and must outlive it.
class CapacitySearch {
 public:
  CapacitySearch(const Packing& packing, std::int64_t capacity, const LayoutOptions& options);
  ~CapacitySearch();
  CapacitySearch(CapacitySearch&&) noexcept;
  CapacitySearch& operator=(CapacitySearch&&) noexcept;

  /// Visits at most so many nodes more.
  Answer run(std::int64_t most_nodes, Limits& limits);
  std::int64_t capacity() const { return capacity_; }
  std::int64_t nodes() const;
  /// Of all items, in units; where the answer was that the packing fits.
  const std::vector<std::int64_t>& offsets() const;

 private:
  class Search;
  std::int64_t capacity_;
  std::unique_ptr<Search> search_;
};

}  // namespace remat::layout
