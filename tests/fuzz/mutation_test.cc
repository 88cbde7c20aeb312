// Damaged files: whatever bytes come in, a reader gives a graph that holds together or an InputError.
#include <gtest/gtest.h>

#include <cstdlib>

#include "fuzz/damage.h"
#include "fuzz/one_input.h"
#include "helpers/reproduce.h"

namespace remat::fuzz {
namespace {

/// REMAT_FUZZ_ROUNDS raises the number of damaged files for long runs.
int rounds() {
  const char* text = std::getenv("REMAT_FUZZ_ROUNDS");
  return text ? std::atoi(text) : 4000;
}

TEST(Mutation, DamagedGraphsAreRefusedOrSound) {
  Random random(11);
  const auto files = static_cast<std::int64_t>(seed_files().size());
  int accepted = 0;
  for (int round = 0; round < rounds(); ++round) {
    std::string text = seed_files()[static_cast<std::size_t>(random.below(files))];
    for (std::int64_t times = random.between(1, 4); times > 0; --times) damage(text, random);
    testing::record(text + "\n");
    accepted += check_graph_text(text);
  }
  EXPECT_GT(accepted, rounds() / 100) << "damage that nothing survives tests only the first check";
  EXPECT_LT(accepted, rounds() * 3 / 4);
}

TEST(Mutation, DamagedPlansAreRefusedOrChecked) {
  Random random(12);
  int accepted = 0;
  for (int round = 0; round < rounds(); ++round) {
    std::string text = seed_files().back();
    for (std::int64_t times = random.between(1, 3); times > 0; --times) damage(text, random);
    testing::record(text + "\n");
    accepted += check_plan_text(text);
  }
  EXPECT_GT(accepted, rounds() / 100);
}

}  // namespace
}  // namespace remat::fuzz
