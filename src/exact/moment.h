// The network of one moment: what is kept across it and what runs again after it, as a minimum cut.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/numbers.h"
#include "exact/retention_cut.h"
#include "graph/max_flow.h"

namespace remat {

/// Is the value gone after the step of `at`, unless it is kept across it? What the step reads is there; it is
/// gone where the step writes over it.
bool may_be_lost(const Graph& graph, OpId at, ValueId v);

/// Cost and memory in one sum: cost x per_cost + bytes x per_byte.
struct Price {
  std::int64_t per_cost, per_byte;

  double ratio() const { return real(per_byte) / real(per_cost); }
};

/// The network of one moment. Source side: "is wanted after it" for a value, "runs again" for an op. A wanted
/// value whose op does not run again is kept: that arc costs its bytes. An op that runs again costs its
/// duration and wants its inputs. A value that one op alone may want has that op's node.
class Moment {
 public:
  /// With prices, what is wanted may be fetched as well: such a value costs the lesser of both.
  Moment(const Graph& graph, OpId at, OrderMode order, const FetchPrices* fetch = nullptr);

  /// From now on an op's cost is up to a thousandth more than its duration, of the later ones more. Alike
  /// layers then change sides one by one, those first whose reruns come last, when memory is free again.
  /// False where the numbers leave no room for that.
  bool skew();

  std::int64_t ticks() const { return flow_.ticks(); }
  void stop_with(Limits* limits);

  struct Choice {
    Retention retention;
    std::int64_t cost = 0;   ///< of all reruns
    std::int64_t least = 0;  ///< cost x per_cost + bytes x per_byte of every choice is at least this
  };
  /// The cheapest choice at a price; nothing where the ticks ran out.
  std::optional<Choice> cheapest(Price price, std::int64_t most_ticks);
  Choice keep_all() const;
  /// The same choice with the cost that it has now.
  Choice priced(Choice choice) const;
  /// No choice costs or holds more.
  std::int64_t most_cost() const { return std::max<std::int64_t>(1, most_cost_); }
  std::int64_t most_bytes() const { return std::max<std::int64_t>(1, keep_bytes_); }

  /// A value that is kept unless its op runs again.
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
  /// Made before the moment and not in memory at it anyway.
  bool is_droppable(ValueId v) const { return state_[v] != State::kStays; }
  /// The least sum of any choice where a rerun costs `per_rerun` and what is not made again `per_keep`, in
  /// the order of `reruns` and `keeps`; nothing where the ticks ran out.
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
