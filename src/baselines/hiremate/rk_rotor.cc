// RK-ROTOR (section 3.2.1; Zhao et al. 2023): dynamic programming over a chain of members, each with several
// options. Best(s, t, memory) runs members s ... t forward and t ... s backward, with what comes into s and
// the gradient of t in memory:
//   - s saves one of its options, then Best(s + 1, t), then the backward part of s; or
//   - s ... c - 1 run and save nothing, what comes into c is kept, Best(c, t), and then Best(s, c - 1).
// Memory in slots; everything that is kept is rounded up, so no plan needs more than the table says.
#include <algorithm>
#include <limits>

#include "baselines/hiremate/greedy_runs.h"

namespace remat::hiremate {
namespace {

constexpr int kSlots = 400;
constexpr std::int64_t kMostCells = 40'000'000;
constexpr double kNever = std::numeric_limits<double>::infinity();

/// A chain: data nodes of the forward part of a member are read by that member and the next one only. A
/// gradient may go to any member before (that of a tied embedding) and is in memory all the way.
struct Chain {
  std::vector<std::int64_t> link;      ///< bytes between member i and i + 1, forward
  std::vector<std::int64_t> gradient;  ///< the same, backward
};

std::optional<Chain> chain_of(const LevelGraph& graph) {
  const int m = graph.turn;
  Chain chain{std::vector<std::int64_t>(static_cast<std::size_t>(m), 0),
              std::vector<std::int64_t>(static_cast<std::size_t>(m), 0)};
  // Members without a backward part run with what comes before; only those that all have one are handled,
  // and their backward parts in reverse order.
  for (int i = 0; i < m; ++i) {
    if (graph.members[static_cast<std::size_t>(i)].backward_node != graph.num_nodes() - 1 - i)
      return std::nullopt;
  }
  for (const DataNode& data : graph.data) {
    const int i = graph.member_of[static_cast<std::size_t>(data.maker)];
    if (data.at_end) return std::nullopt;
    const bool forward = graph.is_forward(data.maker);
    int last = i;
    for (int reader : data.readers) {
      const int j = graph.member_of[static_cast<std::size_t>(reader)];
      if (reader == graph.turn || (forward ? j != i && j != i + 1 : j > i)) return std::nullopt;
      last = std::min(last, j);
    }
    if (forward) chain.link[static_cast<std::size_t>(i)] += data.bytes;
    for (int link = last; link < i; ++link) chain.gradient[static_cast<std::size_t>(link)] += data.bytes;
  }
  return chain;
}

class Table {
 public:
  Table(const LevelGraph& graph, const Chain& chain, std::int64_t budget, Limits& limits)
      : graph_(graph),
        chain_(chain),
        limits_(limits),
        m_(graph.turn),
        slot_(std::max<std::int64_t>(1, (budget + kSlots - 1) / kSlots)),
        top_(static_cast<int>(std::max<std::int64_t>(0, budget) / slot_)) {
    std::int64_t kept = 0;
    for (const MemberShape& member : graph.members) kept += member.kept_forward;
    kept_forward_ = kept;
    kept_after_.assign(static_cast<std::size_t>(m_) + 1, 0);
    for (int i = m_ - 1; i >= 0; --i)
      kept_after_[at(i)] = kept_after_[at(i) + 1] + graph.members[at(i)].kept_backward;
  }

  /// False where the limits are reached.
  bool fill() {
    cells_.assign(at(m_) * at(m_) * (kSlots + 1), {});
    for (int length = 1; length <= m_; ++length) {
      for (int s = 0; s + length <= m_; ++s) {
        const int t = s + length - 1;
        const auto work = (kSlots + 1) * (length + 4) / 16;
        if (limits_.spend(work)) return false;
        for (int slots = 0; slots <= kSlots; ++slots) cell(s, t, slots) = best(s, t, slots);
      }
    }
    return true;
  }
  double total() { return cell(0, m_ - 1, top_).time; }

  std::vector<HilpModel::Run> runs() {
    runs_.clear();
    phase_ = 0;
    follow(0, m_ - 1, top_);
    return runs_;
  }

 private:
  struct Cell {
    double time = kNever;
    std::int16_t option = -1;  ///< s saves it
    std::int16_t cut = -1;     ///< first member after what runs and saves nothing
  };

  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  Cell& cell(int s, int t, int slots) { return cells_[(at(s) * at(m_) + at(t)) * (kSlots + 1) + at(slots)]; }
  /// More than there are is one too many.
  int slots_of(std::int64_t bytes) const {
    return static_cast<int>(std::min<std::int64_t>(kSlots + 1, bytes / slot_ + (bytes % slot_ > 0)));
  }
  std::int64_t bytes_in(int slots) const { return slots * slot_; }

  static std::int64_t most(const RunShape& run) {
    std::int64_t peak = 0;
    for (const Moment& moment : run.moments) peak = std::max(peak, moment.own);
    return peak;
  }
  std::int64_t into(int s) const { return s > 0 ? chain_.link[at(s) - 1] : 0; }
  /// What stays to the end and is there already when members after t have run backward.
  std::int64_t kept(int t) const { return kept_forward_ + kept_after_[at(t) + 1]; }
  std::int64_t gradient_of(int t) const { return t + 1 < m_ ? chain_.gradient[at(t)] : 0; }
  bool runs_once(int s) const { return !graph_.members[at(s)].may_rerun; }

  Cell best(int s, int t, int slots) {
    Cell result;
    const MemberShape& member = graph_.members[at(s)];
    // `slots` holds what is saved from here on, and all of what runs; what comes into s is paid for.
    const std::int64_t room = bytes_in(slots) - kept(t) - gradient_of(t);
    for (int o = 0; o < static_cast<int>(member.options.size()); ++o) {
      const OptionShape& option = member.options[at(o)];
      if (option.staged) continue;
      if (most(option.forward) > room) continue;
      const std::int64_t out = s + 1 < m_ ? chain_.link[at(s)] : 0;
      const std::int64_t backward_room =
          bytes_in(slots) - kept_forward_ - kept_after_[at(s) + 1] - gradient_of(s);
      if (Wide{most(option.backward)} + option.saved + out > backward_room) continue;
      double rest = 0;
      if (t > s) {
        const int left = slots - slots_of(option.saved) - slots_of(out);
        if (left < 0) continue;
        rest = cell(s + 1, t, left).time;
      }
      const double time = static_cast<double>(option.forward.duration + option.backward.duration) + rest;
      if (time < result.time) result = {time, static_cast<std::int16_t>(o), -1};
    }
    double forward = 0;
    for (int c = s + 1; c <= t && room >= 0; ++c) {
      const MemberShape& before = graph_.members[at(c) - 1];
      // What comes into s stays; what comes into c - 1 goes when it has run.
      const std::int64_t in = c - 1 > s ? into(c - 1) : 0;
      if (most(before.unsaved) + in > room || runs_once(c - 1)) break;
      forward += static_cast<double>(before.unsaved.duration);
      const int left = slots - slots_of(into(c));
      if (left < 0) continue;
      const double time = forward + cell(c, t, left).time + cell(s, c - 1, slots).time;
      if (time < result.time) result = {time, -1, static_cast<std::int16_t>(c)};
    }
    return result;
  }

  void follow(int s, int t, int slots) {
    const Cell& c = cell(s, t, slots);
    const auto n = static_cast<int>(graph_.members[at(s)].options.size());
    const auto forward = [&](int member, int option) {
      // A phase ends with the first run of a node: forward nodes in order, then the backward nodes.
      runs_.push_back({std::max(phase_, member), member, option});
      if (member == phase_ && phase_ < m_) ++phase_;
      if (phase_ == m_) ++phase_;
    };
    if (c.option >= 0) {
      forward(s, graph_.members[at(s)].options[at(c.option)].saved > 0 ? c.option : n);
      if (t > s) {
        const std::int64_t out = s + 1 < m_ ? chain_.link[at(s)] : 0;
        follow(s + 1, t, slots - slots_of(graph_.members[at(s)].options[at(c.option)].saved) - slots_of(out));
      }
      runs_.push_back({phase_, graph_.members[at(s)].backward_node, c.option});
      ++phase_;
      return;
    }
    for (int i = s; i < c.cut; ++i) forward(i, static_cast<int>(graph_.members[at(i)].options.size()));
    const int cut = c.cut;
    follow(cut, t, slots - slots_of(into(cut)));
    follow(s, cut - 1, slots);
  }

  const LevelGraph& graph_;
  const Chain& chain_;
  Limits& limits_;
  const int m_;
  const std::int64_t slot_;
  const int top_;  ///< slots of the whole budget
  std::int64_t kept_forward_ = 0;
  std::vector<std::int64_t> kept_after_;  ///< of backward parts of members from i on
  std::vector<Cell> cells_;
  std::vector<HilpModel::Run> runs_;
  int phase_ = 0;
};

class RkRotor final : public LevelSolver {
 public:
  std::string name() const override { return "rk_rotor"; }

  bool applicable(const Level& level) const override {
    const auto m = static_cast<std::int64_t>(level.members.size());
    return m > 0 && m * m * kSlots <= kMostCells && chain_of(level_graph(level, false)).has_value();
  }

  std::vector<Option> options(const Level& level, const std::vector<LevelBudget>& budgets,
                              Limits& limits) const override {
    const LevelGraph graph = level_graph(level, false, &limits);
    if (limits.reached()) return {};
    const auto chain = chain_of(graph);
    std::vector<Option> found;
    if (!chain) return found;
    for (const LevelBudget& budget : budgets) {
      if (budget.saved) continue;
      const Bytes resident = level.is_root ? level.training->graph->resident : Bytes();
      Table table(graph, *chain, (budget.peak - resident).count(), limits);
      if (budget.peak <= resident || !table.fill() || table.total() == kNever) continue;
      found.push_back(option_of(level, graph, table.runs()));
    }
    return found;
  }
};

}  // namespace

std::shared_ptr<const LevelSolver> rk_rotor() { return std::make_shared<RkRotor>(); }

}  // namespace remat::hiremate
