#include "planners/rotor/chain.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "base/numbers.h"
#include "planners/rotor/kernel.h"
#include "remat/check.h"
#include "remat/quantity.h"

namespace remat::rotor {
namespace {

constexpr std::int64_t kUnits = std::int64_t{1} << 25;  ///< all passes together, at most
constexpr Cell kInfinite = (Cell{1} << 31) - (Cell{1} << 27);
constexpr std::int32_t kBlock = 16;  ///< last stages filled together
constexpr Line kNothing = [] {
  Line line{};
  for (Cell& cell : line.lane) cell = 2 * kInfinite;
  return line;
}();

std::int64_t slots_for(std::int64_t bytes, std::int64_t slot) { return bytes / slot + (bytes % slot > 0); }

/// Converts times to units of the table.
class Clock {
 public:
  explicit Clock(const Chain& chain) {
    std::int64_t divisor = 0, sum = 0;
    const auto add = [&](std::int64_t time) {
      divisor = std::gcd(divisor, time);
      sum += time;
    };
    for (const Stage& stage : chain.stages) {
      add(std::max(stage.pass_time, stage.first_time));
      divisor = std::gcd(divisor, std::min(stage.pass_time, stage.first_time));
      for (const StageOption& option : stage.options) divisor = std::gcd(divisor, option.extra_time);
    }
    unit_ = std::max<std::int64_t>(1, divisor);
    if (sum / unit_ > kUnits) unit_ = sum / kUnits + 1;
  }
  std::int64_t time(Cell units) const { return capped(Wide{units} * unit_); }
  Cell units(std::int64_t time) const {
    return static_cast<Cell>(std::min<std::int64_t>((time + unit_ / 2) / unit_, kInfinite));
  }

 private:
  std::int64_t unit_ = 1;
};

}  // namespace

/// The table in slabs of sixteen slots; within a slab, row (s, t) is at tri(s) + t. A slab depends on slabs
/// of fewer slots (the room beside a checkpoint) and on its own shorter chains.
class ChainTable::Filling {
 public:
  Filling(const Chain& chain, std::int64_t budget, std::int32_t slots, Limits& limits)
      : chain_(chain), n_(std::ssize(chain.stages)), clock_(chain) {
    slot_ = std::max<std::int64_t>(1, slots_for(std::max<std::int64_t>(budget, 0), slots));
    if (budget < 0 || n_ == 0) return;
    const std::int64_t last = budget / slot_;
    prepare();
    for (std::int64_t m = 0; m <= last; m += kLanes) {
      if (!fill_slab(m, limits)) break;
      slots_ = std::min(last, m + kLanes - 1);
    }
    packed_ = {};
  }

  std::int64_t slot() const { return slot_; }
  std::int64_t largest_budget() const { return slots_ < 0 ? -1 : (slots_ + 1) * slot_ - 1; }
  std::int64_t slots_within(std::int64_t budget) const { return std::min(slots_, budget / slot_); }

  Cell value(std::int64_t s, std::int64_t t, std::int64_t m) const {
    if (m < 0) return kInfinite;
    return slabs_[at(m / kLanes)][at(tri(s) + t)].lane[m % kLanes];
  }

  std::vector<std::int64_t> times(std::int64_t s, std::int64_t t) const {
    std::vector<std::int64_t> all;
    for (std::int64_t m = 0; m <= slots_; ++m) {
      const Cell cell = value(s, t, m);
      all.push_back(cell < kInfinite ? clock_.time(cell) : std::numeric_limits<std::int64_t>::max());
    }
    return all;
  }
  /// Extra time of stages s ... t in m slots, in the chain's own unit, summed along the schedule.
  std::int64_t trace(std::int64_t s, std::int64_t t, std::int64_t m, std::vector<Action>* actions) const;
  std::int64_t trace(std::int64_t budget, std::vector<Action>* actions) const {
    return trace(0, n_ - 1, slots_within(budget), actions);
  }
  bool feasible(std::int64_t budget) const {
    return budget >= 0 && slots_ >= 0 && value(0, n_ - 1, slots_within(budget)) < kInfinite;
  }

 private:
  bool is_last(std::int64_t t) const { return t + 1 == n_; }
  const std::vector<Cell>& before(std::int64_t t) const { return is_last(t) ? first_before_ : pass_before_; }
  std::int64_t around(std::int64_t t) const { return is_last(t) ? 0 : chain_.around[at(t)]; }
  const std::vector<std::int64_t>& needs(std::int64_t t) const { return is_last(t) ? first_needs_ : needs_; }
  std::int64_t tri(std::int64_t s) const { return s * (2 * n_ - s - 1) / 2; }
  std::int64_t option_need(std::int64_t t, const StageOption& option) const {
    const std::int64_t forward = is_last(t) ? option.first_need : around(t) + option.forward_need;
    return slots_for(std::max(forward, option.backward_need), slot_);
  }
  /// Slots needed to pass s ... next - 1 before (next, t).
  std::int64_t pass_need(std::int64_t s, std::int64_t next, std::int64_t t) const {
    return slots_for(around(t) + needs(t)[at(tri(s) + next - 1)], slot_);
  }
  std::int64_t output(std::int64_t s) const { return slots_for(chain_.stages[at(s)].output, slot_); }

  void prepare();
  bool fill_slab(std::int64_t m, Limits& limits);
  bool fill_block(std::int64_t t0, std::int64_t t1, std::int64_t m, Limits& limits);
  void fill_tile(std::int64_t s0, std::int64_t s1, std::int64_t t0, std::int64_t t1, std::int64_t m);
  void fold_starts(std::int64_t s, std::int64_t t, std::int64_t first, std::int64_t last, std::int64_t m,
                   Line& best);
  void finish(std::int64_t s, std::int64_t t, std::int64_t m, Line& best);
  void shifted(std::int64_t s, std::int64_t t, std::int64_t m, Line& into) const;
  std::int64_t last_start(std::int64_t s, std::int64_t t, std::int64_t m) const;
  struct Choice {
    std::int64_t next;    ///< where the second part starts; s itself if the stage is saved
    std::int32_t option;  ///< of a saved stage
  };
  Choice choose(std::int64_t s, std::int64_t t, std::int64_t m) const;
  /// True if m - 1 slots already suffice without extra time.
  bool is_free(std::int64_t s, std::int64_t t, std::int64_t m) const { return value(s, t, m - 1) == 0; }
  Line* row(std::int64_t s, std::int64_t t) { return &slabs_.back()[at(tri(s) + t)]; }
  Line* packed(std::int64_t s, std::int64_t t) { return &packed_[at(s * kBlock + t - block_)]; }

  const Chain chain_;
  std::int64_t n_;
  Clock clock_;
  std::int64_t slot_ = 1;
  std::int64_t slots_ = -1;
  std::vector<Cell> pass_before_, first_before_;
  /// At tri(s) + j: most bytes of passing s ... j, the working checkpoint between them included.
  std::vector<std::int64_t> needs_, first_needs_;
  std::vector<std::unique_ptr<Line[]>> slabs_;
  /// For last stages [block_, block_ + 16): rows (s, t) shifted by the checkpoint before s, plus the passes
  /// before.
  std::vector<Line> packed_;
  std::int64_t block_ = 0;
};

void ChainTable::Filling::prepare() {
  pass_before_.assign(at(n_) + 1, 0);
  first_before_.assign(at(n_) + 1, 0);
  needs_.resize(at(n_ * (n_ + 1) / 2));
  first_needs_.resize(needs_.size());
  for (std::int64_t s = 0; s < n_; ++s) {
    const Stage& stage = chain_.stages[at(s)];
    pass_before_[at(s) + 1] = pass_before_[at(s)] + clock_.units(stage.pass_time);
    first_before_[at(s) + 1] = first_before_[at(s)] + clock_.units(stage.first_time);
    std::int64_t most = 0, first = 0, input = 0;
    for (std::int64_t j = s; j < n_; ++j) {
      most = std::max(most, chain_.stages[at(j)].pass_need + input);
      first = std::max(first, chain_.stages[at(j)].first_need + input);
      needs_[at(tri(s) + j)] = most;
      first_needs_[at(tri(s) + j)] = first;
      input = chain_.stages[at(j)].output;
    }
  }
  packed_.resize(at(n_ * kBlock));
}

bool ChainTable::Filling::fill_slab(std::int64_t m, Limits& limits) {
  slabs_.push_back(std::make_unique_for_overwrite<Line[]>(at(n_ * (n_ + 1) / 2)));
  for (std::int64_t t0 = 0; t0 + 1 < n_; t0 += kBlock) {
    if (!fill_block(t0, std::min(t0 + kBlock, n_ - 1), m, limits)) return false;
  }
  return fill_block(n_ - 1, n_, m, limits);
}

bool ChainTable::Filling::fill_block(std::int64_t t0, std::int64_t t1, std::int64_t m, Limits& limits) {
  // Within the block one row at a time, before it four by four.
  block_ = t0;
  for (std::int64_t s = t1 - 1; s >= t0; --s) fill_tile(s, s + 1, t0, t1, m);
  for (std::int64_t s1 = t0; s1 > 0; s1 -= kTile) {
    const std::int64_t s0 = std::max<std::int64_t>(0, s1 - kTile);
    if (limits.spend(1 + (t1 - t0) * (t1 - s0) / 64)) return false;
    fill_tile(s0, s1, t0, t1, m);
  }
  return !limits.spend(1);
}

/// Rows (s, t) for s in [s0, s1) and t in [t0, t1). Second parts that start between the two ranges are folded
/// in bulk, four by four.
void ChainTable::Filling::fill_tile(std::int64_t s0, std::int64_t s1, std::int64_t t0, std::int64_t t1,
                                    std::int64_t m) {
  std::array<Line, kTile * kBlock> best;
  std::array<std::int64_t, kTile * kBlock> folded;
  const auto pair = [&](std::int64_t s, std::int64_t t) { return at((s - s0) * kBlock + t - t0); };
  best.fill(kNothing);
  folded.fill(s1 - 1);
  for (std::int64_t t = t0; s1 - s0 == kTile && s1 < t0 && t + kTile <= t1; t += kTile) {
    std::int64_t last = t0;
    bool all_free = true;
    for (std::int64_t s = s0; s < s1; ++s) {
      for (std::int64_t j = t; j < t + kTile; ++j) {
        last = std::min(last, last_start(s, j, m));
        all_free = all_free && is_free(s, j, m);
      }
    }
    if (last < s1 || all_free) continue;
    std::array<Line*, kTile * kTile> into;
    std::array<const Line*, kTile> left;
    for (std::int64_t i = 0; i < kTile; ++i) {
      left[at(i)] = row(s0 + i, s1 - 1);
      for (std::int64_t j = 0; j < kTile; ++j) {
        into[at(kTile * i + j)] = &best[pair(s0 + i, t + j)];
        folded[pair(s0 + i, t + j)] = last;
      }
    }
    fold_tile(into.data(), packed(s1, t), kBlock, left.data(), last - s1 + 1);
  }
  for (std::int64_t s = s1 - 1; s >= s0; --s) {
    for (std::int64_t t = std::max(s, t0); t < t1; ++t) {
      Line& one = best[pair(s, t)];
      if (is_free(s, t, m)) {
        std::fill(std::begin(one.lane), std::end(one.lane), before(t)[at(s)]);
      } else {
        fold_starts(s, t, s + 1, s1 - 1, m, one);
        fold_starts(s, t, std::max(s, folded[pair(s, t)]) + 1, t, m, one);
      }
      finish(s, t, m, one);
    }
  }
}

/// Folds in passes s ... next - 1 for next in [first, last], for the lanes with enough slots.
void ChainTable::Filling::fold_starts(std::int64_t s, std::int64_t t, std::int64_t first, std::int64_t last,
                                      std::int64_t m, Line& best) {
  if (first > last) return;
  const std::int64_t all = std::min(last, last_start(s, t, m));
  if (first <= all) {
    fold(best, packed(first, t), kBlock, row(s, first - 1), all - first + 1);
    first = all + 1;
  }
  // From here on only lanes from `lane` on have enough slots.
  for (int lane = 1; lane < kLanes && first <= last; ++lane) {
    const std::int64_t some = std::min(last, last_start(s, t, m + lane));
    if (first > some) continue;
    Line least = kNothing;
    fold(least, packed(first, t), kBlock, row(s, first - 1), some - first + 1);
    for (int l = lane; l < kLanes; ++l) best.lane[l] = std::min(best.lane[l], least.lane[l]);
    first = some + 1;
  }
}

/// Adds the option of saving s, stores the row, and packs it for longer chains.
void ChainTable::Filling::finish(std::int64_t s, std::int64_t t, std::int64_t m, Line& best) {
  Cell* cells = row(s, t)->lane;
  const Cell passed = before(t)[at(s)];
  for (int l = 0; l < kLanes; ++l) cells[l] = std::min(best.lane[l] - passed, kInfinite);
  for (const StageOption& option : chain_.stages[at(s)].options) {
    const std::int64_t need = option_need(t, option) - m;
    if (need >= kLanes) continue;
    const Cell extra = clock_.units(option.extra_time);
    Line rest{};
    if (s < t) shifted(s + 1, t, m - slots_for(option.saved, slot_), rest);
    for (std::int64_t l = std::max<std::int64_t>(0, need); l < kLanes; ++l) {
      cells[l] = std::min(cells[l], rest.lane[l] + extra);
    }
  }
  if (s == 0) return;
  Line& pack = *packed(s, t);
  shifted(s, t, m - output(s - 1), pack);
  for (Cell& cell : pack.lane) cell += passed;
}

/// Row (s, t) at m, m + 1, ..., m + 15.
void ChainTable::Filling::shifted(std::int64_t s, std::int64_t t, std::int64_t m, Line& into) const {
  const std::int64_t offset = (m % kLanes + kLanes) % kLanes;
  const std::int64_t slab = (m - offset) / kLanes;
  Cell both[2 * kLanes];
  const auto copy = [&](std::int64_t k, Cell* to) {
    if (k < 0) {
      std::fill_n(to, kLanes, kInfinite);
    } else {
      std::copy_n(slabs_[at(k)][at(tri(s) + t)].lane, kLanes, to);
    }
  };
  copy(slab, both);
  if (offset > 0) copy(slab + 1, both + kLanes);
  std::copy_n(both + offset, kLanes, into.lane);
}

/// The largest next <= t such that m slots suffice to pass s ... next - 1; s where there is none.
std::int64_t ChainTable::Filling::last_start(std::int64_t s, std::int64_t t, std::int64_t m) const {
  const std::int64_t room = capped(Wide{m} * slot_ - around(t));
  const auto first = needs(t).begin() + tri(s) + s, last = needs(t).begin() + tri(s) + t;
  if (first == last || *first > room) return s;
  if (*(last - 1) <= room) return t;
  return s + (std::upper_bound(first, last, room) - first);
}

std::int64_t ChainTable::Filling::trace(std::int64_t first, std::int64_t last, std::int64_t slots,
                                        std::vector<Action>* actions) const {
  Wide sum = 0;
  struct Part {
    std::int64_t s, t, m;
    Action then;  ///< the backward half that ends the part, if `t` is negative
  };
  std::vector<Part> open{{first, last, slots, {}}};
  const auto act = [&](const Action& action) {
    if (actions) actions->push_back(action);
  };
  while (!open.empty()) {
    const Part part = open.back();
    open.pop_back();
    if (part.t < 0) {
      act(part.then);
      continue;
    }
    const auto [s, t, m, unused] = part;
    if (s > t) continue;
    const Choice choice = choose(s, t, m);
    const Stage& stage = chain_.stages[at(s)];
    if (choice.next == s) {
      const StageOption& option = stage.options[at(choice.option)];
      sum += option.extra_time;
      act({Action::Kind::kSave, narrow<std::int32_t>(s), choice.option});
      open.push_back({0, -1, 0, {Action::Kind::kBackward, narrow<std::int32_t>(s), choice.option}});
      open.push_back({s + 1, t, m - slots_for(option.saved, slot_), {}});
      continue;
    }
    for (std::int64_t j = s; j < choice.next; ++j) {
      const Stage& passed = chain_.stages[at(j)];
      sum += is_last(t) ? passed.first_time : passed.pass_time;
      act({Action::Kind::kPass, narrow<std::int32_t>(j)});
    }
    open.push_back({s, choice.next - 1, m, {}});
    open.push_back({choice.next, t, m - output(choice.next - 1), {}});
  }
  return capped(sum);
}

ChainTable::Filling::Choice ChainTable::Filling::choose(std::int64_t s, std::int64_t t,
                                                        std::int64_t m) const {
  const Cell least = value(s, t, m);
  const auto& options = chain_.stages[at(s)].options;
  for (std::size_t o = 0; o < options.size(); ++o) {
    if (option_need(t, options[o]) > m) continue;
    const Cell rest = s < t ? value(s + 1, t, m - slots_for(options[o].saved, slot_)) : 0;
    if (rest + clock_.units(options[o].extra_time) == least) return {s, narrow<std::int32_t>(o)};
  }
  const std::int64_t last = last_start(s, t, m);
  for (std::int64_t next = s + 1; next <= last; ++next) {
    const Cell passes = before(t)[at(next)] - before(t)[at(s)];
    if (passes + value(next, t, m - output(next - 1)) + value(s, next - 1, m) == least) return {next, 0};
  }
  REMAT_CHECK(false && "a finite cell has a choice", s, t, m);
  return {t, 0};
}

ChainTable::ChainTable(const Chain& chain, std::int64_t budget, std::int32_t slots, Limits& limits)
    : filling_(std::make_unique<Filling>(chain, budget, slots, limits)) {}
ChainTable::~ChainTable() = default;
ChainTable::ChainTable(ChainTable&&) noexcept = default;
ChainTable& ChainTable::operator=(ChainTable&&) noexcept = default;

std::int64_t ChainTable::largest_budget() const { return filling_->largest_budget(); }
std::int64_t ChainTable::slot() const { return filling_->slot(); }

std::optional<std::int64_t> ChainTable::extra_time(std::int64_t budget) const {
  if (!filling_->feasible(budget)) return std::nullopt;
  return filling_->trace(budget, nullptr);
}

std::optional<std::vector<Action>> ChainTable::schedule(std::int64_t budget) const {
  if (!filling_->feasible(budget)) return std::nullopt;
  std::vector<Action> actions;
  filling_->trace(budget, &actions);
  return actions;
}

std::vector<std::int64_t> ChainTable::part_times(std::int32_t first, std::int32_t last) const {
  return filling_->times(first, last);
}

std::vector<Action> ChainTable::part_schedule(std::int32_t first, std::int32_t last, std::int64_t m) const {
  std::vector<Action> actions;
  filling_->trace(first, last, m, &actions);
  return actions;
}

std::int64_t table_bytes(std::int64_t stages, std::int64_t slots) {
  const std::int64_t slabs = slots / kLanes + 1;
  return slabs * kLanes * static_cast<std::int64_t>(sizeof(Cell)) * (stages * (stages + 1) / 2);
}

std::int64_t most_stages(std::int64_t wanted, std::int64_t slots) {
  constexpr std::int64_t kMostTableBytes = std::int64_t{5} << 28;
  while (table_bytes(wanted, slots) > kMostTableBytes) wanted = wanted * 9 / 10;
  return wanted;
}

}  // namespace remat::rotor
