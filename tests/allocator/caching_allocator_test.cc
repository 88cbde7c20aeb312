// Each rule of the allocator with figures, then random programs.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "helpers/errors.h"
#include "remat/allocator.h"
#include "remat/random.h"

namespace remat {
namespace {

constexpr std::int64_t kKiB = 1024, kMiB = 1024 * kKiB;

class TestedAllocator {
 public:
  explicit TestedAllocator(std::string_view allocator, std::optional<std::int64_t> capacity = std::nullopt)
      : allocator_(parse_allocator(allocator), capacity ? std::optional(Bytes(*capacity)) : std::nullopt) {}

  Address take(std::int64_t size, std::int64_t stream = 0) {
    const auto address = allocator_.allocate(Bytes(size), stream);
    EXPECT_TRUE(address) << size;
    return address.value_or(0);
  }
  bool refuses(std::int64_t size) { return !allocator_.allocate(Bytes(size)); }
  void free(Address address) { allocator_.free(address); }
  std::int64_t size_at(Address address) const { return allocator_.block_at(address).size.count(); }
  std::int64_t requested() const { return allocator_.stats().requested.count(); }
  std::int64_t allocated() const { return allocator_.stats().allocated.count(); }
  std::int64_t reserved() const { return allocator_.stats().reserved.count(); }
  const AllocatorStats& stats() const { return allocator_.stats(); }
  CachingAllocator& operator*() { return allocator_; }

 private:
  CachingAllocator allocator_;
};

/// The allocated and reserved bytes after one request of a new allocator.
void expect_first(std::string_view allocator, std::int64_t size, std::int64_t allocated,
                  std::int64_t reserved) {
  SCOPED_TRACE(std::string(allocator) + " " + std::to_string(size));
  TestedAllocator device(allocator);
  device.take(size);
  EXPECT_EQ(device.requested(), size);
  EXPECT_EQ(device.allocated(), allocated);
  EXPECT_EQ(device.reserved(), reserved);
}

TEST(CachingAllocator, GivesAFreshProcessSegmentsBySize) {
  expect_first("cuda", 1, 512, 2 * kMiB);
  expect_first("cuda", 512, 512, 2 * kMiB);
  expect_first("cuda", 513, 1024, 2 * kMiB);
  expect_first("cuda", kMiB, kMiB, 2 * kMiB);
  expect_first("cuda", kMiB + 1, kMiB + 512, 20 * kMiB);
  expect_first("cuda", 10 * kMiB - 1, 10 * kMiB, 10 * kMiB);  // rounded up first
  expect_first("cuda", 10 * kMiB - 512, 10 * kMiB - 512, 20 * kMiB);
  expect_first("cuda", 10 * kMiB, 10 * kMiB, 10 * kMiB);
  expect_first("cuda", 12'058'624, 12'582'912, 12'582'912);  // half a MiB is too little to be split off
  expect_first("cuda", 13 * kMiB, 14 * kMiB, 14 * kMiB);     // so is exactly one
  expect_first("cuda", 13 * kMiB - 512, 13 * kMiB - 512, 14 * kMiB);
}

TEST(CachingAllocator, MapsPagesOfExpandableSegments) {
  expect_first("cuda-expandable", 1, 512, 2 * kMiB);
  expect_first("cuda-expandable", kMiB + 1, kMiB + 512, 20 * kMiB);
  expect_first("cuda-expandable", 12'058'624, 12'058'624, 20 * kMiB);
  expect_first("cuda-expandable", 20 * kMiB, 20 * kMiB, 20 * kMiB);
  expect_first("cuda-expandable", 20 * kMiB + 1, 20 * kMiB + 512, 40 * kMiB);
  expect_first("cuda-expandable:large_segment_size_mb:32", 20 * kMiB + 1, 20 * kMiB + 512, 32 * kMiB);
}

TEST(CachingAllocator, TakesExactlyWhatIsAskedWhereItIsExact) {
  TestedAllocator device("exact", 100);
  const Address a = device.take(33), b = device.take(67);
  EXPECT_EQ(device.reserved(), 100);
  EXPECT_TRUE(device.refuses(1));
  device.free(a);
  EXPECT_EQ(device.reserved(), 67);
  device.take(33);
  device.free(b);
  EXPECT_EQ(device.stats().reserved_peak, Bytes(100));
  EXPECT_EQ(device.stats().allocated, Bytes(33));
}

TEST(CachingAllocator, PacksSmallRequestsIntoOneSegment) {
  TestedAllocator device("cuda");
  for (int k = 0; k < 4096; ++k) device.take(512);
  EXPECT_EQ(device.reserved(), 2 * kMiB);
  device.take(1);
  EXPECT_EQ(device.reserved(), 4 * kMiB);
  EXPECT_EQ(device.stats().segments, 2);
}

TEST(CachingAllocator, PacksRequestsBelowTenMebibytesIntoSegmentsOfTwenty) {
  TestedAllocator device("cuda");
  const Address first = device.take(6 * kMiB);
  EXPECT_EQ(device.take(6 * kMiB), first + 6 * kMiB);
  EXPECT_EQ(device.take(7 * kMiB), first + 12 * kMiB);
  EXPECT_EQ(device.allocated(), 20 * kMiB);  // the last one has the MiB that is left over
  EXPECT_EQ(device.reserved(), 20 * kMiB);
}

TEST(CachingAllocator, TakesTheSmallestBlockThatIsEnoughAtTheLowestAddress) {
  TestedAllocator device("cuda");
  const Address large = device.take(40 * kMiB), middle = device.take(30 * kMiB),
                same = device.take(30 * kMiB);
  for (const Address address : {same, large, middle}) device.free(address);
  EXPECT_EQ(device.take(28 * kMiB), middle);
  EXPECT_EQ(device.take(30 * kMiB), same);
  EXPECT_EQ(device.take(30 * kMiB), large);
  EXPECT_EQ(device.reserved(), 100 * kMiB);
}

TEST(CachingAllocator, KeepsSmallAndLargeRequestsApart) {
  TestedAllocator device("cuda");
  device.free(device.take(20 * kMiB));
  device.take(kMiB);
  EXPECT_EQ(device.reserved(), 22 * kMiB);
  TestedAllocator other("cuda");
  other.free(other.take(kMiB));
  other.take(kMiB + 1);
  EXPECT_EQ(other.reserved(), 22 * kMiB);
}

TEST(CachingAllocator, KeepsStreamsApart) {
  for (const char* name : {"cuda", "cuda-expandable"}) {
    TestedAllocator device(name);
    device.free(device.take(20 * kMiB, 1));
    device.take(20 * kMiB, 2);
    EXPECT_EQ(device.reserved(), 40 * kMiB);
    device.take(20 * kMiB, 1);
    EXPECT_EQ(device.reserved(), 40 * kMiB);
  }
}

TEST(CachingAllocator, MergesWithBothNeighboursOfASegment) {
  TestedAllocator device("cuda");
  const Address a = device.take(4 * kMiB), b = device.take(4 * kMiB), c = device.take(4 * kMiB);
  device.free(a);
  device.free(c);  // with the 8 MiB behind it
  EXPECT_EQ((*device).blocks().size(), 3u);
  EXPECT_EQ(device.take(9 * kMiB), c);
  device.free(c);
  device.free(b);
  ASSERT_EQ((*device).blocks().size(), 1u);
  EXPECT_EQ((*device).blocks().front().size, Bytes(20 * kMiB));
}

TEST(CachingAllocator, DoesNotMergeAcrossSegments) {
  TestedAllocator device("cuda");
  const Address a = device.take(20 * kMiB), b = device.take(20 * kMiB);
  device.free(a);
  device.free(b);
  device.take(40 * kMiB);
  EXPECT_EQ(device.reserved(), 80 * kMiB);
}

TEST(CachingAllocator, GrowsAnExpandableSegmentFromTheBlockAtItsEnd) {
  TestedAllocator device("cuda-expandable");
  const Address first = device.take(15 * kMiB);
  EXPECT_EQ(device.take(15 * kMiB), first + 15 * kMiB);
  EXPECT_EQ(device.reserved(), 40 * kMiB);
  EXPECT_EQ(device.take(50 * kMiB), first + 30 * kMiB);
  EXPECT_EQ(device.reserved(), 80 * kMiB);
  device.free(first);
  device.free(first + 15 * kMiB);
  EXPECT_EQ(device.take(31 * kMiB), first + 80 * kMiB);
  EXPECT_EQ(device.take(30 * kMiB), first);
  EXPECT_EQ(device.stats().segments, 1);
}

/// Best fit counts a block that can grow as what it can become.
TEST(CachingAllocator, PrefersALargerBlockThatCannotGrow) {
  TestedAllocator device("cuda-expandable");
  const Address a = device.take(30 * kMiB);
  device.take(5 * kMiB);  // 5 MiB of 40 are left over at the end
  device.free(a);
  EXPECT_EQ(device.take(4 * kMiB), a);
}

TEST(CachingAllocator, DoesNotSplitOversizeBlocks) {
  TestedAllocator device("cuda:max_split_size_mb:40");
  const Address a = device.take(50 * kMiB);
  device.free(a);
  device.take(30 * kMiB);  // must not take the oversize block
  EXPECT_EQ(device.reserved(), 80 * kMiB);
  EXPECT_EQ(device.take(40 * kMiB), a);  // whole
  EXPECT_EQ(device.allocated(), 80 * kMiB);
  device.free(a);
  device.take(41 * kMiB);
  EXPECT_EQ(device.allocated(), 80 * kMiB);
}

TEST(CachingAllocator, LeavesAnOversizeBlockThatHasTooMuch) {
  for (const std::int64_t rounding : {20, 24}) {
    const std::string option = ",max_non_split_rounding_mb:" + std::to_string(rounding);
    TestedAllocator device("cuda:max_split_size_mb:40" + (rounding == 20 ? "" : option));
    const Address a = device.take((50 + rounding) * kMiB);
    device.free(a);
    EXPECT_NE(device.take(50 * kMiB), a);
    EXPECT_EQ(device.take(50 * kMiB + 512), a);
  }
}

TEST(CachingAllocator, RoundsUpToStepsBetweenPowersOfTwo) {
  const auto rounded = [](const char* allocator, std::int64_t size) {
    return rounded_request(parse_allocator(allocator), Bytes(size)).count();
  };
  const char* four = "cuda:roundup_power2_divisions:4";
  EXPECT_EQ(rounded(four, 0), 0);
  EXPECT_EQ(rounded(four, 1200), 1536);  // up to 4 blocks: blocks
  EXPECT_EQ(rounded(four, 2048), 2048);
  EXPECT_EQ(rounded(four, 2049), 2560);
  EXPECT_EQ(rounded(four, 5000), 5120);
  EXPECT_EQ(rounded(four, 65 * kMiB), 80 * kMiB);
  EXPECT_EQ(rounded(four, 64 * kMiB), 64 * kMiB);
  EXPECT_EQ(rounded(four, 113 * kMiB), 128 * kMiB);
  const char* listed = "cuda:roundup_power2_divisions:[64:8,128:2,256:4,512:2,1024:4,>:1]";
  EXPECT_EQ(rounded(listed, 33 * kMiB), 36 * kMiB);
  EXPECT_EQ(rounded(listed, 129 * kMiB), 192 * kMiB);
  EXPECT_EQ(rounded(listed, 257 * kMiB), 320 * kMiB);
  EXPECT_EQ(rounded(listed, 1025 * kMiB), 1280 * kMiB);
  EXPECT_EQ(rounded(listed, 2049 * kMiB + 1), 2049 * kMiB + 512);
  EXPECT_EQ(rounded("exact", 3), 3);
}

/// From the first entry down, from ">" up, and what is left out is 0. (Compared with PyTorch 2.13's parser.)
TEST(CachingAllocator, ReadsListsOfDivisionsAsPyTorchDoes) {
  const auto divisions = [](const std::string& list) {
    return parse_allocator("cuda:roundup_power2_divisions:" + list).power2_divisions;
  };
  using Row = std::array<std::int64_t, 16>;
  EXPECT_EQ(divisions("8"), (Row{8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8}));
  EXPECT_EQ(divisions("[64:8,128:2,256:4,512:2,1024:4,>:1]"),
            (Row{8, 8, 8, 8, 8, 8, 8, 2, 4, 2, 4, 1, 1, 1, 1, 1}));
  EXPECT_EQ(divisions("[256:1,512:2,>:4]"), (Row{1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 4, 4, 4, 4, 4}));
  EXPECT_EQ(divisions("[>:4]"), (Row{0, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}));
  EXPECT_EQ(divisions("[4:2,>:8]"), (Row{2, 2, 2, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8}));
  EXPECT_EQ(divisions("[131072:4]"), (Row{4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}));
  EXPECT_EQ(divisions("[]"), Row{});
  EXPECT_EQ(divisions("[512:2,64:4]"), (Row{2, 2, 2, 2, 2, 2, 4, 2, 2, 2, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(divisions("[64:4,>:2,128:8]"), (Row{4, 4, 4, 4, 4, 4, 4, 8, 2, 2, 2, 2, 2, 2, 2, 2}));
  EXPECT_EQ(divisions("[65536:4,>:2]"), (Row{4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}));
}

TEST(CachingAllocator, EmptiesOnlyWholeSegmentsOfItsCache) {
  TestedAllocator device("cuda");
  const Address a = device.take(6 * kMiB), b = device.take(6 * kMiB);
  device.free(device.take(30 * kMiB));
  device.free(a);
  (*device).empty_cache();
  EXPECT_EQ(device.reserved(), 20 * kMiB);
  device.free(b);
  (*device).empty_cache();
  EXPECT_EQ(device.reserved(), 0);
  EXPECT_EQ(device.stats().segments, 0);
}

TEST(CachingAllocator, UnmapsWholePagesBetweenBlocksInUse) {
  TestedAllocator device("cuda-expandable");
  const Address a = device.take(10 * kMiB), b = device.take(60 * kMiB), c = device.take(10 * kMiB);
  device.free(b);  // [10, 70) of 80 MiB: pages [20, 60)
  (*device).empty_cache();
  EXPECT_EQ(device.reserved(), 40 * kMiB);
  EXPECT_EQ(device.take(10 * kMiB), b + 50 * kMiB);  // what is left of the other page could grow
  EXPECT_EQ(device.reserved(), 40 * kMiB);
  EXPECT_EQ(device.take(45 * kMiB), b);  // 10 MiB that were left, and the gap
  EXPECT_EQ(device.reserved(), 80 * kMiB);
  EXPECT_EQ(device.size_at(a) + device.size_at(c), 20 * kMiB);
}

TEST(CachingAllocator, GivesCachedMemoryBackBeforeItFails) {
  TestedAllocator device("cuda", 100 * kMiB);
  device.free(device.take(60 * kMiB));
  device.take(64 * kMiB);
  EXPECT_EQ(device.reserved(), 64 * kMiB);
  EXPECT_EQ(device.stats().retries, 1);
  EXPECT_TRUE(device.refuses(37 * kMiB));
  EXPECT_EQ(device.stats().failures, 1);
  EXPECT_EQ(device.stats().retries, 2);
  device.take(36 * kMiB);
  EXPECT_EQ(device.reserved(), 100 * kMiB);
}

TEST(CachingAllocator, CannotGiveBackASegmentThatIsInUse) {
  TestedAllocator native("cuda", 100 * kMiB), expandable("cuda-expandable", 100 * kMiB);
  for (TestedAllocator* device : {&native, &expandable}) {
    std::vector<Address> all;
    for (int k = 0; k < 10; ++k) all.push_back(device->take(9 * kMiB));
    for (int k : {0, 1, 2, 3, 4}) device->free(all[static_cast<std::size_t>(k)]);
    EXPECT_EQ(device->refuses(41 * kMiB), device == &native);
  }
}

TEST(CachingAllocator, ReleasesOneOversizeBlockThatIsEnoughFirst) {
  TestedAllocator device("cuda:max_split_size_mb:40", 200 * kMiB);
  const Address a = device.take(50 * kMiB), b = device.take(90 * kMiB), small = device.take(30 * kMiB);
  for (const Address address : {a, b, small}) device.free(address);
  device.take(66 * kMiB);  // neither 50 nor 90 (24 too much): 90 goes back
  EXPECT_EQ(device.reserved(), (50 + 30 + 66) * kMiB);
  EXPECT_EQ(device.stats().retries, 0);
}

TEST(CachingAllocator, ReleasesTheLargestOversizeBlocksUntilTheyAreEnough) {
  TestedAllocator device("cuda:max_split_size_mb:40", 200 * kMiB);
  const Address a = device.take(50 * kMiB), b = device.take(60 * kMiB), c = device.take(42 * kMiB);
  const Address small = device.take(30 * kMiB);
  for (const Address address : {a, b, c, small}) device.free(address);
  device.take(100 * kMiB);  // 60 and 50 go back
  EXPECT_EQ(device.reserved(), (42 + 30 + 100) * kMiB);
  EXPECT_EQ(device.stats().retries, 0);
  device.take(100 * kMiB);  // 42 MiB are not enough: all that is cached
  EXPECT_EQ(device.stats().retries, 1);
}

TEST(CachingAllocator, BeginsANewSegmentWhereItIsToldIfThatIsFree) {
  CachingAllocator allocator;
  const Address high = 0x7f0000000000, low = high - 20 * kMiB;
  EXPECT_EQ(allocator.allocate(Bytes(20 * kMiB), 0, high), high);
  EXPECT_EQ(allocator.allocate(Bytes(20 * kMiB), 0, low), low);
  for (const Address taken : {high, high + 512, high - 1, low - 20 * kMiB + 1, Address{0}, Address{-5}}) {
    const Address other = allocator.allocate(Bytes(20 * kMiB), 0, taken).value();
    EXPECT_NE(other, taken);
    EXPECT_GT(other, high);
  }
  allocator.free(high);
  allocator.free(low);
  EXPECT_EQ(allocator.allocate(Bytes(12 * kMiB)), low);
  EXPECT_EQ(allocator.allocate(Bytes(12 * kMiB), 0, Address{4096}), high);  // from the cache
}

TEST(CachingAllocator, TakesNothingForNoBytes) {
  TestedAllocator device("cuda");
  EXPECT_EQ(device.take(0), 0);
  device.free(0);
  EXPECT_EQ(device.stats(), AllocatorStats());
}

TEST(CachingAllocator, KeepsPeaksUntilTheyAreReset) {
  TestedAllocator device("cuda");
  const Address a = device.take(100), b = device.take(30 * kMiB);
  device.free(b);
  (*device).empty_cache();
  EXPECT_EQ(device.stats().requested_peak, Bytes(30 * kMiB + 100));
  EXPECT_EQ(device.stats().allocated_peak, Bytes(30 * kMiB + 512));
  EXPECT_EQ(device.stats().reserved_peak, Bytes(32 * kMiB));
  (*device).reset_peaks();
  EXPECT_EQ(device.stats().requested_peak, Bytes(100));
  EXPECT_EQ(device.stats().allocated_peak, Bytes(512));
  EXPECT_EQ(device.stats().reserved_peak, Bytes(2 * kMiB));
  device.free(a);
}

TEST(CachingAllocator, RefusesWhatItCannotDo) {
  TestedAllocator device("cuda");
  const Address a = device.take(1000);
  device.free(a);
  EXPECT_EQ(testing::usage_error([&] { device.free(a); }),
            "no block in use begins at address " + std::to_string(a));
  EXPECT_EQ(testing::usage_error([&] { (*device).allocate(Bytes(-1)); }), "size -1 is outside [0, 2^62)");
  EXPECT_EQ(testing::usage_error([&] { TestedAllocator("cuda", 0); }), "capacity 0 is outside [1, 2^62)");
  EXPECT_FALSE((*device).allocate(Bytes(kMaxCount - 1)));  // beyond all addresses
}

TEST(CachingAllocator, SaysWhatIsWrongWithItsSettings) {
  const auto fault = [](const std::string& text) {
    return testing::usage_error([&] { parse_allocator(text); });
  };
  EXPECT_EQ(fault("mps"), "allocator 'mps' is not cuda, cuda-expandable or exact");
  EXPECT_EQ(fault(""), "allocator '' is not cuda, cuda-expandable or exact");
  EXPECT_EQ(fault("exact:max_split_size_mb:30"),
            "allocator 'exact:max_split_size_mb:30' has options, and exact takes none");
  EXPECT_EQ(fault("cuda:foo:1"),
            "allocator 'cuda:foo:1' has an unknown option 'foo' (known: expandable_segments, "
            "large_segment_size_mb, max_split_size_mb, max_non_split_rounding_mb, roundup_power2_divisions)");
  EXPECT_EQ(fault("cuda:max_split_size_mb"),
            "allocator 'cuda:max_split_size_mb' has 'max_split_size_mb' where KEY:VALUE is expected");
  EXPECT_EQ(fault("cuda:max_split_size_mb:x"),
            "allocator 'cuda:max_split_size_mb:x' has max_split_size_mb 'x', which is not a whole number");
  EXPECT_EQ(fault("cuda:max_split_size_mb:19"),
            "allocator 'cuda:max_split_size_mb:19' has max_split_size_mb 19, and it is at least 20");
  EXPECT_EQ(fault("cuda:large_segment_size_mb:10"),
            "allocator 'cuda:large_segment_size_mb:10' has large_segment_size_mb 10, and it is at least 11");
  EXPECT_EQ(
      fault("cuda:max_split_size_mb:20,large_segment_size_mb:25"),
      "allocator 'cuda:max_split_size_mb:20,large_segment_size_mb:25' has max_split_size_mb 20, and it is "
      "at least 25");
  EXPECT_EQ(
      fault("cuda:roundup_power2_divisions:3"),
      "allocator 'cuda:roundup_power2_divisions:3' has roundup_power2_divisions 3, which is not a power "
      "of two");
  EXPECT_EQ(
      fault("cuda:roundup_power2_divisions:[3:4]"),
      "allocator 'cuda:roundup_power2_divisions:[3:4]' has roundup_power2_divisions from 3 MiB, which is "
      "not a power of two");
  EXPECT_EQ(fault("cuda:roundup_power2_divisions:[64:8"),
            "allocator 'cuda:roundup_power2_divisions:[64:8' has no ']' behind '[64:8'");
  EXPECT_EQ(fault("cuda:expandable_segments:true"),
            "allocator 'cuda:expandable_segments:true' has expandable_segments neither True nor False");
  EXPECT_EQ(fault("cuda:backend:cudaMallocAsync"),
            "allocator 'cuda:backend:cudaMallocAsync' has backend cudaMallocAsync: only native is simulated");
}

TEST(CachingAllocator, WritesItsSettingsSoThatTheyAreReadAgain) {
  for (const char* text : {"cuda", "cuda-expandable", "exact", "cuda:max_split_size_mb:200",
                           "cuda-expandable:large_segment_size_mb:30,roundup_power2_divisions:4",
                           "cuda:max_split_size_mb:64,max_non_split_rounding_mb:32"}) {
    EXPECT_EQ(to_string(parse_allocator(text)), text);
  }
  const AllocatorConfig listed = parse_allocator("cuda: roundup_power2_divisions: [256:1, 512:2, >:4],");
  EXPECT_EQ(parse_allocator(to_string(listed)), listed);
  EXPECT_EQ(to_string(parse_allocator("cuda:expandable_segments:True,pinned_num_register_threads:8")),
            "cuda-expandable");
}

/// Blocks tile their segments, and the counts are those of the blocks.
void expect_sound(const CachingAllocator& allocator) {
  Bytes allocated, mapped;
  std::int64_t used = 0;
  const std::vector<AllocatorBlock> blocks = allocator.blocks();
  for (std::size_t k = 0; k < blocks.size(); ++k) {
    const AllocatorBlock& block = blocks[k];
    ASSERT_GT(block.size, Bytes());
    if (block.is_mapped) mapped += block.size;
    if (block.is_used) {
      allocated += block.size;
      ++used;
    }
    ASSERT_TRUE(block.is_mapped || !block.is_used);
    if (k == 0) continue;
    const AllocatorBlock& last = blocks[k - 1];
    const Address end = last.address + last.size.count();
    if (last.segment != block.segment) {
      ASSERT_LE(end, block.address);
      ASSERT_EQ(block.address, block.segment);
      continue;
    }
    ASSERT_EQ(end, block.address);
    const bool could_be_one = !last.is_used && !block.is_used && last.is_mapped == block.is_mapped;
    ASSERT_FALSE(could_be_one);
  }
  const AllocatorStats& stats = allocator.stats();
  ASSERT_EQ(stats.allocated, allocated);
  ASSERT_EQ(stats.reserved, mapped);
  ASSERT_EQ(stats.allocations, used);
  ASSERT_LE(stats.requested, stats.allocated);
  ASSERT_LE(stats.allocated, stats.reserved);
  ASSERT_LE(stats.reserved, stats.reserved_peak);
  if (allocator.capacity()) {
    ASSERT_LE(stats.reserved_peak, *allocator.capacity());
  }
}

/// A random program; returns what it did to be compared.
std::vector<Address> run(CachingAllocator& allocator, std::uint64_t seed) {
  Random random(seed);
  std::vector<Address> live, all;
  const bool is_tight = allocator.capacity().has_value();
  for (int call = 0; call < 400; ++call) {
    const bool frees = !live.empty() && random.below(100) < (live.size() > 30 ? 60 : 40);
    if (frees) {
      const auto which = static_cast<std::ptrdiff_t>(random.below(std::ssize(live)));
      allocator.free(live[static_cast<std::size_t>(which)]);
      live.erase(live.begin() + which);
    } else {
      const std::int64_t scale = std::int64_t{1} << random.below(27);
      const Bytes size(1 + random.below(scale));
      const auto address = allocator.allocate(size, random.below(8) == 0 ? 1 : 0);
      EXPECT_TRUE(address || is_tight);
      if (address) live.push_back(*address);
      all.push_back(address.value_or(-1));
    }
    if (random.below(60) == 0) allocator.empty_cache();
    expect_sound(allocator);
    if (::testing::Test::HasFatalFailure()) break;
  }
  for (const Address address : live) allocator.free(address);
  allocator.empty_cache();
  EXPECT_EQ(allocator.stats().reserved, Bytes());
  EXPECT_EQ(allocator.stats().segments, 0);
  EXPECT_TRUE(allocator.blocks().empty());
  return all;
}

TEST(CachingAllocator, StaysSoundAndDeterministicUnderRandomPrograms) {
  const char* names[] = {"cuda",
                         "cuda-expandable",
                         "exact",
                         "cuda:max_split_size_mb:30",
                         "cuda:max_split_size_mb:20,roundup_power2_divisions:[1:2,8:4,>:8]",
                         "cuda-expandable:large_segment_size_mb:32,max_split_size_mb:64"};
  std::int64_t failures = 0;
  for (const char* name : names) {
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      SCOPED_TRACE(std::string(name) + " seed " + std::to_string(seed));
      const std::optional<Bytes> capacity = seed % 2 == 0 ? std::nullopt : std::optional(Bytes(200 * kMiB));
      CachingAllocator first(parse_allocator(name), capacity), second(parse_allocator(name), capacity);
      EXPECT_EQ(run(first, seed), run(second, seed));
      EXPECT_EQ(first.stats(), second.stats());
      failures += first.stats().failures;
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(failures, 10);
}

}  // namespace
}  // namespace remat
