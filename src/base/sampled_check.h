// How often a check that rebuilds a structure is made: at every change of a small one, now and then of a
// large one.
#pragma once

#include <cstdint>

namespace remat {

/// Counts operations and says at which a check is due, so that all checks together cost some thousand steps
/// an operation, however large the structure has become. Depends on nothing but the sequence of calls.
class SampledCheck {
 public:
  /// `cost`: of one check now, in steps of some nanoseconds.
  bool due(std::int64_t cost) const {
    saved_ += kPerOperation;
    if (saved_ < cost) return false;
    saved_ = 0;
    return true;
  }

 private:
  static constexpr std::int64_t kPerOperation = 2000;
  mutable std::int64_t saved_ = 0;  // what is checked may be const
};

}  // namespace remat
