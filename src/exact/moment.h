// The network of one moment: a minimum cut decides which values are kept across it and which ops are rerun.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/numbers.h"
#include "exact/retention_cut.h"
#include "graph/max_flow.h"

namespace remat {

/// True if the value is lost after the step of `at` unless it is kept across it. Inputs of the step are in
/// memory anyway, unless the step writes over them.
bool may_be_lost(const Graph& graph, OpId at, ValueId v);

/// Cost and memory in one sum: cost x per_cost + bytes x per_byte.
struct Price {
  std::int64_t per_cost, per_byte;

  double ratio() const { return real(per_byte) / real(per_cost); }
};

/// Nodes on the source side: values needed after the moment, ops that are rerun. A needed value whose op is
/// not rerun is kept, and that arc costs its bytes. A rerun costs the op's duration and needs its inputs. A
/// value that only one op can need shares that op's node.
class Moment {
 public:
  /// With prices, a needed value may also be fetched, and costs the cheaper of the two.
  Moment(const Graph& graph, OpId at, OrderMode order, const FetchPrices* fetch = nullptr);

  /// Raises the cost of ops by up to a thousandth, of later ones by more. Equal layers then change sides one
  /// by one, first those whose reruns come last, when memory is free again. False if the numbers leave no
  /// room for that.
  bool skew();

  std::int64_t ticks() const { return flow_.ticks(); }
  void stop_with(Limits* limits);

  struct Choice {
    Retention retention;
    std::int64_t cost = 0;   ///< of all reruns
    std::int64_t least = 0;  ///< lower bound on cost x per_cost + bytes x per_byte of every choice
  };
  /// The cheapest choice at a price; nothing after `most_ticks`.
  std::optional<Choice> cheapest(Price price, std::int64_t most_ticks);
  Choice keep_all() const;
  /// The same choice at the current costs.
  Choice priced(Choice choice) const;
  /// Upper bounds on the cost and the bytes of any choice.
  std::int64_t most_cost() const { return std::max<std::int64_t>(1, most_cost_); }
  std::int64_t most_bytes() const { return std::max<std::int64_t>(1, keep_bytes_); }

  /// A value that is kept unless its op is rerun.
  struct Keep {
    MaxFlow::Arc arc;
    MaxFlow::Node from, to;
    std::int64_t bytes;  ///< beside the need of the moment's op
    ValueId value;
    std::int64_t fetch;  ///< cost, or -1

    bool is_fetched(Price price) const {
      return fetch >= 0 && Wide(fetch) * price.per_cost < Wide(bytes) * price.per_byte;
    }
  };
  struct Rerun {
    MaxFlow::Arc arc;
    MaxFlow::Node node;
    OpId op;
    std::int64_t cost;
  };
  std::span<const Keep> keeps() const { return keeps_; }
  std::span<const Rerun> reruns() const { return reruns_; }
  /// Read after the moment, or kept.
  bool is_wanted(ValueId v) const { return state_[v] == State::kWanted; }
  /// Made before the moment, and in memory at it only if kept.
  bool is_droppable(ValueId v) const { return state_[v] != State::kStays; }
  /// The least sum of any choice, where reruns cost `per_rerun` and kept values `per_keep`, in the order of
  /// `reruns` and `keeps`; nothing if the ticks run out.
  std::optional<std::int64_t> least_sum(std::span<const std::int64_t> per_rerun,
                                        std::span<const std::int64_t> per_keep, std::int64_t most_ticks);

 private:
  enum class Side : std::uint8_t { kBefore, kNeither, kAfter };

  void split_by_order();
  void split_by_edges();
  bool before(OpId op) const { return side_[op] == Side::kBefore; }
  Bytes beside(ValueId v) const;
  enum class State : std::uint8_t { kStays, kDroppable, kWanted };

  void find_states();
  bool is_read_later(ValueId v) const;
  void build();

  const Graph& graph_;
  OpId at_;
  const FetchPrices* fetch_;
  OrderMode order_;
  IndexVector<OpId, Side> side_;
  IndexVector<ValueId, State> state_;
  MaxFlow flow_;
  std::vector<Keep> keeps_;
  std::vector<Rerun> reruns_;
  std::vector<MaxFlow::Arc> needs_;
  std::int64_t wanted_bytes_ = 0, keep_bytes_ = 0, rerun_duration_ = 0, fetch_cost_ = 0, most_cost_ = 0;
};

}  // namespace remat
