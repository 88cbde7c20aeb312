// Prices of copies by the time they are made: high where the channels are the bottleneck.
#pragma once

#include <vector>

#include "exact/retention_cut.h"
#include "planners/offload/timetable.h"
#include "remat/host.h"
#include "remat/random.h"

namespace remat::offload {

/// A price for each channel at every op of the order, as a share of a copy's time, and a factor for each
/// value. A value pays the outgoing price where it is made, and the incoming price at the reader after the
/// longest gap between its uses.
class ChannelPrices {
 public:
  ChannelPrices(const Graph& graph, const Host& host);

  FetchPrices fetch_prices() const;
  /// A step, of length `pace`, of the subgradient method: raises prices where copies made steps wait, lowers
  /// them elsewhere.
  void learn(const std::vector<Timetable::Stall>& stalls, double pace);
  /// A small random change: of one channel's prices over some time, or of a few values' factors.
  void shake(Random& random);
  bool any() const { return !values_.empty(); }

 private:
  const Graph* graph_;
  std::vector<ValueId> values_;  ///< copyable values with enough time for their copies
  IndexVector<ValueId, OpId> wanted_;
  IndexVector<ValueId, double> out_time_, in_time_, factor_;
  IndexVector<OpId, double> out_, in_;
};

}  // namespace remat::offload
