// The turns of all devices, and their times.
#include <algorithm>
#include <optional>

#include "base/numbers.h"
#include "remat/error.h"
#include "remat/pipeline.h"

namespace remat {
namespace {

/// The turn of a device's `k`-th forward, or backward, half. Groups of as many micro-batches as there are
/// devices go through chunk after chunk.
Turn turn_at(int k, bool backward, int devices, int chunks) {
  const int group = devices * chunks, within = k % group;
  const int chunk = within / devices;
  return {k / group * devices + within % devices, backward ? chunks - 1 - chunk : chunk, backward};
}

std::vector<Turn> turns_of(int warmup, int all, int devices, int chunks) {
  std::vector<Turn> turns;
  for (int k = 0; k < warmup; ++k) turns.push_back(turn_at(k, false, devices, chunks));
  for (int k = warmup; k < all; ++k) {
    turns.push_back(turn_at(k, false, devices, chunks));
    turns.push_back(turn_at(k - warmup, true, devices, chunks));
  }
  for (int k = all - warmup; k < all; ++k) turns.push_back(turn_at(k, true, devices, chunks));
  return turns;
}

}  // namespace

std::string_view to_string(Schedule schedule) { return schedule == Schedule::k1f1b ? "1f1b" : "interleaved"; }

std::vector<std::vector<Turn>> schedule_turns(Schedule schedule, int devices, int chunks, int microbatches) {
  const auto refuse = [](const std::string& what) { throw UsageError(what); };
  if (devices < 1 || microbatches < 1 || chunks < 1) {
    refuse("a schedule needs at least one stage, one chunk and one micro-batch");
  }
  const bool interleaved = schedule == Schedule::kInterleaved;
  if (interleaved && chunks < 2) refuse("schedule interleaved needs at least 2 chunks, found 1");
  if (!interleaved && chunks > 1) {
    refuse("schedule 1f1b has 1 chunk a stage, found " + std::to_string(chunks));
  }
  if (interleaved && microbatches % devices != 0) {
    refuse("schedule interleaved needs micro-batches in multiples of the " + std::to_string(devices) +
           " stages, found " + std::to_string(microbatches));
  }
  const int all = microbatches * chunks;
  std::vector<std::vector<Turn>> turns;
  for (int d = 0; d < devices; ++d) {
    const int after = devices - 1 - d;
    const int warmup = interleaved ? 2 * after + (chunks - 1) * devices : after;
    // One chunk: micro-batches in sequence, whatever the number of devices.
    turns.push_back(turns_of(std::min(all, warmup), all, interleaved ? devices : 1, chunks));
  }
  return turns;
}

std::vector<int> most_in_flight(const std::vector<std::vector<Turn>>& turns, int chunks) {
  const int devices = narrow<int>(turns.size());
  std::vector<int> most(at(devices * chunks), 0);
  for (int d = 0; d < devices; ++d) {
    std::vector<int> now(at(chunks), 0);
    for (const Turn& turn : turns[at(d)]) {
      int& count = now[at(turn.chunk)];
      count += turn.backward ? -1 : 1;
      int& highest = most[at(turn.chunk * devices + d)];
      highest = std::max(highest, count);
    }
  }
  return most;
}

double ScheduleTimes::bubble() const {
  Wide sum = 0;
  for (Duration one : busy) sum += one.count();
  const double all = real(duration) * real(std::ssize(busy));
  return all > 0 ? 1 - real(sum) / all : 0;
}

ScheduleTimes time_schedule(const std::vector<std::vector<Turn>>& turns, std::span<const Duration> forward,
                            std::span<const Duration> backward) {
  const int devices = narrow<int>(turns.size());
  const int stages = narrow<int>(forward.size());
  int microbatches = 0;
  for (const auto& row : turns) {
    for (const Turn& turn : row) microbatches = std::max(microbatches, turn.microbatch + 1);
  }
  using Ends = std::vector<std::optional<Duration>>;
  Ends forward_end(at(stages * microbatches)), backward_end(forward_end);
  const auto place = [&](int stage, int microbatch) { return at(stage * microbatches + microbatch); };
  ScheduleTimes times{
      {}, std::vector<Duration>(turns.size()), std::vector<std::vector<TimeSpan>>(turns.size())};
  std::vector<Duration> free(turns.size());
  /// The time at which the inputs of a turn are ready; nothing while unknown.
  const auto ready = [&](int stage, const Turn& turn) -> std::optional<Duration> {
    if (!turn.backward) return stage == 0 ? Duration() : forward_end[place(stage - 1, turn.microbatch)];
    return stage + 1 == stages ? forward_end[place(stage, turn.microbatch)]
                               : backward_end[place(stage + 1, turn.microbatch)];
  };
  bool moved = true;
  while (moved) {
    moved = false;
    for (int d = 0; d < devices; ++d) {
      auto& done = times.turns[at(d)];
      while (done.size() < turns[at(d)].size()) {
        const Turn& turn = turns[at(d)][done.size()];
        const int stage = turn.chunk * devices + d;
        const auto from = ready(stage, turn);
        if (!from) break;
        const Duration begin = std::max(*from, free[at(d)]);
        const Duration lasts = (turn.backward ? backward : forward)[at(stage)];
        free[at(d)] = begin + lasts;
        times.busy[at(d)] += lasts;
        done.push_back({begin, begin + lasts});
        (turn.backward ? backward_end : forward_end)[place(stage, turn.microbatch)] = begin + lasts;
        moved = true;
      }
    }
  }
  for (int d = 0; d < devices; ++d) {
    const std::size_t known = times.turns[at(d)].size();
    if (known < turns[at(d)].size()) {
      throw UsageError("turn " + std::to_string(known) + " of stage " + std::to_string(d) +
                       " waits for itself");
    }
    times.duration = std::max(times.duration, free[at(d)]);
  }
  return times;
}

}  // namespace remat
