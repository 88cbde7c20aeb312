// What a copy costs by when it is made: dear where the channels are the bottleneck.
#pragma once

#include <vector>

#include "exact/retention_cut.h"
#include "planners/offload/timetable.h"
#include "remat/host.h"
#include "remat/random.h"

namespace remat::offload {

/// A price for each channel at every op of the order, as a share of the time that a copy takes, and a factor
/// for each value. A value pays for the way out where it is made, and for the way back at the reader after
/// the longest gap between its uses.
class ChannelPrices {
 public:
  ChannelPrices(const Graph& graph, const Host& host);

  FetchPrices fetch_prices() const;
  /// Dearer where copies made steps wait, cheaper elsewhere: a step of the subgradient method, of which
  /// `pace` is the length.
  void learn(const std::vector<Timetable::Stall>& stalls, double pace);
  /// A small change: of one channel for a while, or of a few values.
  void shake(Random& random);
  bool any() const { return !values_.empty(); }

 private:
  const Graph* graph_;
  std::vector<ValueId> values_;  ///< that may be copied, with time for it
  IndexVector<ValueId, OpId> wanted_;
  IndexVector<ValueId, double> out_time_, in_time_, factor_;
  IndexVector<OpId, double> out_, in_;
};

}  // namespace remat::offload
