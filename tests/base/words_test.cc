#include "remat/words.h"

#include <gtest/gtest.h>

namespace remat {
namespace {

const std::vector<std::string> kKnown{"auto", "keep_all", "retention", "--budget", "--budget-on", "lns_gap"};

TEST(Words, TheNearestIsFoundWhateverKindOfSlipItIs) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"ato", "auto"},      {"autoo", "auto"},        {"atuo", "auto"},
      {"AUTO", "auto"},     {"keep-all", "keep_all"}, {"retntion", "retention"},
      {"ret", "retention"}, {"--bugdet", "--budget"}, {"lns_ga", "lns_gap"},
  };
  for (const auto& [word, meant] : cases) EXPECT_EQ(nearest_word(word, kKnown), meant) << word;
}

TEST(Words, WhatIsFarFromAllMeansNothing) {
  for (const char* word : {"", "x", "magic", "keep", "--b", "greedy"}) {
    const auto nearest = nearest_word(word, kKnown);
    EXPECT_FALSE(nearest && *nearest != "keep_all") << word << ": " << *nearest;
  }
  EXPECT_EQ(nearest_word("keep", kKnown), "keep_all") << "one begins with it";
  EXPECT_EQ(nearest_word("--bu", kKnown), std::nullopt) << "two begin with it";
  EXPECT_EQ(nearest_word("auto", {}), std::nullopt);
}

TEST(Words, MessagesNameTheGuessAndAllThatIsKnown) {
  EXPECT_EQ(unknown_word("planner", "ato", {"auto", "dtr"}),
            "unknown planner 'ato': did you mean 'auto'? known: auto, dtr");
  EXPECT_EQ(unknown_word("planner", "magic", {"auto", "dtr"}), "unknown planner 'magic'; known: auto, dtr");
}

}  // namespace
}  // namespace remat
