// Graphs of one step at several sizes.
#include <algorithm>
#include <array>

#include "base/numbers.h"
#include "remat/error.h"
#include "remat/largest.h"

namespace remat {
namespace {

/// A known size, and the graph's amount at it.
struct Known {
  std::int64_t size;
  const Graph* graph;
};

Wide rounded(Wide numerator, Wide denominator) {
  if (denominator < 0) return rounded(-numerator, -denominator);
  const Wide half = denominator / 2;
  return (numerator >= 0 ? numerator + half : numerator - half) / denominator;
}

Wide on_line(std::int64_t x, std::int64_t x0, Wide y0, std::int64_t x1, Wide y1) {
  return y0 + rounded((y1 - y0) * (x - x0), x1 - x0);
}

/// Through three points. Amounts have 62 bits and sizes 20: all products fit into 128.
Wide on_parabola(std::int64_t x, const std::array<std::int64_t, 3>& xs, const std::array<Wide, 3>& ys) {
  const auto [a, b, c] = xs;
  const Wide along = (ys[1] - ys[0]) * (c - a) - (ys[2] - ys[0]) * (b - a);
  if (along == 0) return on_line(x, a, ys[0], b, ys[1]);
  const Wide first = ys[0] * (x - b) * (x - c) * (b - c);
  const Wide second = ys[1] * (x - a) * (x - c) * (a - c);
  const Wide third = ys[2] * (x - a) * (x - b) * (a - b);
  return rounded(first - second + third, Wide(a - b) * (a - c) * (b - c));
}

std::int64_t amount(Wide value) {
  return value < 0 ? 0 : value >= kMaxCount ? kMaxCount - 1 : static_cast<std::int64_t>(value);
}

class Between {
 public:
  /// `nearest`: two or more known graphs of one structure, the nearest first.
  Between(std::int64_t size, std::vector<Known> nearest) : size_(size), nearest_(std::move(nearest)) {}

  Graph graph() const {
    Graph made = *nearest_.front().graph;
    Wide all = 0;
    for (ValueId v : made.values()) {
      made.bytes[v] = bytes([v](const Graph& g) { return g.bytes[v]; });
      all += made.bytes[v].count();
    }
    Wide time = 0;
    for (OpId op : made.ops()) {
      for (const auto column : kBytesOfOps) {
        (made.*column)[op] = bytes([op, column](const Graph& g) { return (g.*column)[op]; });
      }
      made.duration[op] = duration(op);
      time += made.duration[op].count();
    }
    if (all >= kMaxCount || time >= kMaxCount) {
      throw InputError("size " + std::to_string(size_) + ": the sums of bytes or durations leave 62 bits");
    }
    made.resident = Bytes();
    for (ValueId v : made.graph_inputs) made.resident += made.bytes[v];
    made.base_duration = Duration(static_cast<std::int64_t>(time));
    return made;
  }

 private:
  template <class Of>
  Bytes bytes(Of of) const {
    const auto size = [&](std::size_t i) { return nearest_[i].size; };
    const auto at_known = [&](std::size_t i) { return Wide{of(*nearest_[i].graph).count()}; };
    const Wide here = nearest_.size() == 2 ? on_line(size_, size(0), at_known(0), size(1), at_known(1))
                                           : on_parabola(size_, {size(0), size(1), size(2)},
                                                         {at_known(0), at_known(1), at_known(2)});
    return Bytes(amount(here));
  }

  Duration duration(OpId op) const {
    const auto [first, second] = ends();
    const Wide here = on_line(size_, first.size, first.graph->duration[op].count(), second.size,
                              second.graph->duration[op].count());
    return Duration(amount(here));
  }

  /// The nearest on both sides, or the nearest two.
  std::pair<Known, Known> ends() const {
    const auto& first = nearest_.front();
    for (const Known& other : nearest_) {
      if ((other.size < size_) != (first.size < size_)) return {first, other};
    }
    return {first, nearest_[1]};
  }

  std::int64_t size_;
  std::vector<Known> nearest_;
};

}  // namespace

bool same_structure(const Graph& a, const Graph& b) {
  return a.producer == b.producer && a.kept == b.kept && a.copyable == b.copyable &&
         a.recomputable == b.recomputable && a.phase == b.phase && a.inputs == b.inputs &&
         a.outputs == b.outputs && a.after == b.after && a.over == b.over && a.forward_of == b.forward_of &&
         a.graph_inputs == b.graph_inputs && a.graph_outputs == b.graph_outputs && a.op_kind == b.op_kind;
}

void GraphFamily::add(std::int64_t size, Graph graph) {
  if (size < 1 || size > kMostSize) {
    throw UsageError("a size is an integer in [1, " + std::to_string(kMostSize) + "], not " +
                     std::to_string(size));
  }
  graphs_.insert_or_assign(size, std::move(graph));
}

std::optional<Graph> GraphFamily::at(std::int64_t size) const {
  if (const auto known = graphs_.find(size); known != graphs_.end()) return known->second;
  std::vector<Known> nearest;
  for (const auto& [other, graph] : graphs_) nearest.push_back({other, &graph});
  std::ranges::stable_sort(nearest, {}, [size](const Known& k) { return std::abs(k.size - size); });
  while (nearest.size() >= 2) {
    std::vector<Known> alike;
    std::ranges::copy_if(nearest, std::back_inserter(alike),
                         [&](const Known& k) { return same_structure(*nearest.front().graph, *k.graph); });
    if (alike.size() >= 2) return Between(size, std::move(alike)).graph();
    nearest.erase(nearest.begin());
  }
  return std::nullopt;
}

}  // namespace remat
