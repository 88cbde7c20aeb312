#include "baselines/pofo/offload_chain.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>

#include "base/numbers.h"

namespace remat::pofo {
namespace {

/// States within 1 / kParts of each other compete by time alone.
constexpr std::int64_t kParts = 64;
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

std::int64_t slots_for(std::int64_t bytes, std::int64_t slot) { return bytes / slot + (bytes % slot > 0); }

enum Goes : std::uint8_t { kStays = 0, kOutput = 1, kRest = 2 };

/// How a state was reached.
struct Step {
  std::int32_t from = -1;   ///< the stage that the segment begins with
  std::int32_t state = -1;  ///< among the states before it
  std::int32_t slots = 0;   ///< that the segment has
  bool is_saved = false;
  std::uint8_t goes = kStays;
};

struct State {
  std::int32_t m = 0, y = 0;
  bool is_input_on_host = false;
  std::int64_t time = 0;
  Step step;
};

class Solver {
 public:
  Solver(const LinkedChain& linked, const rotor::ChainTable& table, std::int64_t m, std::int64_t below,
         Limits& limits)
      : linked_(linked),
        chain_(*linked.chain),
        table_(table),
        n_(narrow<std::int32_t>(std::ssize(chain_.stages))),
        slots_(narrow<std::int32_t>(m)),
        below_(below),
        limits_(limits),
        grain_(std::max<std::int64_t>(1, m / kParts)) {}

  std::optional<Schedule> solve() {
    prepare();
    states_.resize(at(n_) + 1);
    states_[0].push_back({slots_, 0, false, 0, {}});
    for (std::int32_t next = 1; next <= n_; ++next) {
      if (!reach(next)) return std::nullopt;
    }
    const auto& ends = states_[at(n_)];
    if (ends.empty()) return std::nullopt;
    return schedule_of(std::ranges::min_element(ends, {}, &State::time) - ends.begin());
  }

 private:
  const rotor::Stage& stage(std::int32_t s) const { return chain_.stages[at(s)]; }
  const rotor::StageOption& option(std::int32_t s) const { return stage(s).options.front(); }
  std::int64_t slots(std::int64_t bytes) const { return slots_for(bytes, table_.slot()); }
  std::int64_t output(std::int32_t s) const { return slots(stage(s).output); }
  std::int64_t rest(std::int32_t s) const { return slots(option(s).saved - stage(s).output); }

  /// Bytes that the link can carry while the stages before each one run.
  std::vector<std::int64_t> carried(const std::vector<std::int64_t>& times, std::int64_t rate) const {
    std::vector<std::int64_t> all{0};
    Wide time = 0;
    for (std::int64_t one : times) {
      time += one;
      all.push_back(capped(time * rate / linked_.second / table_.slot()));
    }
    return all;
  }
  std::int64_t slot_time(std::int64_t rate) const {
    return capped((Wide{table_.slot()} * linked_.second + rate - 1) / rate);
  }

  void prepare() {
    out_ = carried(linked_.forward_time, linked_.out);
    in_ = carried(linked_.backward_time, linked_.in);
    stall_ = slot_time(linked_.out) + slot_time(linked_.in);
    for (auto& reached : reached_) reached.assign(row() * row(), {});
    first_time_.assign(1, 0);
    for (const rotor::Stage& one : chain_.stages) first_time_.push_back(first_time_.back() + one.first_time);
  }

  /// All states before `next`, from those before each stage that the last segment may begin with.
  bool reach(std::int32_t next) {
    std::int64_t need = -1;
    save(next - 1);
    for (std::int32_t s = next - 1; s >= 0; --s) {
      // Stages after the first hold what they start from as well.
      need = std::max(need, stage(s).first_need);
      if (next < n_) pass(s, next, slots(need));
      if (s > 0) need = std::max(need, stage(s).first_need + stage(s - 1).output);
      if (limits_.spend(1 + std::ssize(states_[at(s)]) / 16)) return false;
    }
    keep_best(next);
    return !limits_.spend(1 + std::ssize(reached_[0]) / 64);
  }

  void save(std::int32_t s) {
    const std::int64_t need = slots(std::max(option(s).first_need, option(s).backward_need));
    for (int i : indices(states_[at(s)])) {
      const State& one = states_[at(s)][at(i)];
      const std::int64_t has = one.m - one.y - input_of(one, s);
      if (has < need) continue;
      const std::int64_t time = one.time + option(s).extra_time;
      for (std::uint8_t goes = kStays; goes <= (kOutput | kRest); ++goes) {
        const bool output_goes = goes & kOutput, rest_goes = goes & kRest;
        if (output_goes && !(s + 1 < n_ && linked_.output_goes[at(s)] && output(s) > 0)) continue;
        if (rest_goes && !(linked_.rest_goes[at(s)] && rest(s) > 0)) continue;
        const std::int64_t stays = goes == kStays ? slots(option(s).saved)
                                                  : (output_goes ? 0 : output(s)) + (rest_goes ? 0 : rest(s));
        const Step step{s, i, narrow<std::int32_t>(has), true, goes};
        enter(s + 1, one, stays, in_transit(one, s, s + 1) + (rest_goes ? rest(s) : 0), time, step);
      }
    }
  }

  void pass(std::int32_t s, std::int32_t next, std::int64_t need) {
    if (states_[at(s)].empty()) return;
    const std::vector<std::int64_t> again = table_.part_times(s, next - 1);
    const std::int64_t passes = first_time_[at(next)] - first_time_[at(s)];
    for (int i : indices(states_[at(s)])) {
      const State& one = states_[at(s)][at(i)];
      const std::int64_t has = one.m - one.y - input_of(one, s);
      if (has < std::max<std::int64_t>(need, 0) || again[at(has)] == kNever) continue;
      const std::int64_t time = one.time + passes + again[at(has)], y = in_transit(one, s, next);
      const Step step{s, i, narrow<std::int32_t>(has), false, kStays};
      enter(next, one, output(next - 1), y, time, step);
      if (!linked_.output_goes[at(next - 1)] || output(next - 1) == 0) continue;
      Step leaves = step;
      leaves.goes = kOutput;
      enter(next, one, 0, y, time, leaves);
    }
  }

  std::int64_t input_of(const State& one, std::int32_t s) const {
    return one.is_input_on_host ? output(s - 1) : 0;
  }
  std::int64_t in_transit(const State& one, std::int32_t s, std::int32_t next) const {
    const std::int64_t input = input_of(one, s);
    const std::int64_t out = one.y + input - (out_[at(next)] - out_[at(s)]);
    const std::int64_t in = std::max<std::int64_t>(0, one.y - (in_[at(next)] - in_[at(s)])) + input;
    return std::max({std::int64_t{0}, out, in});
  }

  void enter(std::int32_t next, const State& from, std::int64_t stays, std::int64_t y, std::int64_t time,
             const Step& step) {
    const std::int64_t m = from.m - stays;
    if (m < 0 || time >= below_) return;
    // More than m slots cannot be in transit: the device waits for the rest.
    if (y > m) {
      const Wide waits = Wide{y - m} * stall_ + time;
      if (waits >= below_) return;
      time = capped(waits);
      y = m;
    }
    offer({narrow<std::int32_t>(m), narrow<std::int32_t>(y), next < n_ && (step.goes & kOutput), time, step});
  }

  std::size_t row() const { return at(slots_ / grain_) + 1; }
  void offer(const State& next) {
    State& one = reached_[next.is_input_on_host][at(next.m / grain_) * row() + at(next.y / grain_)];
    if (one.step.from < 0 || std::tuple(next.time, next.y - next.m) < std::tuple(one.time, one.y - one.m))
      one = next;
  }

  /// Adds states in which the device waits, and drops dominated ones.
  void keep_best(std::int32_t next) {
    std::vector<std::int64_t> least(row(), kNever), least_from_host(row(), kNever);
    for (std::size_t m = row(); m-- > 0;) {
      for (int from_host : {0, 1}) {
        State* states = &reached_[at(from_host)][m * row()];
        for (std::size_t y = row(); next < n_ && y-- > 1;) {
          if (states[y].step.from < 0) continue;
          State waited = states[y];
          const std::int32_t waits =
              narrow<std::int32_t>(waited.y - (std::int64_t{waited.y} / grain_ * grain_ - 1));
          waited.y -= waits;
          const Wide time = waited.time + Wide{stall_} * waits;
          if (time >= below_) continue;
          waited.time = capped(time);
          offer(waited);
        }
        auto& best = from_host ? least_from_host : least;
        std::int64_t before = kNever;
        for (std::size_t y = 0; y < row(); ++y) {
          State& one = states[y];
          before = std::min({before, best[y], from_host ? least[y] : kNever});
          if (one.step.from >= 0 && one.time < before) {
            before = one.time;
            states_[at(next)].push_back(one);
          }
          best[y] = before;
          one.step.from = -1;
        }
      }
    }
  }

  Schedule schedule_of(std::int64_t end) const {
    Schedule schedule;
    schedule.output_on_host.assign(at(n_), false);
    schedule.rest_on_host.assign(at(n_), false);
    struct Segment {
      std::int32_t next;
      Step step;
    };
    std::vector<Segment> segments;
    std::int32_t next = n_;
    for (std::int64_t state = end; next > 0;) {
      const State& one = states_[at(next)][at(state)];
      if (next == n_) schedule.extra_time = one.time;
      segments.push_back({next, one.step});
      schedule.output_on_host[at(next) - 1] = one.step.goes & kOutput;
      schedule.rest_on_host[at(next) - 1] = one.step.goes & kRest;
      state = one.step.state;
      next = one.step.from;
    }
    using Kind = rotor::Action::Kind;
    for (std::size_t i = segments.size(); i-- > 0;) {
      const auto& [end_of, step] = segments[i];
      for (std::int32_t s = step.from; s < end_of; ++s) {
        schedule.actions.push_back({step.is_saved ? Kind::kSave : Kind::kPass, s});
      }
    }
    for (const auto& [end_of, step] : segments) {
      if (step.is_saved) {
        schedule.actions.push_back({Kind::kBackward, step.from});
        continue;
      }
      const auto again = table_.part_schedule(step.from, end_of - 1, step.slots);
      schedule.actions.insert(schedule.actions.end(), again.begin(), again.end());
    }
    return schedule;
  }

  const LinkedChain& linked_;
  const rotor::Chain& chain_;
  const rotor::ChainTable& table_;
  const std::int32_t n_, slots_;
  const std::int64_t below_;
  Limits& limits_;
  const std::int64_t grain_;
  std::vector<std::int64_t> out_, in_, first_time_;
  std::int64_t stall_ = 0;
  std::vector<std::vector<State>> states_;  ///< before each stage, and at the end
  std::array<std::vector<State>, 2>
      reached_;  ///< before the stage at hand: where the input is, m and y in grains
};

}  // namespace

std::optional<Schedule> solve(const LinkedChain& linked, const rotor::ChainTable& table, std::int64_t m,
                              std::int64_t below, Limits& limits) {
  return Solver(linked, table, m, below, limits).solve();
}

}  // namespace remat::pofo
