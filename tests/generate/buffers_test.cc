#include <gtest/gtest.h>

#include <algorithm>

#include "helpers/errors.h"
#include "remat/generate.h"
#include "remat/layout_io.h"

namespace remat {
namespace {

using testing::usage_error;

RandomBuffersOptions of(std::int64_t count, std::uint64_t seed = 1) {
  RandomBuffersOptions o;
  o.count = count;
  o.seed = seed;
  return o;
}

TEST(RandomBuffers, LivesAndSizesAreWithinTheirOptions) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const RandomBuffersOptions o = of(2000, seed);
    const auto buffers = random_buffers(o);
    ASSERT_EQ(buffers.size(), 2000u);
    std::int64_t before = 0;
    for (const Buffer& buffer : buffers.raw()) {
      EXPECT_LE(before, buffer.first);
      EXPECT_LT(buffer.first, buffer.end);
      EXPECT_LE(buffer.end, o.count);
      EXPECT_EQ(buffer.size.count() % 64, 0);
      EXPECT_GE(buffer.size.count(), 64);
      EXPECT_LE(buffer.size.count(), o.max_bytes);
      before = buffer.first;
    }
  }
}

TEST(RandomBuffers, ShortLivesStayWithinTheirPhaseAndLongOnesLastForOne) {
  RandomBuffersOptions o = of(8000);
  const std::int64_t phase = o.count / o.phases;
  const auto crosses = [&](const Buffer& b) { return b.first / phase != (b.end - 1) / phase; };
  o.long_share = 0;
  const auto shorts = random_buffers(o);
  for (const Buffer& b : shorts.raw()) {
    EXPECT_LT(b.end - b.first, 2 * o.life);
    EXPECT_FALSE(crosses(b)) << b.first << " to " << b.end;
  }
  o.long_share = 1;
  const auto longs = random_buffers(o);
  for (const Buffer& b : longs.raw()) EXPECT_GE(b.end - b.first, phase);
  o.long_share = 0.01;
  const auto mixed = random_buffers(o);
  const auto found = std::count_if(mixed.raw().begin(), mixed.raw().end(),
                                   [&](const Buffer& b) { return b.end - b.first >= phase; });
  EXPECT_GT(found, 40);
  EXPECT_LT(found, 160);
}

TEST(RandomBuffers, SameSeedSameTableAndAnotherSeedAnother) {
  EXPECT_EQ(random_buffers(of(300)), random_buffers(of(300)));
  EXPECT_NE(random_buffers(of(300)), random_buffers(of(300, 2)));
}

TEST(RandomBuffers, TheSmallestTablesAreTables) {
  RandomBuffersOptions o = of(1);
  o.phases = 1;
  o.max_bytes = 64;
  const auto buffers = random_buffers(o);
  ASSERT_EQ(buffers.size(), 1u);
  EXPECT_EQ(buffers[BufferId(0)], (Buffer{0, 1, Bytes(64)}));
  o = of(3);
  o.phases = 3;
  o.long_share = 1;
  EXPECT_EQ(random_buffers(o).size(), 3u);
}

TEST(RandomBuffers, TheTableThatIsWrittenIsTheOneThatIsRead) {
  const auto buffers = random_buffers(of(200));
  const std::string text = format_buffers(buffers);
  EXPECT_TRUE(text.starts_with("id,lower,upper,size\n0,"));
  const BufferTable table = parse_buffers(text, "table");
  EXPECT_EQ(table.buffers, buffers);
  EXPECT_FALSE(table.offsets);
}

TEST(RandomBuffers, OptionsOutOfRangeAreNamed) {
  RandomBuffersOptions o = of(0);
  EXPECT_EQ(usage_error([&] { random_buffers(o); }), "count = 0 is outside [1, 1073741824]");
  o = of(5);
  EXPECT_EQ(usage_error([&] { random_buffers(o); }), "phases = 8 is outside [1, 5]");
  o = of(100);
  o.long_share = 1.5;
  EXPECT_EQ(usage_error([&] { random_buffers(o); }), "long share = 1.5 is outside [0, 1]");
  o = of(100);
  o.max_bytes = 63;
  EXPECT_EQ(usage_error([&] { random_buffers(o); }), "max bytes = 63 is outside [64, 1099511627776]");
}

}  // namespace
}  // namespace remat
