#include "remat/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "helpers/errors.h"
#include "helpers/graphs.h"
#include "remat/error.h"
#include "remat/keep_all.h"
#include "report/packed.h"

namespace remat {
namespace {

using nlohmann::json;

ReportPlan record_of(const Graph& graph, const Plan& plan, const std::string& title = "p") {
  ReportPlan shown{title, {}};
  shown.record.graph_hash = graph_hash(graph);
  for (OpId op : plan.steps) shown.record.steps.push_back(op.index());
  return shown;
}

/// Two forward ops and their backward ops; f0 may run again for b0:
///   x -> f0 -> f1 -> b1 -> b0 -> g      b1 reads f0 and f1, b0 reads f0 and b1; g is kept
Graph two_layers() {
  GraphBuilder builder("two", "us");
  const std::int64_t x = builder.add_value(Bytes(100), "parameter a.weight");
  const std::int64_t y = builder.add_value(Bytes(1), "batch");
  std::vector<std::int64_t> made;
  for (std::int64_t bytes : {10, 20, 5, 7}) made.push_back(builder.add_value(Bytes(bytes)));
  const auto add = [&](const char* name, Phase phase, std::vector<std::int64_t> inputs, std::int64_t output) {
    builder.add_op({.name = name,
                    .kind = "k",
                    .module = "m",
                    .duration = Duration(3),
                    .workspace = Bytes(2),
                    .phase = phase,
                    .inputs = inputs,
                    .outputs = std::span(&output, 1)});
  };
  add("f0", Phase::kForward, {x, y}, made[0]);
  add("f1", Phase::kForward, {made[0]}, made[1]);
  add("b1", Phase::kBackward, {made[0], made[1]}, made[2]);
  add("b0</script><script>", Phase::kBackward, {made[0], made[2]}, made[3]);
  builder.add_input(x);
  builder.add_input(y);
  builder.add_output(made[3]);
  return builder.build();
}

TEST(Report, SumsByKindAreTheSimulatorsMemoryOfEveryStep) {
  Random random(3);
  for (int round = 0; round < 300; ++round) {
    const Graph graph = testing::random_graph(random);
    const Plan plan = testing::random_plan(graph, random, 4);
    IndexVector<StepId, Bytes> memory;
    simulate(graph, plan, memory);
    const auto kinds = memory_by_kind(graph, plan);
    ASSERT_EQ(kinds.size(), memory.size());
    for (StepId step : plan.steps.ids()) {
      ASSERT_EQ(std::accumulate(kinds[step].begin(), kinds[step].end(), Bytes()), memory[step]);
    }
  }
}

TEST(Report, TellsWhatMemoryIsFor) {
  const Graph graph = two_layers();
  Plan plan;
  for (int op : {0, 1, 2, 0, 3}) plan.steps.push_back(OpId(op));
  const auto memory = memory_by_kind(graph, plan);
  const auto at = [&](int step, MemoryKind kind) {
    return memory[StepId(step)][static_cast<std::size_t>(kind)].count();
  };
  EXPECT_EQ(at(0, MemoryKind::kParameters), 100);
  EXPECT_EQ(at(0, MemoryKind::kInputs), 1);
  EXPECT_EQ(at(0, MemoryKind::kActivations), 10);
  EXPECT_EQ(at(1, MemoryKind::kActivations), 30);
  EXPECT_EQ(at(2, MemoryKind::kGradients), 5);
  EXPECT_EQ(at(3, MemoryKind::kRecomputed), 10);
  EXPECT_EQ(at(3, MemoryKind::kActivations), 0);
  EXPECT_EQ(at(4, MemoryKind::kOutputs), 7);
  for (int step = 0; step < 5; ++step) EXPECT_EQ(at(step, MemoryKind::kWorkspace), 2);
}

/// f0's result (10 bytes) leaves after f1 and is back for b0. At 2 bytes a microsecond a copy takes 5 us.
ReportPlan with_copies(const Graph& graph) {
  Plan plan = keep_all_plan(graph);
  ReportPlan shown = record_of(graph, plan);
  shown.record.copies = {{ValueId(2), Way::kOut, StepId(0), StepId(2)},
                         {ValueId(2), Way::kIn, StepId(2), StepId(2)}};
  shown.record.host.emplace();
  shown.record.host->out = shown.record.host->in = 2'000'000;
  return shown;
}

TEST(Report, CopiesHaveTheirMemoryTimesAndBytes) {
  const Graph graph = two_layers();
  const ReportPlan shown = with_copies(graph);
  const json plan =
      json::parse(format_report({&graph, {shown}, {}, ""}, ReportFormat::kJson)).at("plans").at(0);
  const json& host = plan.at("host");
  // f0 0-3, f1 3-6; out 3-8, in 8-13, for which b1 waits.
  EXPECT_EQ(host.at("start"), json({0, 3, 13, 16}));
  EXPECT_EQ(plan.at("duration"), 19);
  EXPECT_EQ(host.at("stalled"), 7);
  EXPECT_EQ(host.at("copies").at("begin"), json({3, 8}));
  EXPECT_EQ(host.at("copies").at("end"), json({8, 13}));
  EXPECT_EQ(host.at("memory"), json({10, 10, 10, 0, 0}));
  EXPECT_EQ(host.at("peak"), 10);
  const auto memory = memory_by_kind(graph, recorded_plan(shown.record));
  const auto copied = static_cast<std::size_t>(MemoryKind::kCopied);
  EXPECT_EQ(memory[StepId(0)][copied], Bytes(10));
  EXPECT_EQ(memory[StepId(2)][copied], Bytes(10));
  const std::string csv = format_report({&graph, {shown}, {}, ""}, ReportFormat::kCsv);
  EXPECT_NE(csv.find("\n2,2,b1,k,m,backward,0,13,3,"), std::string::npos) << csv;
  const json trace = json::parse(format_report({&graph, {shown}, {}, ""}, ReportFormat::kPerfetto));
  const auto copies = std::count_if(trace.at("traceEvents").begin(), trace.at("traceEvents").end(),
                                    [](const json& event) { return event.value("cat", "") == "copy"; });
  EXPECT_EQ(copies, 2);
}

TEST(Report, DotHasANodeForEachStepAndReadsTheNewestInstance) {
  const Graph graph = testing::make_graph({4}, {{{0}, {8}}, {{1}, {2}}, {{2, 1}, {1}}}, {3});
  PlanRecord record;
  record.steps = {0, 1, 0, 2};
  const std::string dot = format_report({&graph, {{"mine", record, {}}}, {}, ""}, ReportFormat::kDot);
  EXPECT_EQ(dot,
            "digraph \"mine\" {\n"
            "  node [shape=box];\n"
            "  v0 [shape=ellipse, label=\"4 B\"];\n"
            "  s0 [label=\"0: op0\"];\n"
            "  v0 -> s0;\n"
            "  s1 [label=\"1: op1\"];\n"
            "  s0 -> s1 [label=\"8 B\"];\n"
            "  s2 [label=\"2: op0\", style=filled];\n"
            "  v0 -> s2;\n"
            "  s3 [label=\"3: op2\"];\n"
            "  s2 -> s3 [label=\"8 B\"];\n"
            "  s1 -> s3 [label=\"2 B\"];\n"
            "}\n");
  const Graph timed = two_layers();
  EXPECT_EQ(testing::usage_error(
                [&] { format_report({&timed, {with_copies(timed)}, {}, ""}, ReportFormat::kDot); }),
            "the format dot shows no copies, and p has some");
}

TEST(Report, CopiesOfUnknownSpeedAreRefused) {
  const Graph graph = two_layers();
  ReportPlan shown = with_copies(graph);
  shown.record.host.reset();
  EXPECT_THROW(check_report({&graph, {shown}, {}, ""}), InputError);
}

TEST(Report, WithoutPhasesEveryFirstResultIsOfOneKind) {
  const Graph graph = testing::training_chain(3);
  for (const KindOfLife& one : kinds_of_lives(graph, keep_all_plan(graph))) {
    EXPECT_EQ(one.kind, MemoryKind::kActivations);
  }
}

TEST(Report, ColumnsArePackedInBase128AndBase64) {
  EXPECT_EQ(report::base64(""), "");
  EXPECT_EQ(report::base64("M"), "TQ==");
  EXPECT_EQ(report::base64("Ma"), "TWE=");
  EXPECT_EQ(report::base64("Man"), "TWFu");
  EXPECT_EQ(report::pack({0, 127, 128}), report::base64(std::string("\x03\x03\0\x7f\x80\x01", 6)));
  EXPECT_EQ(report::pack_differences({5, 3, 3}), report::base64(std::string("\x03\x03\x0a\x03\x00", 5)));
  EXPECT_EQ(report::pack({9, 9, 9, 9, 9, 9, 9}), report::base64(std::string("\x07\x01\x09\x06\x01", 5)));
  EXPECT_EQ(report::pack_differences({5, 30, 6, 31}, {0, 1, 0, 1}),
            report::base64(std::string("\x04\x04\x0a\x3c\x02\x02", 6)));
  EXPECT_EQ(report::pack({}), report::base64(std::string("\0", 1)));
}

/// Decodes a column made by `pack` as the page does.
std::vector<std::int64_t> unpacked(const std::string& text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  std::uint32_t bits = 0;
  int known = 0;
  for (char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<std::uint32_t>(kDigits.find(c));
    known += 6;
    if (known >= 8) bytes += static_cast<char>(bits >> (known -= 8) & 0xff);
  }
  std::size_t at = 0;
  const auto next = [&] {
    std::int64_t number = 0;
    for (int shift = 0;; shift += 7) {
      const auto digit = static_cast<unsigned char>(bytes.at(at++));
      number |= static_cast<std::int64_t>(digit & 0x7f) << shift;
      if (digit < 0x80) return number;
    }
  };
  std::vector<std::int64_t> column;
  for (const auto count = static_cast<std::size_t>(next()); column.size() < count;) {
    for (std::int64_t left = next(); left > 0; --left) column.push_back(next());
    if (column.size() == count) break;
    std::int64_t left = next();
    const auto distance = static_cast<std::size_t>(next());
    for (; left > 0; --left) column.push_back(column.at(column.size() - distance));
  }
  EXPECT_EQ(at, bytes.size());
  return column;
}

TEST(Report, PackedColumnsComeBackWhateverRepeatsInThem) {
  Random random(5);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::int64_t> column;
    const auto length = static_cast<std::size_t>(random.below(60));
    while (column.size() < length) {
      const auto begin = static_cast<std::size_t>(random.below(static_cast<std::int64_t>(column.size()) + 1));
      if (random.below(2) == 0 && begin < column.size()) {
        for (std::int64_t left = random.below(20); left > 0; --left) column.push_back(column[begin]);
        const std::vector<std::int64_t> part(column.begin() + static_cast<std::ptrdiff_t>(begin),
                                             column.end());
        column.insert(column.end(), part.begin(), part.end());
      } else {
        column.push_back(random.below(2) == 0 ? random.below(3) : random.below(std::int64_t{1} << 53));
      }
    }
    ASSERT_EQ(unpacked(report::pack(column)), column);
  }
}

TEST(Report, LayersThatRepeatTakeNextToNoRoom) {
  std::vector<std::int64_t> column;
  for (int layer = 0; layer < 1000; ++layer) {
    for (std::int64_t bytes : {1 << 20, 3 << 20, 77, 12345678, 0}) column.push_back(bytes);
  }
  EXPECT_LT(report::pack(column).size(), 40);
}

TEST(Report, NamesAreToldApartFromTheirNumbers) {
  const report::NamePatterns parts =
      report::name_patterns({"h.9.mm_1", "h.10.mm_1", "h.10.007", "a\nb", "12"});
  EXPECT_EQ(parts.patterns, (std::vector<std::string>{"h.\1.mm_\1", "h.\1.007", "a b", "\1"}));
  EXPECT_EQ(parts.pattern, (std::vector<std::int64_t>{0, 0, 1, 2, 3}));
  EXPECT_EQ(parts.numbers, (std::vector<std::int64_t>{9, 1, 1, 0, 10, 12}));
  EXPECT_EQ(report::name_patterns({"id1234567890123456"}).patterns.front(), "id1234567890123456");
}

TEST(Report, JsonHoldsTheSimulatorsNumbers) {
  const Graph graph = two_layers();
  Plan plan;
  for (int op : {0, 1, 2, 0, 3}) plan.steps.push_back(OpId(op));
  const json read =
      json::parse(format_report({&graph, {record_of(graph, plan)}, {}, "how"}, ReportFormat::kJson));
  EXPECT_EQ(read.at("command"), "how");
  ASSERT_EQ(read.at("plans").size(), 2);
  const json& shown = read.at("plans").at(0);
  const Simulation cost = simulate(graph, plan);
  EXPECT_EQ(shown.at("peak"), cost.peak.count());
  EXPECT_EQ(shown.at("peak_step"), cost.peak_step.index());
  EXPECT_EQ(shown.at("duration"), 15);
  EXPECT_EQ(shown.at("steps"), (std::vector<int>{0, 1, 2, 0, 3}));
  EXPECT_EQ(shown.at("lives").at("value").size(), 5);
  EXPECT_EQ(read.at("plans").at(1).at("title"), "keep all");
}

TEST(Report, NoNameOfAnOpEndsThePagesScript) {
  const Graph graph = two_layers();
  const std::string page = format_report({&graph, {}, {}, "</script>"}, ReportFormat::kHtml);
  EXPECT_EQ(page.find("b0</script>"), std::string::npos);
  EXPECT_NE(page.find("\\u0001\\u003c/script>"), std::string::npos);
  EXPECT_EQ(page.find("{\"remat\":\"data\"}"), std::string::npos);
  const std::size_t begin = page.find('{', page.find("<script id=\"data\""));
  EXPECT_NO_THROW(json::parse(page.substr(begin, page.find("</script>", begin) - begin)));
}

TEST(Report, CsvHasARowForEachStepWithTheMemoryOfTheSimulator) {
  const Graph graph = two_layers();
  const std::string text = format_report({&graph, {}, {}, ""}, ReportFormat::kCsv);
  EXPECT_TRUE(text.starts_with("step,op,name,kind,module,phase,recomputed,start,duration,memory,parameters,"))
      << text;
  EXPECT_NE(text.find("\n1,1,f1,k,m,forward,0,3,3,133,100,1,0,30,0,0,0,0,2\n"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5);
}

TEST(Report, PerfettoGetsSlicesAndCountersOfEveryPlan) {
  const Graph graph = two_layers();
  Plan plan;
  for (int op : {0, 1, 2, 0, 3}) plan.steps.push_back(OpId(op));
  const json trace =
      json::parse(format_report({&graph, {record_of(graph, plan)}, {}, ""}, ReportFormat::kPerfetto));
  int slices = 0, counters = 0;
  for (const json& event : trace.at("traceEvents")) {
    slices += event.at("ph") == "X";
    counters += event.at("ph") == "C";
    if (event.at("ph") == "X" && event.at("args").at("step") == 3 && event.at("pid") == 1) {
      EXPECT_EQ(event.at("tid"), 2);
      EXPECT_EQ(event.at("ts"), 9);
      EXPECT_EQ(event.at("dur"), 3);
    }
  }
  EXPECT_EQ(slices, 5 + 4);
  EXPECT_EQ(counters, 6 + 5);
}

TEST(Report, WhatWasMeasuredStandsBesideItsPlanInEveryFormat) {
  const Graph graph = two_layers();
  ReportPlan plan = record_of(graph, keep_all_plan(graph), "ran");
  for (std::int64_t bytes : {120, 140, 130, 115}) plan.measured.emplace_back(bytes);
  const json data = json::parse(format_report({&graph, {plan}, {}, ""}, ReportFormat::kJson));
  EXPECT_EQ(data.at("plans").at(0).at("measured"), (std::vector<int>{120, 140, 130, 115}));
  EXPECT_FALSE(data.at("plans").at(1).contains("measured"));
  const std::string csv = format_report({&graph, {plan}, {}, ""}, ReportFormat::kCsv);
  EXPECT_NE(csv.find("workspace,measured\n"), std::string::npos) << csv;
  EXPECT_NE(csv.find(",2,140\n"), std::string::npos) << csv;
  const json trace = json::parse(format_report({&graph, {plan}, {}, ""}, ReportFormat::kPerfetto));
  std::vector<int> counted;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("name") == "measured memory") counted.push_back(event.at("args").at("bytes"));
  }
  EXPECT_EQ(counted, (std::vector<int>{120, 140, 130, 115, 0}));
  plan.measured.pop_back();
  try {
    check_report({&graph, {plan}, {}, ""});
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "ran: 3 steps were measured of 4");
  }
}

TEST(Report, RefusesPlansThatAreNotTheGraphsAndFormatsThatTakeOne) {
  const Graph graph = two_layers();
  const Graph other = testing::training_chain(2);
  const ReportPlan foreign = record_of(other, keep_all_plan(other), "x.plan");
  try {
    check_report({&graph, {foreign}, {}, ""});
    FAIL();
  } catch (const InputError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("x.plan: graph_hash: the plan says ")) << error.what();
  }
  ReportPlan broken = record_of(graph, keep_all_plan(graph), "b.plan");
  broken.record.steps.pop_back();
  EXPECT_THROW(check_report({&graph, {broken}, {}, ""}), InputError);
  const ReportPlan good = record_of(graph, keep_all_plan(graph));
  EXPECT_THROW(format_report({&graph, {good, good}, {}, ""}, ReportFormat::kCsv), UsageError);
  EXPECT_THROW(parse_report_format("pdf"), UsageError);
}

TEST(Report, APlanOverItsBudgetIsShown) {
  const Graph graph = two_layers();
  ReportPlan over = record_of(graph, keep_all_plan(graph));
  over.record.budget = Bytes(1);
  over.record.status = "unknown";
  EXPECT_NO_THROW(check_report({&graph, {over}, {}, ""}));
}

}  // namespace
}  // namespace remat
