// The exact search: does a packing fit below a capacity?
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "layout/sections.h"
#include "remat/layout.h"
#include "remat/limits.h"

namespace remat::layout {

/// kUnknown: nothing proved; a limit was reached, or `most_nodes` were visited.
enum class Answer { kFits, kImpossible, kUnknown };

/// Depth-first search over packings that grow from the bottom, with restarts that branch differently, until
/// it finds a packing, proves that there is none, or stops. A further call continues. `packing` should be
/// connected (one part of `split`) and must outlive it.
class CapacitySearch {
 public:
  CapacitySearch(const Packing& packing, std::int64_t capacity, const LayoutOptions& options);
  ~CapacitySearch();
  CapacitySearch(CapacitySearch&&) noexcept;
  CapacitySearch& operator=(CapacitySearch&&) noexcept;

  /// Visits at most `most_nodes` further nodes.
  Answer run(std::int64_t most_nodes, Limits& limits);
  std::int64_t capacity() const { return capacity_; }
  std::int64_t nodes() const;
  /// Offsets of all items, in units; only after kFits.
  const std::vector<std::int64_t>& offsets() const;

 private:
  class Search;
  std::int64_t capacity_;
  std::unique_ptr<Search> search_;
};

}  // namespace remat::layout
