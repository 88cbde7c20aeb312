// Damaged files: for any bytes, a reader returns a consistent graph or throws an InputError.
#include <gtest/gtest.h>

#include <cstdlib>

#include "fuzz/damage.h"
#include "fuzz/one_input.h"
#include "helpers/graphs.h"
#include "helpers/reproduce.h"
#include "remat/arena.h"
#include "remat/layout_io.h"

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

TEST(Mutation, DamagedLayoutsAreRefusedOrChecked) {
  const Graph graph = testing::training_chain(2);
  const Plan plan = keep_all_plan(graph);
  const PlanBuffers buffers = plan_buffers(graph, plan, 1);
  const std::string whole =
      format_layout(make_layout_record(graph, plan, buffers, glance_layout(buffers.problem)));
  Random random(13);
  int accepted = 0;
  for (int round = 0; round < rounds(); ++round) {
    std::string text = whole;
    for (std::int64_t times = random.between(1, 3); times > 0; --times) damage(text, random);
    testing::record(text + "\n");
    accepted += check_layout_text(text);
  }
  EXPECT_GT(accepted, rounds() / 100);
}

TEST(Mutation, DamagedTablesAreRefusedOrLaidOut) {
  Random random(14);
  int accepted = 0;
  for (int round = 0; round < rounds(); ++round) {
    std::string text = "id,lower,upper,size,\"a, b\"\n0,0,20,11,x\n1,-5,12,7,y\n2,9,31,44,z\n3,1,2,0,\n";
    for (std::int64_t times = random.between(1, 3); times > 0; --times) damage(text, random);
    testing::record(text + "\n");
    accepted += check_table_text(text);
  }
  EXPECT_GT(accepted, rounds() / 100);
}

}  // namespace
}  // namespace remat::fuzz
