// Knapsacks over one moment: values that do not fit at an op's first run are dropped and recomputed later.
#include "bounds/cut.h"

#include <algorithm>

#include "base/numbers.h"
#include "model/step.h"

namespace remat {
namespace {

/// floor(a * b / c) without overflow.
std::int64_t scaled(std::int64_t a, std::int64_t b, std::int64_t c) {
  return static_cast<std::int64_t>(static_cast<Wide>(a) * b / c);
}

/// Sums over a prefix of ranks, O(log n) to change and to search.
class PrefixSums {
 public:
  explicit PrefixSums(std::size_t n) : bytes_(n + 1), cost_(n + 1) {}
  void add(std::size_t rank, std::int64_t bytes, std::int64_t cost) {
    for (std::size_t i = rank + 1; i < bytes_.size(); i += i & (~i + 1)) {
      bytes_[i] += bytes;
      cost_[i] += cost;
    }
  }
  struct Prefix {
    std::size_t ranks;         ///< the longest prefix whose bytes stay below `amount`
    std::int64_t bytes, cost;  ///< of it
  };
  Prefix below(std::int64_t amount) const {
    Prefix p{0, 0, 0};
    std::size_t step = 1;
    while (step * 2 < bytes_.size()) step *= 2;
    for (; step > 0; step /= 2) {
      const std::size_t next = p.ranks + step;
      if (next < bytes_.size() && p.bytes + bytes_[next] < amount) {
        p = {next, p.bytes + bytes_[next], p.cost + cost_[next]};
      }
    }
    return p;
  }

 private:
  std::vector<std::int64_t> bytes_, cost_;
};

/// Recomputable ops by duration per byte, the cheapest first. One rerun restores all outputs, so each output
/// bears a share of the duration in proportion to its bytes: dropping any subset then costs at most one
/// duration.
struct Prices {
  std::vector<OpId> by_price;
  IndexVector<OpId, std::size_t> rank;
  IndexVector<OpId, std::int64_t> bytes;  ///< of the outputs that anything reads or that are kept

  explicit Prices(const Graph& graph) : rank(graph.num_ops(), 0), bytes(graph.num_ops(), 0) {
    for (OpId op : graph.ops()) {
      for (ValueId v : graph.outputs[op]) {
        if (graph.kept[v] || !graph.readers[v].empty()) bytes[op] += graph.bytes[v].count();
      }
      if (graph.recomputable[op] && bytes[op] > 0) by_price.push_back(op);
    }
    std::sort(by_price.begin(), by_price.end(), [&](OpId a, OpId b) {
      const Wide left = static_cast<Wide>(graph.duration[a].count()) * bytes[b];
      const Wide right = static_cast<Wide>(graph.duration[b].count()) * bytes[a];
      return left != right ? left < right : a < b;
    });
    for (std::size_t r = 0; r < by_price.size(); ++r) rank[by_price[r]] = r;
  }
};

/// Droppable values in memory across the current first run.
class Crossing {
 public:
  Crossing(const Graph& graph, const Prices& prices)
      : graph_(graph), prices_(prices), sums_(prices.by_price.size()) {}

  /// Values count by the bytes that they take beside the op at hand.
  void add(ValueId v, Bytes bytes, int sign) {
    const OpId maker = graph_.producer[v];
    total_ += sign * bytes.count();
    if (!graph_.recomputable[maker] || bytes == Bytes()) return;
    const std::int64_t cost = scaled(graph_.duration[maker].count(), bytes.count(), prices_.bytes[maker]);
    sums_.add(prices_.rank[maker], sign * bytes.count(), sign * cost);
  }
  std::int64_t total() const { return total_; }
  /// Least duration of reruns that free `excess` bytes.
  std::int64_t price_of(std::int64_t excess) const {
    const auto prefix = sums_.below(excess);
    if (prefix.ranks >= prices_.by_price.size()) return prefix.cost;
    const OpId next = prices_.by_price[prefix.ranks];
    return prefix.cost + scaled(graph_.duration[next].count(), excess - prefix.bytes, prices_.bytes[next]);
  }

 private:
  const Graph& graph_;
  const Prices& prices_;
  PrefixSums sums_;
  std::int64_t total_ = 0;
};

/// The op beside which freeing memory costs most.
struct Dearest {
  OpId op;
  std::int64_t price = 0;
  void offer(OpId at, std::int64_t cost) {
    if (op && cost <= price) return;
    op = at;
    price = cost;
  }
};

}  // namespace

DurationBound fixed_cut_bound(const Graph& graph, Bytes budget, OpId* at) {
  const Prices prices(graph);
  Crossing crossing(graph, prices);
  Dearest dearest;
  const auto crosses = [&](ValueId v, OpId now) {
    return graph.kept[v] || (!graph.readers[v].empty() && graph.readers[v].back() > now);
  };
  for (OpId op : graph.ops()) {
    // Inputs of op are in memory anyway; after their last read they are gone for good.
    for (ValueId v : graph.inputs[op]) {
      if (!graph.is_graph_input(v)) crossing.add(v, graph.bytes[v], -1);
    }
    const auto add_overlaps = [&](int sign) {
      for (const Reuse& reuse : reuses(graph, op)) {
        if (crosses(reuse.input, op)) crossing.add(reuse.input, bytes_beside(graph, op, reuse.input), sign);
      }
    };
    add_overlaps(1);
    const std::int64_t excess = need_of(graph, op).count() + crossing.total() - budget.count();
    if (excess > 0) dearest.offer(op, crossing.price_of(excess));
    add_overlaps(-1);
    for (auto row : {graph.inputs[op], graph.outputs[op]}) {
      for (ValueId v : row) {
        if (!graph.is_graph_input(v) && crosses(v, op)) crossing.add(v, graph.bytes[v], 1);
      }
    }
  }
  if (at) *at = dearest.op;
  return {"cut", graph.base_duration + Duration(dearest.price)};
}

namespace {

/// Sets of ops, one bit each.
class OpSets {
 public:
  explicit OpSets(std::size_t n) : words_((n + 63) / 64), bits_(n * words_) {}
  void add(OpId set, OpId member) {
    row(set)[narrow<std::size_t>(member.index()) / 64] |= 1ULL << (member.index() % 64);
  }
  bool has(OpId set, OpId member) const {
    return bits_[narrow<std::size_t>(set.index()) * words_ + narrow<std::size_t>(member.index()) / 64] >>
               (member.index() % 64) &
           1;
  }
  void merge(OpId into, OpId from) {
    for (std::size_t w = 0; w < words_; ++w) row(into)[w] |= row(from)[w];
  }

 private:
  std::uint64_t* row(OpId set) { return bits_.data() + narrow<std::size_t>(set.index()) * words_; }
  std::size_t words_;
  std::vector<std::uint64_t> bits_;
};

OpSets ancestors(const Graph& graph) {
  OpSets sets(graph.num_ops());
  for (OpId op : graph.ops()) {
    const auto inherit = [&](OpId before) {
      sets.merge(op, before);
      sets.add(op, before);
    };
    for (OpId before : predecessors(graph, op)) inherit(before);
    for (OpId before : graph.after[op]) inherit(before);
  }
  return sets;
}

}  // namespace

DurationBound free_cut_bound(const Graph& graph, Bytes budget, OpId* at, Limits* limits) {
  constexpr std::size_t kMostOps = 4096;
  if (at) *at = OpId::none();
  if (graph.num_ops() > kMostOps) return {"base", graph.base_duration};
  const Prices prices(graph);
  const OpSets above = ancestors(graph);
  Dearest dearest;
  for (OpId op : graph.ops()) {
    if (limits && limits->reached()) break;
    const auto crosses = [&](ValueId v) {
      const OpId maker = graph.producer[v];
      if (!maker || !above.has(op, maker)) return false;
      const auto readers = graph.readers[v];
      return graph.kept[v] ||
             std::any_of(readers.begin(), readers.end(), [&](OpId reader) { return above.has(reader, op); });
    };
    std::int64_t excess = need_of(graph, op).count() - budget.count();
    std::vector<std::pair<ValueId, std::int64_t>> crossing;
    for (ValueId v : graph.values()) {
      const Bytes bytes = bytes_beside(graph, op, v);
      if (bytes == Bytes() || !crosses(v)) continue;
      crossing.emplace_back(v, bytes.count());
      excess += bytes.count();
    }
    if (excess <= 0) continue;
    std::sort(crossing.begin(), crossing.end(), [&](const auto& a, const auto& b) {
      return std::pair(prices.rank[graph.producer[a.first]], a.first) <
             std::pair(prices.rank[graph.producer[b.first]], b.first);
    });
    std::int64_t cost = 0;
    for (const auto& [v, bytes] : crossing) {
      const OpId maker = graph.producer[v];
      if (!graph.recomputable[maker] || prices.bytes[maker] == 0) continue;
      const std::int64_t freed = std::min(excess, bytes);
      cost += scaled(graph.duration[maker].count(), freed, prices.bytes[maker]);
      excess -= freed;
      if (excess <= 0) break;
    }
    dearest.offer(op, cost);
  }
  if (at) *at = dearest.op;
  return {"cut", graph.base_duration + Duration(dearest.price)};
}

}  // namespace remat
