#include "exact/offload_moment.h"

#include <algorithm>
#include <cmath>

#include "base/numbers.h"
#include "exact/moment.h"
#include "lp/highs.h"
#include "lp/model.h"
#include "model/step.h"

namespace remat {
namespace {

/// Nested time windows next to the moment, for one channel: all values with the rank of a window or less must
/// be copied within it.
struct Channel {
  std::vector<Duration> windows;            ///< length of the ops in each, once; from the narrowest
  IndexVector<ValueId, int> rank;           ///< of each value in `windows`, or -1
  IndexVector<ValueId, std::int64_t> time;  ///< of its copy
};

/// A price for every row of the relaxation that is not part of the network, each 0 or more.
struct Prices {
  double per_byte = 0;          ///< time, of device memory at the moment
  double per_host_byte = 0;     ///< time, of host memory
  std::vector<double> out, in;  ///< by window: time stalled for time copied
};

class OffloadModel {
 public:
  OffloadModel(const Graph& graph, OpId at, Bytes budget, const Host& host)
      : graph_(graph),
        host_(host),
        moment_(graph, at, OrderMode::kFixed),
        room_(budget - need_of(graph, at)) {
    find_windows(at);
    for (const Moment::Rerun& one : moment_.reruns()) all_reruns_ += one.cost;
    for (const Moment::Keep& keep : moment_.keeps())
      all_copies_ += Wide(out_.time[keep.value]) + in_.time[keep.value];
    unit_ = std::max(1.0, real(graph.base_duration));
    bytes_ = std::max(1.0, real(moment_.most_bytes()));
  }

  Duration bound(Limits& limits) {
    if (moment_.keeps().empty()) return Duration();
    build();
    lp::Settings settings;
    settings.relax = true;
    const lp::Solution solution = lp::solve(model_, settings, limits);
    if (solution.row_dual.empty()) return Duration();
    return Duration(proved(prices_of(solution.row_dual), limits));
  }

 private:
  void find_windows(OpId at) {
    const CopyClock clock(graph_, host_);
    for (auto* channel : {&out_, &in_}) {
      channel->rank.assign(graph_.num_values(), -1);
      channel->time.assign(graph_.num_values(), 0);
    }
    // Out: from the end of the op that makes the value to the moment. In: from the end of the moment to the
    // first reader after it, or to the end if only reruns read the value or it is kept.
    IndexVector<OpId, std::vector<ValueId>> made(graph_.num_ops()), read(graph_.num_ops() + 1);
    for (const Moment::Keep& keep : moment_.keeps()) {
      const ValueId v = keep.value;
      made[graph_.producer[v]].push_back(v);
      const auto readers = graph_.readers[v];
      const auto first = std::upper_bound(readers.begin(), readers.end(), at);
      read[first != readers.end() ? *first : OpId(graph_.ops().size())].push_back(v);
      const auto capped_time = [&](Way way) { return capped(clock.time(way, graph_.bytes[v])); };
      out_.time[v] = capped_time(Way::kOut);
      in_.time[v] = capped_time(Way::kIn);
    }
    const auto open = [](Channel& channel, const std::vector<ValueId>& values, Duration length) {
      if (values.empty()) return;
      for (ValueId v : values) channel.rank[v] = narrow<int>(std::ssize(channel.windows));
      channel.windows.push_back(length);
    };
    Duration length;
    for (OpId op = at.prev(); op; op = op.prev()) {
      open(out_, made[op], length);
      length += graph_.duration[op];
    }
    length = Duration();
    for (OpId op = at.next(); op.index() <= graph_.ops().size(); ++op) {
      open(in_, read[op], length);
      if (op.index() < graph_.ops().size()) length += graph_.duration[op];
    }
  }

  void build() {
    rerun_.assign(graph_.num_ops(), -1);
    for (const Moment::Rerun& one : moment_.reruns()) {
      rerun_[one.op] = model_.add_column(real(one.cost) / unit_, 0, 1, true);
    }
    for (const Moment::Keep& keep : moment_.keeps()) {
      keep_.push_back(model_.add_column(0, 0, 1, true));
      copy_.push_back(model_.add_column(0, 0, graph_.copyable[keep.value] ? 1 : 0, true));
    }
    const double most_stall = real(all_copies_) / unit_;
    stall_out_ = model_.add_column(1, 0, most_stall, false);
    stall_in_ = model_.add_column(1, 0, most_stall, false);
    add_choices();
    std::vector<lp::Term> bytes, host_bytes;
    for (int i : indices(moment_.keeps())) {
      const Moment::Keep& keep = moment_.keeps()[at(i)];
      bytes.push_back({keep_[at(i)], real(keep.bytes) / bytes_});
      host_bytes.push_back({copy_[at(i)], real(graph_.bytes[keep.value]) / bytes_});
    }
    memory_row_ = add_limit(bytes, room_);
    if (host_.budget) host_row_ = add_limit(host_bytes, *host_.budget);
    out_rows_ = add_windows(out_, stall_out_, false);
    in_rows_ = add_windows(in_, stall_in_, true);
  }

  /// Returns the row, or -1 if no term has bytes.
  int add_limit(const std::vector<lp::Term>& terms, Bytes most) {
    const int row = model_.num_rows();
    model_.add_row(-lp::kInfinity, real(most) / bytes_, terms);
    return model_.num_rows() > row ? row : -1;
  }

  /// A needed value, or an input of a rerun, is kept, recomputed or on the host.
  void add_choices() {
    IndexVector<ValueId, int> index(graph_.num_values(), -1);
    const auto row_of = [&](ValueId v, std::vector<lp::Term>& terms) {
      if (const int i = index[v]; i >= 0) {
        terms.push_back({keep_[at(i)], 1});
        terms.push_back({copy_[at(i)], 1});
      }
      if (const int column = rerun_[graph_.producer[v]]; column >= 0) terms.push_back({column, 1});
    };
    for (int i : indices(moment_.keeps())) index[moment_.keeps()[at(i)].value] = i;
    for (const Moment::Keep& keep : moment_.keeps()) {
      if (!moment_.is_wanted(keep.value)) continue;
      std::vector<lp::Term> terms;
      row_of(keep.value, terms);
      model_.add_row(1, lp::kInfinity, terms);
    }
    for (const Moment::Rerun& one : moment_.reruns()) {
      for (ValueId v : graph_.inputs[one.op]) {
        if (!moment_.is_droppable(v) || moment_.is_wanted(v)) continue;
        std::vector<lp::Term> terms{{rerun_[one.op], -1}};
        row_of(v, terms);
        model_.add_row(0, lp::kInfinity, terms);
      }
    }
  }

  /// The copies within each window take at most the window, its stall and, on the way in, the reruns. One row
  /// per window; returns the first.
  int add_windows(const Channel& channel, lp::Column stall, bool with_reruns) {
    std::vector<std::vector<lp::Term>> terms(channel.windows.size());
    for (int i : indices(moment_.keeps())) {
      const ValueId v = moment_.keeps()[at(i)].value;
      terms[at(channel.rank[v])].push_back({copy_[at(i)], real(channel.time[v]) / unit_});
    }
    std::vector<lp::Column> total;
    for (std::size_t w = 0; w < terms.size(); ++w) {
      total.push_back(model_.add_column(0, 0, real(all_copies_) / unit_ + 1, false));
      terms[w].push_back({total.back(), -1});
      if (w > 0) terms[w].push_back({total[w - 1], 1});
      model_.add_row(0, 0, terms[w]);
    }
    const int first = model_.num_rows();
    lp::Column reruns = -1;
    if (with_reruns && !moment_.reruns().empty()) {
      reruns = model_.add_column(0, 0, real(all_reruns_) / unit_ + 1, false);
    }
    for (std::size_t w = 0; w < terms.size(); ++w) {
      std::vector<lp::Term> row{{total[w], 1}, {stall, -1}};
      if (reruns >= 0) row.push_back({reruns, -1});
      model_.add_row(-lp::kInfinity, real(channel.windows[w]) / unit_, row);
    }
    if (reruns >= 0) {
      std::vector<lp::Term> row{{reruns, -1}};
      for (const Moment::Rerun& one : moment_.reruns()) {
        row.push_back({rerun_[one.op], real(one.cost) / unit_});
      }
      model_.add_row(0, 0, row);
    }
    return first;
  }

  Prices prices_of(const std::vector<double>& dual) const {
    const auto price = [&](int row) { return row < 0 ? 0.0 : std::max(0.0, -dual[at(row)]); };
    Prices prices;
    prices.per_byte = price(memory_row_) * unit_ / bytes_;
    prices.per_host_byte = price(host_row_) * unit_ / bytes_;
    for (int w : indices(out_.windows)) prices.out.push_back(price(out_rows_ + w));
    for (int w : indices(in_.windows)) prices.in.push_back(price(in_rows_ + w));
    return prices;
  }

  /// Weak duality in integers: for any prices, the cheapest choice less the value of the room, the host's
  /// budget and the windows at these prices is a lower bound.
  std::int64_t proved(const Prices& prices, Limits& limits) {
    constexpr std::int64_t kMostTicks = 400'000'000;
    constexpr double kRoom = 0x1p60;
    double whole = real(all_reruns_) + prices.per_byte * bytes_ + 1;
    const auto scale = static_cast<std::int64_t>(std::min(0x1p40, std::floor(kRoom / whole)));
    if (scale < 1) return 0;
    const auto rounded = [&](double price) {
      return static_cast<std::int64_t>(std::min(kRoom, std::floor(price * real(scale))));
    };
    const std::int64_t per_byte = rounded(prices.per_byte), per_host_byte = rounded(prices.per_host_byte);
    Wide paid = Wide(room_.count()) * per_byte;
    if (host_.budget) paid += Wide(host_.budget->count()) * per_host_byte;
    // By rank of a value: the sum of the prices of its window and all wider ones, at most 1.
    const auto sums = [&](const Channel& channel, const std::vector<double>& given) {
      std::vector<std::int64_t> sum(given.size() + 1, 0);
      for (std::size_t w = given.size(); w-- > 0;) {
        const std::int64_t part = std::min(rounded(given[w]), scale - sum[w + 1]);
        sum[w] = sum[w + 1] + part;
        paid += Wide(part) * channel.windows[w].count();
      }
      return sum;
    };
    const std::vector<std::int64_t> out = sums(out_, prices.out), in = sums(in_, prices.in);
    std::vector<std::int64_t> per_rerun, per_keep;
    for (const Moment::Rerun& one : moment_.reruns()) per_rerun.push_back(one.cost * (scale - in.front()));
    for (const Moment::Keep& keep : moment_.keeps()) {
      const ValueId v = keep.value;
      const Wide copied = Wide(out_.time[v]) * out[at(out_.rank[v])] +
                          Wide(in_.time[v]) * in[at(in_.rank[v])] +
                          Wide(graph_.bytes[v].count()) * per_host_byte;
      per_keep.push_back(static_cast<std::int64_t>(std::min(copied, Wide(keep.bytes) * per_byte)));
    }
    moment_.stop_with(&limits);
    const auto least = moment_.least_sum(per_rerun, per_keep, kMostTicks);
    if (!least || *least <= paid) return 0;
    return static_cast<std::int64_t>((Wide(*least) - paid + scale - 1) / scale);
  }

  const Graph& graph_;
  const Host& host_;
  Moment moment_;
  Bytes room_;
  Channel out_, in_;
  Wide all_reruns_ = 0, all_copies_ = 0;
  double unit_ = 1, bytes_ = 1;  ///< units of time and bytes in the model
  lp::Model model_;
  IndexVector<OpId, int> rerun_;         ///< columns
  std::vector<lp::Column> keep_, copy_;  ///< by index of the moment's keeps
  lp::Column stall_out_ = -1, stall_in_ = -1;
  int memory_row_ = -1, host_row_ = -1, out_rows_ = -1, in_rows_ = -1;
};

}  // namespace

Duration offload_bound(const Graph& graph, OpId at, Bytes budget, const Host& host, Limits& limits) {
  return OffloadModel(graph, at, budget, host).bound(limits);
}

}  // namespace remat
