// remat info: the size of a graph, where its memory peaks, and the values that fill it.
#include <algorithm>
#include <map>

#include "allocator.h"
#include "commands.h"
#include "common.h"
#include "host.h"
#include "remat/bounds.h"

namespace remat::cli {
namespace {

/// Amounts summed by a text, largest first and then by text.
class Shares {
 public:
  void add(const std::string& what, std::int64_t amount) {
    auto& [total, count] = by_text_[what.empty() ? kNone : what];
    total += amount;
    ++count;
  }
  /// Empty if no text was given: a table of nothing but "(none)" has no use.
  Report rows(std::string_view amount, std::string_view what, std::int64_t whole, std::size_t top) const {
    std::vector<std::pair<std::string, std::pair<std::int64_t, std::int64_t>>> sorted(by_text_.begin(),
                                                                                      by_text_.end());
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto& a, const auto& b) { return a.second.first > b.second.first; });
    Report rows = Report::array();
    if (sorted.size() == 1 && sorted.front().first == kNone) return rows;
    if (sorted.size() > top) sorted.resize(top);
    for (const auto& [text, share] : sorted) {
      Report row;
      row[std::string(amount)] = share.first;
      row["percent"] =
          whole == 0 ? 0.0 : 100.0 * static_cast<double>(share.first) / static_cast<double>(whole);
      row["count"] = share.second;
      row[std::string(what)] = text;
      rows.push_back(std::move(row));
    }
    return rows;
  }

 private:
  static constexpr const char* kNone = "(none)";
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> by_text_;
};

/// An instance and its part of a step's memory.
struct Share {
  InstanceLife life;
  Bytes bytes;
};

/// Values alive at a step, the largest first. An input with an output written over it counts the bytes beyond
/// the output, and is left out if there are none.
std::vector<Share> alive_at(const Graph& g, const Plan& plan, StepId step) {
  IndexVector<ValueId, Bytes> taken(g.num_values());
  for (const Overwrite& one : overwrites(g, plan)) {
    if (one.step == step) taken[one.pair.input] = g.overlap(one.pair);
  }
  std::vector<Share> alive;
  for (const InstanceLife& life : instance_lives(g, plan)) {
    if (life.first > step || step >= life.end) continue;
    const Bytes lost = taken[life.value], bytes = g.bytes[life.value] - lost;
    if (lost == Bytes() || bytes > Bytes()) alive.push_back({life, bytes});
  }
  std::stable_sort(alive.begin(), alive.end(),
                   [](const Share& a, const Share& b) { return a.bytes > b.bytes; });
  return alive;
}

struct InfoCommand {
  std::string graph;
  std::size_t top = 10;
  bool json = false;
  HostOptions host;
  AllocatorOption allocator;

  int run() const {
    const std::optional<AllocatorConfig> config = allocator.read();
    const LoadedGraph loaded = load_and_warn(graph);
    const Graph& g = loaded.graph;
    const std::optional<Host> link = host.read(g, graph);
    const Simulation cost = simulate(g, keep_all_plan(g));
    Bytes total;
    for (Bytes bytes : g.bytes) total += bytes;
    Report report;
    report["name"] = g.name;
    report["format"] = to_string(loaded.format);
    report["graph_hash"] = graph_hash(g);
    report["ops"] = g.num_ops();
    report["values"] = g.num_values();
    report["edges"] = count_edges(g);
    report["reads"] = g.inputs.entries();
    report["inputs"] = g.graph_inputs.size();
    report["outputs"] = g.graph_outputs.size();
    report["total_bytes"] = total.count();
    report["resident"] = g.resident.count();
    report["keep_all_peak"] = cost.peak.count();
    if (config) {
      const AllocatorPeaks peaks =
          of_file(graph, [&] { return simulate_allocator(g, keep_all_plan(g), *config); });
      add_peaks(report, *config, &peaks);
    }
    add_bounds(report, g);
    report["base_duration"] = g.base_duration.count();
    report["time_unit"] = g.time_unit.empty() ? Report(nullptr) : Report(g.time_unit);
    if (link) add_host(report, g, *link, cost.peak);
    add_peak(report, g, cost);
    Shares duration;
    for (OpId op : g.ops()) duration.add(std::string(g.op_kind[op]), g.duration[op].count());
    report["duration_by_kind"] = duration.rows("duration", "kind", g.base_duration.count(), top);
    print(report, json,
          {.time_unit = std::string(g.time_unit), .spare = {"kind", "value", "steps", "count"}});
    return kOk;
  }

  void add_bounds(Report& report, const Graph& g) const {
    const PeakBound floor = floor_bound(g);
    report["floor"] = floor.peak.count();
    report["floor_at"] = floor.op ? describe(g, floor.op) : "the graph's inputs and outputs";
    const PeakBound fixed = best_peak_bound(g, OrderMode::kFixed),
                    free = best_peak_bound(g, OrderMode::kFree);
    report["peak_lower_bound"] = fixed.peak.count();
    report["peak_bound_argument"] = fixed.argument;
    if (free.peak != fixed.peak || free.argument != fixed.argument) {
      report["peak_lower_bound_free_order"] = free.peak.count();
      report["peak_bound_argument_free_order"] = free.argument;
    }
  }

  /// Bytes that the channels can copy while every op runs once, and the bounds with and without them.
  void add_host(Report& report, const Graph& g, const Host& link, Bytes keep_all_peak) const {
    constexpr std::int64_t kWork = 20'000'000;
    const auto moved = [&](std::int64_t rate) {
      return static_cast<std::int64_t>(Wide{g.base_duration.count()} * rate / units_per_second(g).value());
    };
    report["host_moves_out"] = moved(link.out);
    report["host_moves_in"] = moved(link.in);
    Report rows = Report::array();
    const auto percent = [&](const Host* with, Bytes budget) {
      Limits limits;
      limits.set_work(kWork);
      const PeakBound least = with ? host_peak_bound(g) : best_peak_bound(g, OrderMode::kFixed);
      if (budget < least.peak) return Report(nullptr);
      const DurationBound bound = with ? host_duration_bound(g, budget, OrderMode::kFixed, *with, limits)
                                       : cheap_duration_bound(g, budget, OrderMode::kFixed);
      return Report(100 * overhead(g, bound.duration));
    };
    for (const std::int64_t share : {80, 60, 50, 40, 30, 20}) {
      const Bytes budget(keep_all_peak.count() / 100 * share);
      Report row;
      row["budget_percent"] = share;
      row["budget"] = budget.count();
      row["least_overhead_percent"] = percent(nullptr, budget);
      row["with_host_percent"] = percent(&link, budget);
      rows.push_back(std::move(row));
    }
    report["bounds_with_host"] = std::move(rows);
  }

  void add_peak(Report& report, const Graph& g, const Simulation& cost) const {
    const OpId op(cost.peak_step.index());  // keep-all: step i runs op i
    report["peak_step"] = cost.peak_step.index();
    report["peak_op"] = describe(g, op);
    const std::vector<Share> alive = alive_at(g, keep_all_plan(g), cost.peak_step);
    Shares by_kind, by_module;
    Report rows = Report::array();
    const auto share = [&](Bytes bytes) {
      return cost.peak.count() == 0
                 ? 0.0
                 : 100.0 * static_cast<double>(bytes.count()) / static_cast<double>(cost.peak.count());
    };
    for (const auto& [life, bytes] : alive) {
      const OpId maker = g.producer[life.value];
      by_kind.add(std::string(g.op_kind[maker]), bytes.count());
      by_module.add(std::string(g.op_module[maker]), bytes.count());
      if (rows.size() >= top) continue;
      rows.push_back(
          {{"bytes", bytes.count()},
           {"percent", share(bytes)},
           {"steps", std::to_string(life.first.index()) + ".." + std::to_string(life.end.prev().index())},
           {"value", describe(g, life.value)},
           {"op", describe(g, maker)},
           {"kind", g.op_kind[maker]},
           {"module", g.op_module[maker]}});
    }
    if (!g.graph_inputs.empty()) {
      by_kind.add("(resident inputs)", g.resident.count());
      by_module.add("(resident inputs)", g.resident.count());
    }
    if (g.workspace[op] != Bytes()) {
      by_kind.add("(workspace)", g.workspace[op].count());
      by_module.add("(workspace)", g.workspace[op].count());
    }
    report["largest_at_peak"] = std::move(rows);
    report["at_peak_by_kind"] = by_kind.rows("bytes", "kind", cost.peak.count(), top);
    report["at_peak_by_module"] = by_module.rows("bytes", "module", cost.peak.count(), top);
  }
};

}  // namespace

void add_info(CLI::App& app, Action& action) {
  auto command = std::make_shared<InfoCommand>();
  CLI::App* sub = app.add_subcommand("info", "sizes, keep-all peak, floor, what fills the peak");
  sub->add_option("GRAPH", command->graph, "remat.graph or node-link JSON")->required();
  add_whole(*sub, "--top", command->top, 0, 1'000'000'000, "rows of each table (default: 10)");
  command->host.declare(*sub);
  command->allocator.declare(*sub);
  sub->add_flag("--json", command->json, "print one JSON object");
  sub->callback([command, &action] { action = [command] { return command->run(); }; });
}

}  // namespace remat::cli
