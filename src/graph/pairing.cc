#include "graph/pairing.h"

#include <algorithm>
#include <cmath>

#include "base/numbers.h"

namespace remat {
namespace {

/// Where a value is made and where it is read last.
struct Span {
  OpId made, last;
};

bool is_read(const Graph& graph, OpId op) {
  const auto outputs = graph.outputs[op];
  return std::any_of(outputs.begin(), outputs.end(), [&](ValueId v) { return !graph.readers[v].empty(); });
}

/// The spans of all values that ops make and read. Trailing ops whose outputs nothing reads are updates of
/// parameters; they are left out, since gradients that wait for them would cross as many places as
/// activations.
std::vector<Span> spans(const Graph& graph) {
  OpId end(graph.ops().size());
  while (end > OpId(0) && !is_read(graph, end.prev())) end = end.prev();
  std::vector<Span> result;
  for (ValueId v : graph.values()) {
    if (graph.is_graph_input(v)) continue;
    const auto readers = graph.readers[v];
    const auto last = std::lower_bound(readers.begin(), readers.end(), end);
    if (last != readers.begin()) result.push_back({graph.producer[v], *(last - 1)});
  }
  return result;
}

/// The earliest op before which the most values wait, and their number.
std::pair<OpId, std::int64_t> busiest_place(const Graph& graph, const std::vector<Span>& all) {
  IndexVector<OpId, std::int64_t> change(graph.num_ops() + 1, 0);
  for (const Span& span : all) {
    ++change[span.made.next()];
    --change[span.last.next()];
  }
  std::int64_t crossing = 0, most = 0;
  OpId place;
  for (OpId op : graph.ops()) {
    crossing += change[op];
    if (crossing > most) {
      most = crossing;
      place = op;
    }
  }
  return {place, most};
}

/// The share of pairs of values in which the one made first is read last. O(n log n), by merging.
double nested_share(std::vector<Span> crossing) {
  const auto count = real(crossing.size());
  if (count < 2) return 0;
  std::sort(crossing.begin(), crossing.end(), [](const Span& a, const Span& b) {
    return a.made != b.made ? a.made < b.made : a.last > b.last;
  });
  // Bottom-up merge sort by falling `last`; each step of a right element over a left one is a pair against
  // it.
  std::vector<OpId> last, merged(crossing.size());
  for (const Span& span : crossing) last.push_back(span.last);
  std::int64_t against = 0;
  for (std::size_t width = 1; width < last.size(); width *= 2) {
    for (std::size_t begin = 0; begin < last.size(); begin += 2 * width) {
      const std::size_t middle = std::min(begin + width, last.size());
      const std::size_t end = std::min(begin + 2 * width, last.size());
      for (std::size_t i = begin, j = middle, k = begin; k < end; ++k) {
        if (j == end || (i < middle && last[i] >= last[j])) {
          merged[k] = last[i++];
        } else {
          against += static_cast<std::int64_t>(middle - i);
          merged[k] = last[j++];
        }
      }
    }
    std::swap(last, merged);
  }
  return 1 - real(against) / (count * (count - 1) / 2);
}

/// A loss that is kept and read by no op: it ends the forward pass.
bool is_loss(const Graph& graph, OpId op) {
  const auto outputs = graph.outputs[op];
  return !is_read(graph, op) &&
         std::any_of(outputs.begin(), outputs.end(), [&](ValueId v) { return graph.kept[v]; });
}

std::optional<Pairing> derived(const Graph& graph) {
  const std::vector<Span> all = spans(graph);
  auto [boundary, most] = busiest_place(graph, all);
  if (most < 2 || 8 * most < std::ssize(all)) return std::nullopt;
  std::vector<Span> crossing;
  for (const Span& span : all) {
    if (span.made < boundary && span.last >= boundary) crossing.push_back(span);
  }
  constexpr double kNested = 0.8, kChance = 0.3;
  if (nested_share(crossing) < std::min(1.0, kNested + kChance / std::sqrt(most))) return std::nullopt;
  const auto ops = graph.ops().size();
  if (is_loss(graph, boundary) && boundary.index() + 1 < ops) boundary = boundary.next();
  return Pairing{boundary, true};
}

}  // namespace

std::optional<Pairing> find_pairing(const Graph& graph) {
  for (OpId op : graph.ops()) {
    if (graph.phase[op] == Phase::kBackward) return op == OpId(0) ? std::nullopt : std::optional(Pairing{op});
  }
  return derived(graph);
}

}  // namespace remat
