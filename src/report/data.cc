// The numbers of a report as JSON: columns as plain arrays, or packed for the page.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/numbers.h"
#include "model/step.h"
#include "remat/keep_all.h"
#include "report/packed.h"
#include "report/plans.h"

namespace remat::report {
namespace {

using Json = nlohmann::ordered_json;
using Numbers = std::vector<std::int64_t>;

/// Texts of a column without repetitions, in the order in which they come.
class Words {
 public:
  std::int64_t index(std::string_view word) {
    const auto [place, is_new] = known_.try_emplace(std::string(word), narrow<std::int64_t>(words_.size()));
    if (is_new) words_.push_back(place->first);
    return place->second;
  }
  const std::vector<std::string_view>& words() const { return words_; }

 private:
  std::map<std::string, std::int64_t, std::less<>> known_;
  std::vector<std::string_view> words_;
};

/// The context of the n-th input or output of an op of this kind.
std::size_t context(std::int64_t kind, std::size_t place) {
  constexpr std::size_t kPlaces = 8;
  return kPlaces * at(kind) + std::min(place, kPlaces - 1);
}

bool has_phases(const Graph& graph) {
  return std::any_of(graph.phase.begin(), graph.phase.end(),
                     [](Phase phase) { return phase != Phase::kNone; });
}

/// The request, from which the plan can be made again.
Json request_of(const PlanRequest& request) {
  Json written;
  written["planner"] = request.planner;
  written["objective"] = to_string(request.objective);
  written["time_limit"] = request.time_limit ? Json(*request.time_limit) : Json(nullptr);
  written["work_limit"] = request.work_limit ? Json(*request.work_limit) : Json(nullptr);
  written["gap_limit"] = request.gap_limit;
  written["threads"] = request.threads;
  written["options"] = Json::object();
  for (const auto& [name, value] : request.options) written["options"][name] = value;
  return written;
}

class Writer {
 public:
  Writer(const ReportContent& content, bool packed)
      : content_(content), graph_(*content.graph), packed_(packed), context_of_value_(graph_.num_values()) {
    Words kinds;
    for (OpId op : graph_.ops()) {
      const std::int64_t kind = kinds.index(graph_.op_kind[op]);
      std::size_t place = 0;
      for (ValueId value : graph_.outputs[op]) context_of_value_[value] = context(kind, place++);
    }
  }

  Json graph() const {
    Json graph;
    graph["name"] = graph_.name;
    graph["hash"] = graph_hash(graph_);
    graph["time_unit"] = graph_.time_unit;
    graph["base_duration"] = graph_.base_duration.count();
    graph["resident"] = graph_.resident.count();
    graph["keep_all_peak"] = keep_all_peak(graph_).count();
    Words kinds, modules, sources;
    std::vector<std::size_t> input_contexts;
    Numbers kind, module, source, phase, duration, workspace, inputs, outputs, input_counts, output_counts,
        bytes, inputs_of_graph;
    for (OpId op : graph_.ops()) {
      kind.push_back(kinds.index(graph_.op_kind[op]));
      module.push_back(modules.index(graph_.op_module[op]));
      source.push_back(sources.index(graph_.op_source[op]));
      phase.push_back(narrow<std::int64_t>(at(graph_.phase[op])));
      duration.push_back(graph_.duration[op].count());
      workspace.push_back(momentary(graph_, op).count());
      input_counts.push_back(narrow<std::int64_t>(graph_.inputs[op].size()));
      output_counts.push_back(narrow<std::int64_t>(graph_.outputs[op].size()));
      std::size_t place = 0;
      for (ValueId value : graph_.inputs[op]) {
        inputs.push_back(value.index());
        input_contexts.push_back(context(kind.back(), place++));
      }
      for (ValueId value : graph_.outputs[op]) outputs.push_back(value.index());
    }
    for (Bytes size : graph_.bytes) bytes.push_back(size.count());
    for (ValueId value : graph_.graph_inputs) inputs_of_graph.push_back(value.index());
    graph["kinds"] = kinds.words();
    graph["modules"] = names(modules.words());
    graph["sources"] = names(sources.words());
    Json& ops = graph["ops"];
    ops["name"] = names_of_ops();
    ops["kind"] = column(kind);
    ops["module"] = rising(module);
    ops["source"] = rising(source);
    ops["phase"] = column(phase);
    ops["duration"] = column(duration);
    ops["workspace"] = column(workspace);
    ops["input_count"] = column(input_counts);
    ops["inputs"] = rising(inputs, input_contexts);
    ops["output_count"] = column(output_counts);
    ops["outputs"] = rising(outputs);
    graph["values"] = {{"name", names_of_values()}, {"bytes", column(bytes)}};
    graph["inputs"] = rising(inputs_of_graph);
    return graph;
  }

  Json plan(const Shown& shown) const {
    const PlanRecord& record = *shown.record;
    Json plan;
    plan["title"] = shown.title;
    plan["status"] = record.status;
    plan["planner"] = record.planner;
    plan["seed"] = record.seed;
    if (record.request) plan["request"] = request_of(*record.request);
    plan["order"] = to_string(record.order);
    plan["budget"] = record.budget ? Json(record.budget->count()) : Json(nullptr);
    plan["peak"] = shown.cost.peak.count();
    plan["peak_step"] = shown.cost.peak_step.index();
    plan["duration"] = shown.cost.duration.count();
    plan["overhead"] = overhead(graph_, shown.cost.duration);
    plan["recomputed_ops"] = recomputed_ops(graph_, shown.plan);
    plan["peak_bound"] = {{"bytes", shown.peak_bound.peak.count()}, {"argument", shown.peak_bound.argument}};
    plan["duration_bound"] = {{"duration", shown.duration_bound.duration.count()},
                              {"argument", shown.duration_bound.argument}};
    Numbers value, first, length, kind;
    std::vector<std::size_t> contexts;
    for (const KindOfLife& one : kinds_of_lives(graph_, shown.plan)) {
      contexts.push_back(context_of_value_[one.life.value]);
      value.push_back(one.life.value.index());
      first.push_back(one.life.first.index());
      length.push_back(one.life.end.index() - one.life.first.index());
      kind.push_back(narrow<std::int64_t>(at(one.kind)));
    }
    plan["steps"] = rising(record.steps);
    if (has_rerun_states(graph_)) {
      Numbers states;
      for (Bytes bytes : saved_generator_states(graph_, shown.plan)) states.push_back(bytes.count());
      plan["generator_states"] = column(states);
    }
    if (content_.allocator) {
      const AllocatorPeaks peaks = simulate_allocator(graph_, shown.plan, *content_.allocator);
      plan["allocator"] = {{"name", to_string(*content_.allocator)},
                           {"allocated", peaks.allocated.count()},
                           {"reserved", peaks.reserved.count()}};
    }
    if (shown.host) add_host(plan, shown);
    if (!shown.measured.empty()) {
      Numbers measured;
      for (Bytes bytes : shown.measured) measured.push_back(bytes.count());
      plan["measured"] = column(measured);
    }
    plan["lives"] = {{"value", rising(value)},
                     {"first", rising(first)},
                     {"length", rising(length, contexts)},
                     {"kind", column(kind)}};
    return plan;
  }

  Json curve(const ReportCurve& curve) const {
    const SweepResult& sweep = curve.sweep;
    Json written;
    written["planner"] = curve.planner;
    written["order"] = to_string(curve.order);
    written["smallest_peak"] = sweep.smallest_peak.count();
    written["peak_bound"] = {{"bytes", sweep.peak_bound.peak.count()},
                             {"argument", sweep.peak_bound.argument}};
    written["apart"] = sweep.apart.count();
    written["stopped_by"] = sweep.stopped_by ? Json(to_string(*sweep.stopped_by)) : Json(nullptr);
    written["seconds"] = sweep.seconds;
    written["points"] = Json::array();
    for (const SweepPoint& point : sweep.points) {
      if (!point.result.plan) continue;
      written["points"].push_back({{"budget", point.budget.count()},
                                   {"peak", point.result.cost.peak.count()},
                                   {"duration", point.result.cost.duration.count()},
                                   {"bound", point.result.duration_bound.duration.count()},
                                   {"status", to_string(point.result.status)},
                                   {"knee", point.knee}});
    }
    return written;
  }

 private:
  Json column(const Numbers& numbers) const { return packed_ ? Json(pack(numbers)) : Json(numbers); }
  Json rising(const Numbers& numbers) const {
    return packed_ ? Json(pack_differences(numbers)) : Json(numbers);
  }
  Json rising(const Numbers& numbers, const std::vector<std::size_t>& contexts) const {
    return packed_ ? Json(pack_differences(numbers, contexts)) : Json(numbers);
  }

  /// The copies, their traffic, and the times of the steps with them.
  void add_host(Json& plan, const Shown& shown) const {
    const Traffic& traffic = shown.cost.traffic;
    const PlanTimes times = plan_times(graph_, shown.plan, shown.host);
    Numbers value, way, issue, wait, begin, end, start, memory;
    for (std::size_t i = 0; i < times.copies.size(); ++i) {
      const Copy& copy = shown.plan.copies[i];
      value.push_back(copy.value.index());
      way.push_back(copy.way == Way::kOut ? 0 : 1);
      issue.push_back(copy.issue.index());
      wait.push_back(copy.wait.index());
      begin.push_back(times.copies[i].begin.count());
      end.push_back(times.copies[i].end.count());
    }
    for (const TimeSpan& span : times.steps) start.push_back(span.begin.count());
    for (Bytes bytes : host_memory(graph_, shown.plan)) memory.push_back(bytes.count());
    plan["host"] = {{"out", shown.host->out},
                    {"in", shown.host->in},
                    {"latency_ns", shown.host->latency_ns},
                    {"budget", shown.host->budget ? Json(shown.host->budget->count()) : Json(nullptr)},
                    {"shared", shown.host->shared},
                    {"peak", traffic.host_peak.count()},
                    {"bytes_out", traffic.out.count()},
                    {"bytes_in", traffic.in.count()},
                    {"busy_out", traffic.busy_out.count()},
                    {"busy_in", traffic.busy_in.count()},
                    {"stalled", traffic.stalled.count()},
                    {"memory", column(memory)},
                    {"start", column(start)},
                    {"copies",
                     {{"value", column(value)},
                      {"way", column(way)},
                      {"issue", column(issue)},
                      {"wait", column(wait)},
                      {"begin", column(begin)},
                      {"end", column(end)}}}};
  }

  Json names_of_ops() const {
    std::vector<std::string_view> all;
    for (OpId op : graph_.ops()) all.push_back(graph_.op_name[op]);
    return names(all);
  }

  Json names_of_values() const {
    std::vector<std::string_view> all;
    bool any = false;
    for (ValueId value : graph_.values()) {
      all.push_back(graph_.value_name[value]);
      any |= !all.back().empty();
    }
    return names(any ? all : std::vector<std::string_view>());
  }

  Json names(const std::vector<std::string_view>& names) const {
    if (!packed_) return Json(names);
    const NamePatterns parts = name_patterns(names);
    return {{"patterns", parts.patterns},
            {"pattern", pack(parts.pattern)},
            {"numbers", pack_signed(parts.numbers)}};
  }

  const ReportContent& content_;
  const Graph& graph_;
  bool packed_;
  IndexVector<ValueId, std::size_t> context_of_value_;
};

}  // namespace

std::string json_text(const ReportContent& content, const ShownPlans& plans, bool packed) {
  const Writer writer(content, packed);
  Json report;
  report["format"] = "remat.report";
  report["version"] = 1;
  report["remat"] = REMAT_VERSION;
  report["command"] = content.command;
  report["memory_kinds"] = Json::array();
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
    report["memory_kinds"].push_back(to_string(static_cast<MemoryKind>(kind)));
  }
  // If no input is marked as a parameter, any may be one.
  if (std::none_of(content.graph->graph_inputs.begin(), content.graph->graph_inputs.end(),
                   [&](ValueId value) { return is_parameter(*content.graph, value); })) {
    report["memory_kinds"][at(MemoryKind::kInputs)] = "inputs and parameters";
  }
  // Without phases, activations cannot be told from other values.
  if (!has_phases(*content.graph)) report["memory_kinds"][at(MemoryKind::kActivations)] = "computed once";
  report["graph"] = writer.graph();
  report["plans"] = Json::array();
  for (const Shown& shown : plans.all()) report["plans"].push_back(writer.plan(shown));
  report["curves"] = Json::array();
  for (const ReportCurve& curve : content.curves) report["curves"].push_back(writer.curve(curve));
  return report.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace remat::report
