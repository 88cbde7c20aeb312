#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "helpers/errors.h"
#include "remat/error.h"
#include "remat/pipeline.h"
#include "remat/random.h"

namespace remat {
namespace {

using Turns = std::vector<std::vector<Turn>>;

std::vector<Duration> random_durations(Random& random, int count) {
  std::vector<Duration> all;
  for (int i = 0; i < count; ++i) all.emplace_back(1 + static_cast<std::int64_t>(random.below(9)));
  return all;
}

/// By definition: every turn starts when the previous one on its device and the one that makes its input have
/// ended. Longest paths, by iteration.
std::int64_t duration_by_definition(const Turns& turns, const std::vector<Duration>& forward,
                                    const std::vector<Duration>& backward) {
  const int devices = static_cast<int>(turns.size()), stages = static_cast<int>(forward.size());
  using Node = std::tuple<int, int, bool>;  // virtual stage, micro-batch, backward
  std::map<Node, std::int64_t> end;
  std::size_t all = 0;
  for (const auto& row : turns) all += row.size();
  for (std::size_t round = 0; round <= all; ++round) {
    for (int d = 0; d < devices; ++d) {
      std::int64_t before = 0;
      for (const Turn& turn : turns[static_cast<std::size_t>(d)]) {
        const int stage = turn.chunk * devices + d;
        std::int64_t input = 0;
        if (!turn.backward && stage > 0) input = end[{stage - 1, turn.microbatch, false}];
        if (turn.backward && stage + 1 < stages) input = end[{stage + 1, turn.microbatch, true}];
        if (turn.backward && stage + 1 == stages) input = end[{stage, turn.microbatch, false}];
        const Duration lasts = (turn.backward ? backward : forward)[static_cast<std::size_t>(stage)];
        std::int64_t& own = end[{stage, turn.microbatch, turn.backward}];
        own = std::max(own, std::max(before, input) + lasts.count());
        before = own;
      }
    }
  }
  std::int64_t last = 0;
  for (const auto& [node, time] : end) last = std::max(last, time);
  return last;
}

TEST(Schedule, HoldsAsManyMicrobatchesAsStagesAreLeft) {
  for (int devices = 1; devices <= 5; ++devices) {
    for (int microbatches = 1; microbatches <= 7; ++microbatches) {
      const auto most = most_in_flight(schedule_turns(Schedule::k1f1b, devices, 1, microbatches), 1);
      for (int d = 0; d < devices; ++d) {
        EXPECT_EQ(most[static_cast<std::size_t>(d)], std::min(devices - d, microbatches));
      }
    }
  }
}

TEST(Schedule, TakesEveryTurnOnce) {
  for (const auto& [schedule, devices, chunks, microbatches] :
       {std::tuple(Schedule::k1f1b, 4, 1, 3), std::tuple(Schedule::k1f1b, 3, 1, 8),
        std::tuple(Schedule::kInterleaved, 4, 2, 8), std::tuple(Schedule::kInterleaved, 3, 3, 3)}) {
    for (const auto& row : schedule_turns(schedule, devices, chunks, microbatches)) {
      std::set<std::tuple<int, int, bool>> seen;
      for (const Turn& turn : row) {
        EXPECT_TRUE(seen.emplace(turn.microbatch, turn.chunk, turn.backward).second);
        EXPECT_TRUE(!turn.backward || seen.contains({turn.microbatch, turn.chunk, false}));
      }
      EXPECT_EQ(seen.size(), static_cast<std::size_t>(2 * chunks * microbatches));
    }
  }
}

TEST(Schedule, InterleavedGoesThroughTheChunksInGroupsOfAsManyMicrobatchesAsDevices) {
  const auto turns = schedule_turns(Schedule::kInterleaved, 2, 2, 4);
  const std::vector<Turn> last{{0, 0, false}, {1, 0, false}, {0, 1, false}, {0, 1, true},
                               {1, 1, false}, {1, 1, true},  {2, 0, false}, {0, 0, true},
                               {3, 0, false}, {1, 0, true},  {2, 1, false}, {2, 1, true},
                               {3, 1, false}, {3, 1, true},  {2, 0, true},  {3, 0, true}};
  EXPECT_EQ(turns.at(1), last);
  EXPECT_EQ(most_in_flight(turns, 2), (std::vector<int>{4, 3, 2, 1}));
}

TEST(Schedule, IsTimedAsItIsDefined) {
  Random random(5);
  for (int round = 0; round < 60; ++round) {
    const bool interleaved = round % 2 == 1;
    const int devices = 1 + static_cast<int>(random.below(4)), chunks = interleaved ? 2 : 1;
    const int microbatches = devices * (1 + static_cast<int>(random.below(3)));
    const auto schedule = interleaved ? Schedule::kInterleaved : Schedule::k1f1b;
    const auto turns = schedule_turns(schedule, devices, chunks, microbatches);
    const auto forward = random_durations(random, devices * chunks);
    const auto backward = random_durations(random, devices * chunks);
    const ScheduleTimes times = time_schedule(turns, forward, backward);
    EXPECT_EQ(times.duration.count(), duration_by_definition(turns, forward, backward)) << round;
    EXPECT_GE(times.bubble(), 0);
  }
}

TEST(Schedule, TakesTheKnownTimeWhereAllStagesAreAlike) {
  const int devices = 4, microbatches = 8;
  const std::vector<Duration> forward(4, Duration(1)), backward(4, Duration(2));
  const auto turns = schedule_turns(Schedule::k1f1b, devices, 1, microbatches);
  EXPECT_EQ(time_schedule(turns, forward, backward).duration, Duration((microbatches + devices - 1) * 3));
  // Two chunks of half the time: half the bubble.
  const std::vector<Duration> half(8, Duration(1)), twice(8, Duration(2));
  const auto interleaved = schedule_turns(Schedule::kInterleaved, devices, 2, microbatches);
  EXPECT_EQ(time_schedule(interleaved, half, twice).duration,
            Duration(2 * microbatches * 3 + (devices - 1) * 3));
}

/// All sequences of one device with each chunk's micro-batches in order and at most `caps` of them in flight.
std::vector<std::vector<Turn>> all_sequences(int chunks, int microbatches, const std::vector<int>& caps) {
  std::vector<std::vector<Turn>> all;
  std::vector<Turn> now;
  std::vector<int> begun(static_cast<std::size_t>(chunks)), ended(static_cast<std::size_t>(chunks));
  const std::function<void()> extend = [&] {
    if (now.size() == static_cast<std::size_t>(2 * chunks * microbatches)) all.push_back(now);
    for (int c = 0; c < chunks; ++c) {
      const auto i = static_cast<std::size_t>(c);
      if (begun[i] < microbatches && begun[i] - ended[i] < caps[i]) {
        now.push_back({begun[i]++, c, false});
        extend();
        now.pop_back();
        --begun[i];
      }
      if (ended[i] < begun[i]) {
        now.push_back({ended[i]++, c, true});
        extend();
        now.pop_back();
        --ended[i];
      }
    }
  };
  extend();
  return all;
}

/// The least duration of all schedules with at most `most` micro-batches of each virtual stage in flight.
std::int64_t least_duration(int devices, int chunks, int microbatches, const std::vector<int>& most,
                            const std::vector<Duration>& forward, const std::vector<Duration>& backward) {
  std::vector<std::vector<std::vector<Turn>>> choices;
  for (int d = 0; d < devices; ++d) {
    std::vector<int> caps;
    for (int c = 0; c < chunks; ++c) caps.push_back(most[static_cast<std::size_t>(c * devices + d)]);
    choices.push_back(all_sequences(chunks, microbatches, caps));
  }
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  Turns turns(static_cast<std::size_t>(devices));
  const std::function<void(std::size_t)> choose = [&](std::size_t d) {
    if (d == turns.size()) {
      try {
        least = std::min(least, time_schedule(turns, forward, backward).duration.count());
      } catch (const UsageError&) {  // it waits for itself
      }
      return;
    }
    for (const auto& row : choices[d]) {
      turns[d] = row;
      choose(d + 1);
    }
  };
  choose(0);
  return least;
}

TEST(Schedule, OneForwardOneBackwardIsTheFastestOfAllWithinItsMemoryWhereStagesAreAlike) {
  Random random(3);
  for (const auto& [devices, microbatches] :
       {std::pair(2, 4), std::pair(3, 3), std::pair(3, 4), std::pair(2, 2)}) {
    const auto turns = schedule_turns(Schedule::k1f1b, devices, 1, microbatches);
    const auto most = most_in_flight(turns, 1);
    const auto count = static_cast<std::size_t>(devices);
    const std::vector<Duration> forward(count, Duration(2)), backward(count, Duration(3));
    EXPECT_EQ(time_schedule(turns, forward, backward).duration.count(),
              least_duration(devices, 1, microbatches, most, forward, backward));
    for (int round = 0; round < 5; ++round) {
      const auto some = random_durations(random, devices), others = random_durations(random, devices);
      EXPECT_GE(time_schedule(turns, some, others).duration.count(),
                least_duration(devices, 1, microbatches, most, some, others));
    }
  }
}

TEST(Schedule, InterleavedIsTheFastestOfAllWithinItsMemoryWhereStagesAreAlike) {
  const auto turns = schedule_turns(Schedule::kInterleaved, 2, 2, 2);
  const auto most = most_in_flight(turns, 2);
  const std::vector<Duration> forward(4, Duration(2)), backward(4, Duration(3));
  EXPECT_EQ(time_schedule(turns, forward, backward).duration.count(),
            least_duration(2, 2, 2, most, forward, backward));
}

TEST(Schedule, RefusesWhatItCannotDo) {
  const auto message = [](Schedule schedule, int devices, int chunks, int microbatches) {
    return testing::usage_error([&] { schedule_turns(schedule, devices, chunks, microbatches); });
  };
  EXPECT_EQ(message(Schedule::kInterleaved, 4, 2, 6),
            "schedule interleaved needs micro-batches in multiples of the 4 stages, found 6");
  EXPECT_EQ(message(Schedule::kInterleaved, 4, 1, 8),
            "schedule interleaved needs at least 2 chunks, found 1");
  EXPECT_EQ(message(Schedule::k1f1b, 4, 2, 8), "schedule 1f1b has 1 chunk a stage, found 2");
  EXPECT_EQ(message(Schedule::k1f1b, 0, 1, 8),
            "a schedule needs at least one stage, one chunk and one micro-batch");
  const std::vector<Duration> times(1, Duration(1));
  EXPECT_EQ(testing::usage_error([&] { time_schedule({{{0, 0, true}, {0, 0, false}}}, times, times); }),
            "turn 0 of stage 0 waits for itself");
}

}  // namespace
}  // namespace remat
