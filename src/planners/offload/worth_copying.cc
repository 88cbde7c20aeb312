#include "planners/offload/worth_copying.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "base/numbers.h"

namespace remat::offload {
namespace {

constexpr std::int64_t kParts = 64;

/// Nested windows of a channel by parts of the graph: what is copied in part k counts in all wider windows.
class Windows {
 public:
  Windows() : used_(kParts, 0), room_(kParts, 0) {}
  double& room(std::int64_t part) { return room_[at(part)]; }
  /// True if a copy of this length fits into the windows of the parts from `first` to `last`.
  bool fits(std::int64_t first, std::int64_t last, double time) const {
    for (std::int64_t k = first; k <= last; ++k) {
      if (used_[at(k)] + time > room_[at(k)]) return false;
    }
    return true;
  }
  void take(std::int64_t first, std::int64_t last, double time) {
    for (std::int64_t k = first; k <= last; ++k) used_[at(k)] += time;
  }

 private:
  std::vector<double> used_, room_;
};

struct Waiting {
  ValueId value;
  double worth;             ///< time to recompute it, per byte
  std::int64_t made, read;  ///< parts of its op and of its next reader
};

std::vector<Waiting> waiting_at(const Graph& graph, OpId at) {
  const std::int64_t n = graph.ops().size();
  const auto part = [&](std::int64_t op) { return std::min(kParts - 1, op * kParts / n); };
  std::vector<Waiting> waiting;
  for (ValueId v : graph.values()) {
    const OpId maker = graph.producer[v];
    if (!maker || maker >= at || graph.bytes[v] == Bytes() || !graph.copyable[v]) continue;
    const auto readers = graph.readers[v];
    const auto next = std::ranges::lower_bound(readers, at);
    if (next == readers.end() ? !graph.kept[v] : *next == at) continue;
    const std::int64_t read = next == readers.end() ? n : next->index();
    const double worth = graph.recomputable[maker] ? real(graph.duration[maker]) / real(graph.bytes[v])
                                                   : std::numeric_limits<double>::infinity();
    waiting.push_back({v, worth, part(maker.index()), part(read)});
  }
  std::ranges::stable_sort(waiting, std::greater(), &Waiting::worth);
  return waiting;
}

}  // namespace

IndexVector<ValueId, bool> worth_copying(const Graph& graph, OpId moment, const Host& host, double share) {
  const CopyClock clock(graph, host);
  const std::int64_t n = graph.ops().size();
  std::vector<double> start(at(n) + 1, 0);
  for (OpId op : graph.ops()) start[at(op) + 1] = start[at(op)] + real(graph.duration[op]);
  Windows out, in;
  for (std::int64_t k = 0; k < kParts; ++k) {
    const double first = start[at(k * n / kParts)], last = start[at((k + 1) * n / kParts)];
    out.room(k) = share * std::max(0.0, start[at(moment)] - first);
    in.room(k) = share * std::max(0.0, last - start[at(moment.next())]);
  }
  IndexVector<ValueId, bool> chosen(graph.num_values(), false);
  for (const Waiting& one : waiting_at(graph, moment)) {
    const double out_time = real(clock.time(Way::kOut, graph.bytes[one.value]));
    const double in_time = real(clock.time(Way::kIn, graph.bytes[one.value]));
    if (!out.fits(0, one.made, out_time) || !in.fits(one.read, kParts - 1, in_time)) continue;
    chosen[one.value] = true;
    out.take(0, one.made, out_time);
    in.take(one.read, kParts - 1, in_time);
  }
  return chosen;
}

}  // namespace remat::offload
