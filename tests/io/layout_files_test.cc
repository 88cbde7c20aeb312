// remat.layout and tables of buffers: written files read back equal, and errors name what is wrong.
#include <gtest/gtest.h>

#include "helpers/errors.h"
#include "helpers/graphs.h"
#include "remat/io.h"
#include "remat/keep_all.h"
#include "remat/layout_io.h"

namespace remat {
namespace {

class LayoutFiles : public ::testing::Test {
 protected:
  LayoutFiles() : graph_(testing::training_chain(3, 8)), plan_(keep_all_plan(graph_)) {
    const PlanBuffers buffers = plan_buffers(graph_, plan_, 4);
    Limits limits;
    record_ = make_layout_record(graph_, plan_, buffers, make_layout(buffers.problem, {}, limits));
  }
  std::vector<std::string> check(const LayoutRecord& record) const {
    return check_layout_record(graph_, plan_, record);
  }
  const Graph graph_;
  const Plan plan_;
  LayoutRecord record_;
};

TEST_F(LayoutFiles, KeepEverythingAndCheck) {
  const std::string text = format_layout(record_);
  const LayoutRecord read = parse_layout(text, "l");
  EXPECT_EQ(format_layout(read), text);
  EXPECT_TRUE(read.warnings.empty());
  EXPECT_EQ(read.buffers.size(), record_.buffers.size());
  EXPECT_EQ(check(read), std::vector<std::string>{});
}

TEST_F(LayoutFiles, NeedOnlyTheOffsets) {
  LayoutRecord bare;
  bare.alignment = 1;
  bare.buffers = record_.buffers;
  const LayoutRecord read = parse_layout(format_layout(bare), "l");
  EXPECT_FALSE(read.arena || read.pool || read.resident || read.peak || read.bound);
  EXPECT_EQ(check(read), std::vector<std::string>{});
}

TEST(LayoutFilesOver, PutAnOutputInThePlaceOfWhatItIsWrittenOver) {
  const Graph graph = parse_graph(R"({"format":"remat.graph","version":1,
    "values":[{"bytes":8},{"bytes":8}],"outputs":[1],"ops":[
    {"name":"a","duration":1,"inputs":[],"outputs":[0]},
    {"name":"b","duration":1,"inputs":[0],"outputs":[1],"over":[[0,1]]}]})",
                                  "over.json")
                          .graph;
  const Plan plan = keep_all_plan(graph);
  const PlanBuffers buffers = plan_buffers(graph, plan, 1);
  Limits limits;
  LayoutRecord record = make_layout_record(graph, plan, buffers, make_layout(buffers.problem, {}, limits));
  EXPECT_EQ(record.arena, Bytes(8));
  ASSERT_EQ(record.buffers.size(), 2u);
  EXPECT_EQ(check_layout_record(graph, plan, record), std::vector<std::string>{});
  record.buffers[1].offset = Bytes(8);
  EXPECT_EQ(check_layout_record(graph, plan, record).front(),
            "value 1 made at step 1 is written over what is at offset 0, its own is 8");
}

TEST_F(LayoutFiles, ThatSayWhatIsNotTrueAreRefused) {
  const auto expect = [&](auto&& change, const std::string& line) {
    LayoutRecord changed = record_;
    change(changed);
    const auto lines = check(changed);
    ASSERT_FALSE(lines.empty()) << line;
    EXPECT_EQ(lines.front(), line);
  };
  const std::string pool = std::to_string(record_.pool->count());
  const LayoutEntry first = record_.buffers[0];
  const std::string name = "value " + std::to_string(*first.value) + " made at step 0";
  expect([](LayoutRecord& l) { l.graph_hash = "0"; },
         "graph_hash: the layout says 0, recomputed " + record_.graph_hash);
  expect([](LayoutRecord& l) { l.pool = *l.pool + Bytes(4); },
         "pool: the layout says " + std::to_string(record_.pool->count() + 4) + ", recomputed " + pool);
  expect([](LayoutRecord& l) { l.pool = *l.pool - Bytes(4); },
         "rule in_range: " +
             [&] {
               for (std::size_t k = 0; k < record_.buffers.size(); ++k) {
                 const LayoutEntry& b = record_.buffers[k];
                 if (b.offset + b.bytes != *record_.pool) continue;
                 return "buffer " + std::to_string(k) + " at [" + std::to_string(b.offset.count()) + ", " +
                        pool + ") living in [" + std::to_string(b.first) + ", " + std::to_string(b.end) +
                        ") is outside the arena of " + std::to_string(record_.pool->count() - 4) + " bytes";
               }
               return std::string();
             }());
  expect([](LayoutRecord& l) { l.bound = *l.arena + Bytes(1); },
         "arena_lower_bound: the layout says " + std::to_string(record_.arena->count() + 1) +
             ", but it reaches " + std::to_string(record_.arena->count()));
  expect([](LayoutRecord& l) { l.buffers.erase(l.buffers.begin()); }, name + " has no offset");
  expect([](LayoutRecord& l) { l.buffers.push_back(l.buffers[0]); }, name + " is listed twice");
  expect([](LayoutRecord& l) { l.buffers.push_back({std::nullopt, 1, 2, Bytes(1), Bytes()}); },
         "the workspace of step 1 is no buffer of the plan");
  expect([](LayoutRecord& l) { ++l.buffers[0].end; }, name + ": end: the layout says " +
                                                          std::to_string(first.end + 1) + ", recomputed " +
                                                          std::to_string(first.end));
  expect([](LayoutRecord& l) { l.buffers[0].offset = Bytes(kMaxCount - 1); },
         "rule in_range: buffer 0 at [4611686018427387903, 4611686018427387911) living in [0, " +
             std::to_string(first.end) + ") is outside the arena of " + pool + " bytes");
  expect(
      [](LayoutRecord& l) {
        l.alignment = 3;
        l.buffers[0].offset = Bytes(1);
      },
      "rule aligned: buffer 0 at [1, 9) living in [0, " + std::to_string(first.end) +
          ") is not a multiple of 3");
}

TEST(LayoutText, OfAnotherShapeIsRefusedWithItsPlace) {
  const auto error = [](const std::string& text) {
    return testing::error_of<InputError>([&] { parse_layout(text, "l"); });
  };
  EXPECT_EQ(error(R"({"format":"remat.plan","version":1,"alignment":1,"buffers":[]})"),
            "l:1:22: 'format': found 'remat.plan' instead of 'remat.layout'");
  EXPECT_EQ(error(R"({"format":"remat.layout","version":2,"alignment":1,"buffers":[]})"),
            "l:1:37: 'version': version 2 is not supported; this reader knows version 1");
  EXPECT_NE(error(R"({"format":"remat.layout","version":1,"alignment":0,"buffers":[]})").find("alignment 0"),
            std::string::npos);
  EXPECT_NE(error(R"({"format":"remat.layout","version":1,"alignment":1,"buffers":[{"first":0,"end":1,)"
                  R"("bytes":-1,"offset":0}]})")
                .find("buffer 0: 'bytes': -1 is outside"),
            std::string::npos);
}

TEST(BufferTable, KeepsSpellingAndWarnsOfWhatItDoesNotRead) {
  const std::string text =
      "\xef\xbb\xbfid, lower ,upper,\"size\",alignment\r\n 7 ,0,2, 4,8\r\n\r\nx,-1,1,0,8\r\n";
  const BufferTable table = parse_buffers(text, "t.csv");
  ASSERT_EQ(table.buffers.size(), 2u);
  EXPECT_EQ(table.buffers[BufferId(0)], (Buffer{0, 2, Bytes(4)}));
  EXPECT_EQ(table.buffers[BufferId(1)], (Buffer{-1, 1, Bytes(0)}));
  EXPECT_FALSE(table.offsets);
  EXPECT_EQ(table.warnings, std::vector<std::string>{"t.csv: the column 'alignment' is kept and not read"});
  EXPECT_EQ(format_buffers(table, {Bytes(5), Bytes(0)}),
            "id, lower ,upper,\"size\",alignment,offset\n 7 ,0,2, 4,8,5\nx,-1,1,0,8,0\n");
}

TEST(BufferTable, ReadsAndReplacesOffsets) {
  const BufferTable table = parse_buffers("offset,id,lower,upper,size\n3,a,0,1,2\n", "t.csv");
  EXPECT_EQ(table.offsets, std::vector<Bytes>{Bytes(3)});
  EXPECT_EQ(format_buffers(table, {Bytes(0)}), "offset,id,lower,upper,size\n0,a,0,1,2\n");
}

}  // namespace
}  // namespace remat
