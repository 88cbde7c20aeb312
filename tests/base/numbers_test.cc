#include "base/numbers.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "base/sorted.h"

namespace remat {
namespace {

TEST(Numbers, NarrowKeepsTheNumber) {
  EXPECT_EQ(narrow<std::int32_t>(std::int64_t{-7}), -7);
  EXPECT_EQ(narrow<std::int64_t>(std::size_t{7}), 7);
  EXPECT_EQ(narrow<std::int16_t>(std::int64_t{32'767}), 32'767);
#if REMAT_CHECKS >= 1
  EXPECT_THROW(narrow<std::int16_t>(std::int64_t{32'768}), std::logic_error);
  EXPECT_THROW(narrow<std::size_t>(-1), std::logic_error);
#endif
}

TEST(Numbers, IdsAndSignedNumbersOpenContainers) {
  const std::vector<int> rows{4, 5, 6};
  EXPECT_EQ(rows[at(OpId(1))], 5);
  EXPECT_EQ(rows[at(std::int32_t{2})], 6);
  std::vector<int> seen;
  for (int i : indices(rows)) seen.push_back(i);
  EXPECT_EQ(seen, (std::vector{0, 1, 2}));
}

TEST(Numbers, AmountsBecomeReal) {
  EXPECT_EQ(real(Bytes(3)) / real(2), 1.5);
  EXPECT_EQ(real(std::size_t{1} << 40), 0x1p40);
}

TEST(Sorted, LeavesOneOfEach) {
  std::vector<int> list{3, 1, 3, 2, 1};
  sort_unique(list);
  EXPECT_EQ(list, (std::vector{1, 2, 3}));
}

}  // namespace
}  // namespace remat
