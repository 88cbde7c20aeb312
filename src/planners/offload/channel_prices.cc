#include "planners/offload/channel_prices.h"

#include <algorithm>
#include <array>

#include "base/numbers.h"
#include "base/portable_math.h"

namespace remat::offload {

ChannelPrices::ChannelPrices(const Graph& graph, const Host& host)
    : graph_(&graph),
      wanted_(graph.num_values()),
      out_time_(graph.num_values(), 0.0),
      in_time_(graph.num_values(), 0.0),
      factor_(graph.num_values(), 1.0) {
  constexpr double kFirst = 0.02;
  out_.assign(graph.num_ops(), kFirst);
  in_.assign(graph.num_ops(), kFirst);
  const CopyClock clock(graph, host);
  IndexVector<OpId, Wide> begin(graph.num_ops(), 0);
  Wide end = 0;
  for (OpId op : graph.ops()) {
    begin[op] = end;
    end += graph.duration[op].count();
  }
  const auto ended = [&](OpId op) { return begin[op] + graph.duration[op].count(); };
  for (ValueId v : graph.values()) {
    if (graph.is_graph_input(v) || !graph.copyable[v] || graph.bytes[v] == Bytes()) continue;
    Wide used = ended(graph.producer[v]), longest = 0;
    for (OpId reader : graph.readers[v]) {
      if (begin[reader] - used > longest) {
        longest = begin[reader] - used;
        wanted_[v] = reader;
      }
      used = ended(reader);
    }
    if (graph.kept[v] && end - used > longest) wanted_[v] = OpId(graph.ops().size()).prev();
    if (!wanted_[v]) continue;
    values_.push_back(v);
    out_time_[v] = real(clock.time(Way::kOut, graph.bytes[v]));
    in_time_[v] = real(clock.time(Way::kIn, graph.bytes[v]));
  }
}

FetchPrices ChannelPrices::fetch_prices() const {
  // Keeps sums over many instances of all values within a graph's limits, however slow the host is.
  const double most = 0x1p56 / real(std::ssize(values_) + 1);
  FetchPrices prices(graph_->num_values(), kMaxCount);
  for (ValueId v : values_) {
    const double price = out_[graph_->producer[v]] * out_time_[v] + in_[wanted_[v]] * in_time_[v];
    prices[v] = 1 + static_cast<std::int64_t>(std::min(most, price * factor_[v]));
  }
  return prices;
}

void ChannelPrices::learn(const std::vector<Timetable::Stall>& stalls, double pace) {
  constexpr double kDown = -0.1, kMostUp = 1, kUp = 5, kLeast = 1e-5, kMost = 2;
  IndexVector<OpId, double> out(graph_->num_ops(), kDown), in(graph_->num_ops(), kDown);
  for (const Timetable::Stall& stall : stalls) {
    IndexVector<OpId, double>& change = stall.way == Way::kOut ? out : in;
    const double up = std::min(kMostUp, kUp * real(stall.length) / std::max(1.0, real(stall.copying)));
    for (OpId op : IdRange<OpId>(stall.first, stall.last.next())) change[op] = std::max(change[op], up);
  }
  for (OpId op : graph_->ops()) {
    out_[op] = std::clamp(out_[op] * exponential(pace * out[op]), kLeast, kMost);
    in_[op] = std::clamp(in_[op] * exponential(pace * in[op]), kLeast, kMost);
  }
}

void ChannelPrices::shake(Random& random) {
  constexpr double kChannel = 1.0 / 3, kSpread = 0.25;
  constexpr std::int64_t kMostValues = 3;
  constexpr int kRivals = 3;  // large values matter more
  constexpr std::array kFactors{0.1, 0.5, 1.0, 2.0, 100.0};
  const std::int64_t ops = std::ssize(graph_->ops());
  if (random.chance(kChannel)) {
    IndexVector<OpId, double>& channel = random.chance(0.5) ? out_ : in_;
    const double factor = exponential(kSpread * (2 * random.unit() - 1));
    const std::int64_t first = random.below(ops), last = first + random.below(1 + ops / 2);
    for (OpId op : IdRange<OpId>(OpId(first), OpId(std::min(ops, last + 1)))) channel[op] *= factor;
    return;
  }
  const std::int64_t count = 1 + random.below(kMostValues);
  for (std::int64_t i = 0; i < count; ++i) {
    ValueId v = values_[at(random.below(std::ssize(values_)))];
    for (int k = 0; k < kRivals; ++k) {
      const ValueId rival = values_[at(random.below(std::ssize(values_)))];
      if (graph_->bytes[rival] > graph_->bytes[v]) v = rival;
    }
    factor_[v] = kFactors[at(random.below(std::ssize(kFactors)))];
  }
}

}  // namespace remat::offload
