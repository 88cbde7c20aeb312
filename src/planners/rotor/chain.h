// Optimal persistent schedules on heterogeneous chains (Beaumont et al. 2019), with several ways to save a
// stage as in Rockmate (Zhao et al. 2023). Knows nothing of graphs: stages, bytes and times go in, a sequence
// of stage runs comes out.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "remat/limits.h"

namespace remat::rotor {

/// A way to run the forward half of a stage so that its backward half can follow without another run of it.
/// All needs leave out the stage's input, which is held by whoever made it.
struct StageOption {
  std::int64_t saved = 0;          ///< bytes held until the backward half, the stage's output included
  std::int64_t extra_time = 0;     ///< beyond the cheapest option's forward and backward half
  std::int64_t forward_need = 0;   ///< most bytes at a step of the forward half, beyond `around`
  std::int64_t first_need = 0;     ///< the same in the first sweep, all other values included
  std::int64_t backward_need = 0;  ///< most bytes at a step of the backward half, all other values included
};

/// A forward half and a backward half, joined to the stages before and after by one checkpoint each.
struct Stage {
  std::int64_t output = 0;      ///< bytes of the checkpoint that the next stage starts from
  std::int64_t pass_time = 0;   ///< of one more forward run that saves nothing
  std::int64_t first_time = 0;  ///< what it costs that the first run saves nothing and another one has to
  std::int64_t pass_need = 0;   ///< most bytes at a step of a run that saves nothing, beyond `around`
  std::int64_t first_need = 0;  ///< the same in the first sweep, all other values included
  std::vector<StageOption> options;
};

/// "All other values" are those that no checkpoint and no saved stage accounts for: gradients under way, kept
/// outputs, values that are held throughout.
struct Chain {
  std::vector<Stage> stages;
  /// Bytes of all other values while stages 0 ... t wait for their backward half and the later ones are done.
  std::vector<std::int64_t> around;
};

/// One run of half a stage.
struct Action {
  enum class Kind : std::uint8_t { kPass, kSave, kBackward };
  Kind kind;
  std::int32_t stage;
  std::int32_t option = 0;  ///< of a save and its backward half
  friend bool operator==(const Action&, const Action&) = default;
};

/// C(s, t, m): the least extra time to take stages s ... t forward and back within m slots, where the input
/// of s and the gradient of t are there:
///   save s by option o:    extra(o) + C(s + 1, t, m - saved(o))
///   pass s ... s' - 1:     passes + C(s', t, m - output(s' - 1)) + C(s, s' - 1, m)
/// Persistent: what is checkpointed or saved stays until its backward half has run. Bytes are cut into slots,
/// all amounts rounded up, so that a schedule fits where the table says so; exact where a slot is one byte.
/// Times are exact where their sum over the chain is at most 2^25 of their greatest common divisor, else
/// rounded to that many units; schedules of more than 60 times the sum count as none. O(n^2 slots) memory and
/// O(n^3 slots) time: 1,000 stages and 500 slots take 1.03 GB and some four seconds.
class ChainTable {
 public:
  /// For all budgets up to `budget`, in at most `slots` slots. Where the limits are reached the table ends at
  /// a smaller budget.
  ChainTable(const Chain& chain, std::int64_t budget, std::int32_t slots, Limits& limits);
  ~ChainTable();
  ChainTable(ChainTable&&) noexcept;
  ChainTable& operator=(ChainTable&&) noexcept;

  /// The largest budget that the table answers, in bytes; negative where it has none.
  std::int64_t largest_budget() const;
  /// Bytes of one slot.
  std::int64_t slot() const;
  /// The least extra time within a budget, or nothing where no persistent schedule fits; the largest number
  /// where it leaves 64 bits.
  std::optional<std::int64_t> extra_time(std::int64_t budget) const;
  /// A schedule that takes that long.
  std::optional<std::vector<Action>> schedule(std::int64_t budget) const;

  /// C(first, last, m) for every m of the table, to the rounding of its times; the largest number where no
  /// schedule fits.
  std::vector<std::int64_t> part_times(std::int32_t first, std::int32_t last) const;
  /// A schedule of those stages in m slots, which the table has a time for.
  std::vector<Action> part_schedule(std::int32_t first, std::int32_t last, std::int64_t m) const;

 private:
  class Filling;
  std::unique_ptr<Filling> filling_;
};

/// Bytes of the table that a chain of `stages` needs for `slots`.
std::int64_t table_bytes(std::int64_t stages, std::int64_t slots);

/// At most so many stages as `wanted`, and no more than a table of 1.25 GiB has room for.
std::int64_t most_stages(std::int64_t wanted, std::int64_t slots);

}  // namespace remat::rotor
