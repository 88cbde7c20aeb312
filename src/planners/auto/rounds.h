// Rounds, each as long as all before it together: what is found within a limit is found again, by the same
// calls, within twice that.
#pragma once

#include <cstdint>
#include <optional>

#include "planners/auto/options.h"
#include "remat/limits.h"

namespace remat::automatic {

class Rounds {
 public:
  /// A single one where not `several`.
  Rounds(const Options& options, const Limits& limits, bool several);

  int count() const { return count_; }
  /// Ends `part`, nested in the limits, where the round (from 1) ends.
  void end(Limits& part, int round) const;

 private:
  const Limits& limits_;
  std::optional<std::int64_t> work_;  ///< in all, from the construction of the limits
  std::optional<double> seconds_;
  int count_ = 1;
};

}  // namespace remat::automatic
