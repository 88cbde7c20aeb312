// Decides when to run a check that rebuilds a structure: every change of a small one, some of a large one.
#pragma once

#include <cstdint>

namespace remat {

/// Counts operations and says when a check is due, so that checks cost a few thousand steps per operation on
/// average, whatever the structure's size. Depends only on the sequence of calls.
class SampledCheck {
 public:
  /// `cost` of a check now, in steps of a few nanoseconds.
  bool due(std::int64_t cost) const {
    saved_ += kPerOperation;
    if (saved_ < cost) return false;
    saved_ = 0;
    return true;
  }

 private:
  static constexpr std::int64_t kPerOperation = 2000;
  mutable std::int64_t saved_ = 0;  // mutable: the checked object may be const
};

}  // namespace remat
