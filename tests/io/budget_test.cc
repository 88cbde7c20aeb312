#include <gtest/gtest.h>

#include "remat/error.h"
#include "remat/io.h"

namespace remat {
namespace {

constexpr Bytes kPeak(1001);

TEST(Budget, TakesBytesUnitsAndShares) {
  const std::vector<std::pair<std::string, std::int64_t>> cases{
      {"6442450944", 6442450944},
      {"6GiB", 6442450944},
      {"6 GiB", 6442450944},
      {"6gib", 6442450944},
      {"800MB", 800000000},
      {"2kB", 2000},
      {"1.5KiB", 1536},
      {"1TB", 1000000000000},
      {"1TiB", 1099511627776},
      {"7B", 7},
      {" 42 ", 42},
      {"75%", 750},
      {"12.5%", 125},
      {"100%", 1001},
      {"120 %", 1201},
      {"33.333333333333333333%", 333},
      {"4611686018427387903", kMaxCount - 1},
  };
  for (const auto& [text, bytes] : cases) EXPECT_EQ(parse_budget(text, kPeak).count(), bytes) << text;
}

TEST(Budget, IsExactWhereDoublesAreNot) {
  const Bytes peak(4611686018427387903);
  EXPECT_EQ(parse_budget("100%", peak), peak);
  EXPECT_EQ(parse_budget("50%", peak).count(), 2305843009213693951);
  EXPECT_EQ(parse_budget("0.1%", Bytes(30000)).count(), 30);
  EXPECT_EQ(parse_budget("4294967295.9999999999GiB", peak).count(), kMaxCount - 1);
}

std::string refusal(std::string_view text, Bytes peak = kPeak, Bytes floor = Bytes()) {
  try {
    return "accepted as " + std::to_string(parse_budget(text, peak, floor).count());
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(Budget, RefusesEverythingElseWithAClearLine) {
  const std::string forms =
      "is not an amount of memory: write bytes (6442450944), bytes with a unit (6GiB, 800MB) or a share of "
      "the "
      "keep-all peak (75%)";
  const std::vector<std::string> amiss{
      "abc",   "",     " ",    "%",      "GiB",   "1e400",   "1e9",
      "nan",   "inf",  "+5",   ".5GiB",  "5.GiB", "1.2.3GB", "6 X",
      "6GiBs", "75%%", "0x10", "1,5GiB", "-",     "--1",     "99999999999999999999999999999"};
  for (const auto& text : amiss) EXPECT_EQ(refusal(text), "budget '" + text + "' " + forms);
  for (const char* text : {"-1GiB", "-5", "-0"})
    EXPECT_EQ(refusal(text), "budget '" + std::string(text) + "' is negative");
  for (const char* text : {"0", "0%", "0GiB", "0.01%", "0.0001kB"}) {
    EXPECT_EQ(refusal(text), "budget '" + std::string(text) + "' is 0 bytes: a budget must be positive");
  }
  for (const char* text :
       {"4611686018427387904", "9999999999GiB", "999999999999999999999999%", "4294967296GiB"}) {
    EXPECT_EQ(refusal(text), "budget '" + std::string(text) + "' is not below 4611686018427387904 bytes");
  }
}

TEST(Budget, SaysWhatWasProbablyMeant) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"6G", "6GiB"},     {"6 g", "6GiB"},  {"1.5Ti", "1.5TiB"},
      {"800m", "800MiB"}, {"64K", "64KiB"}, {"60 percent", "60%"},
  };
  for (const auto& [text, meant] : cases) {
    EXPECT_EQ(refusal(text),
              "budget '" + text + "' is not an amount of memory: did you mean '" + meant + "'?");
  }
  const std::string whole = "is not a whole number of bytes: did you mean ";
  EXPECT_EQ(refusal("0.6"), "budget '0.6' " + whole + "'60%'?");
  EXPECT_EQ(refusal("0.125"), "budget '0.125' " + whole + "'12.5%'?");
  EXPECT_EQ(refusal("6.5"), "budget '6.5' " + whole + "'6.5GiB'?");
  EXPECT_EQ(refusal("0.0"), "budget '0.0' is not a whole number of bytes");
}

TEST(Budget, AsksForTheUnitOfANumberThatIsFarTooSmall) {
  const Bytes peak(1 << 30), floor(3 << 20);
  EXPECT_EQ(refusal("70", peak, floor),
            "budget '70' is 70 bytes, and no plan goes below 3.00 MiB (3145728 bytes): did you mean '70%'?");
  EXPECT_EQ(refusal(" 700 ", peak, floor),
            "budget '700' is 700 bytes, and no plan goes below 3.00 MiB (3145728 bytes): did you mean "
            "'700MiB'?");
  for (const char* text : {"70B", "1000", "0.000001%"})
    EXPECT_TRUE(refusal(text, peak, floor).starts_with("accepted as ")) << text;
  EXPECT_EQ(refusal("70", peak, Bytes(70)), "accepted as 70");
  EXPECT_EQ(refusal("70", kPeak, Bytes(100)), "accepted as 70");
}

TEST(Budget, IsWrittenForPeopleWithThreeDigits) {
  const std::vector<std::pair<std::int64_t, std::string>> cases{
      {0, "0 B"},
      {999, "999 B"},
      {1000, "0.977 KiB"},
      {1536, "1.50 KiB"},
      {12'900'000, "12.3 MiB"},
      {1'022 << 20, "0.998 GiB"},
      {3'825'205'248, "3.56 GiB"},
      {429'496'729'600, "400 GiB"},
      {1099511627776, "1.00 TiB"},
      {kMaxCount - 1, "4194304 TiB"},
  };
  for (const auto& [bytes, text] : cases) EXPECT_EQ(format_bytes(Bytes(bytes)), text) << bytes;
  EXPECT_EQ(exact_bytes(Bytes(3'825'205'248)), "3.56 GiB (3825205248 bytes)");
  EXPECT_EQ(exact_bytes(Bytes(512)), "512 bytes");
  EXPECT_EQ(describe_budget("60 %", Bytes(3'825'205'248)), "60 % (3.56 GiB, 3825205248 bytes)");
  EXPECT_EQ(describe_budget("60%", Bytes(7)), "60% (7 bytes)");
  EXPECT_EQ(describe_budget("6GiB", Bytes(512)), "512 bytes");
}

std::string bandwidth_refusal(std::string_view text) {
  try {
    return "accepted as " + std::to_string(parse_bandwidth(text));
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(Bandwidth, IsBytesPerSecondWithAUnit) {
  EXPECT_EQ(parse_bandwidth("25GB/s"), 25'000'000'000);
  EXPECT_EQ(parse_bandwidth("1.5 GiB/s"), 1'610'612'736);
  EXPECT_EQ(parse_bandwidth("12gb"), 12'000'000'000);
  EXPECT_EQ(parse_bandwidth("7B/s"), 7);
  for (const char* wrong : {"", "fast", "25 GB/h", "-1GB/s", "0B/s", "25%", "9e9"}) {
    EXPECT_THROW(parse_bandwidth(wrong), UsageError) << wrong;
  }
  for (const char* bare : {"25", "25 /s", "25"}) {
    EXPECT_EQ(bandwidth_refusal(bare),
              "bandwidth '" + std::string(bare) + "' has no unit: write 25GB/s, 25MB/s or 25B/s");
  }
  EXPECT_EQ(bandwidth_refusal("200 Gb/s"),
            "bandwidth '200 Gb/s' is in bits: write bytes per second, as in 25GB/s");
}

TEST(Gap, IsAShareOrZero) {
  EXPECT_EQ(parse_gap("0.1%"), 0.001);
  EXPECT_EQ(parse_gap("0"), 0);
  EXPECT_EQ(parse_gap(" 0 % "), 0);
  for (const char* wrong : {"", "0.1", "1", "-1%", "nan%"})
    EXPECT_THROW(parse_gap(wrong), UsageError) << wrong;
}

}  // namespace
}  // namespace remat
