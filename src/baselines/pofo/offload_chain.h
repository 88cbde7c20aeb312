// Rematerialization and offloading together on a chain (after Beaumont, Eyraud-Dubois and Shilova 2021).
// Knows nothing of graphs: stages, bytes, times and a link go in, a sequence of stage runs and what goes to
// the host come out.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planners/rotor/chain.h"
#include "remat/limits.h"

namespace remat::pofo {

/// What the link to the host sees of a chain whose stages have one option each.
struct LinkedChain {
  const rotor::Chain* chain = nullptr;
  std::vector<std::int64_t> forward_time, backward_time;  ///< of each stage, run once
  std::vector<bool> output_goes;  ///< the checkpoint that the stage makes may be copied
  std::vector<bool> rest_goes;    ///< what a saved stage holds beside it may be copied
  std::int64_t out = 1, in = 1;   ///< bytes per second
  std::int64_t second = 1;        ///< in units of time
};

struct Schedule {
  std::int64_t extra_time = 0;  ///< recomputation and stalls, by the model
  std::vector<rotor::Action> actions;
  std::vector<bool> output_on_host, rest_on_host;  ///< of each stage
};

/// The first sweep cuts the chain into segments: a stage that is saved, or stages that are passed and that
/// `table` brings back in the backward pass. With a(s) the checkpoint before stage s and c(s) = 1 where it
/// goes to the host, in slots:
///   E(s, m, y, c)   least extra time before stage s, with m slots for what is to come, y of them in transit
/// A segment S from s to next - 1 has m - y - c a(s) slots. It leaves m less what of it stays on the device,
/// and
///   y' = max(y + c a(s) - out(S), max(0, y - in(S)) + c a(s), 0) + what of a saved stage goes
/// out(S) and in(S): what the link carries while the forward and the backward half of S run once. One y for
/// both ways: what is on its way out before S in the forward pass, or on its way back after S in the backward
/// pass, is at most that. Before a segment the device may wait for a slot of it, once each way. Nothing is
/// copied within a segment that runs again. States that another one is not behind in are dropped, and all
/// whose time reaches `below`. Nothing where no such schedule is faster.
std::optional<Schedule> solve(const LinkedChain& linked, const rotor::ChainTable& table, std::int64_t m,
                              std::int64_t below, Limits& limits);

}  // namespace remat::pofo
