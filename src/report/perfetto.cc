// Counters and slices in the trace event format, which ui.perfetto.dev and chrome://tracing open. A plan is a
// process: its steps are slices in two threads (first runs, recomputations), its memory a counter by kind.
#include <nlohmann/json.hpp>

#include "base/numbers.h"
#include "io/json_text.h"
#include "report/plans.h"

namespace remat::report {
namespace {

/// Microseconds in one unit of the graph; a graph without a unit of time counts in microseconds.
double microseconds(const Graph& graph) {
  if (graph.time_unit == "ns") return 1e-3;
  if (graph.time_unit == "ms") return 1e3;
  return graph.time_unit == "s" ? 1e6 : 1;
}

class Trace {
 public:
  explicit Trace(const Graph& graph) : graph_(graph), unit_(microseconds(graph)) {}

  void add_plan(const Shown& shown, int process) {
    process_ = "\"pid\":" + std::to_string(process);
    add_name("process_name", 0, shown.title);
    add_name("thread_name", 1, "first runs");
    add_name("thread_name", 2, "computed again");
    const auto memory = memory_by_kind(graph_, shown.plan);
    const PlanTimes times = plan_times(graph_, shown.plan, shown.host);
    IndexVector<OpId, bool> ran(graph_.num_ops());
    for (StepId step : shown.plan.steps.ids()) {
      const OpId op = shown.plan.steps[step];
      const std::int64_t time = times.steps[step].begin.count();
      add_counter(time, memory[step]);
      if (!shown.measured.empty()) add_measured(time, shown.measured[at(step)]);
      add_slice(time, step, op, ran[op] ? 2 : 1);
      ran[op] = true;
    }
    add_counter(shown.cost.duration.count(), KindSums{});
    if (!shown.measured.empty()) add_measured(shown.cost.duration.count(), Bytes());
    if (shown.host) add_copies(shown, times);
  }
  std::string finish() { return text_ + "\n],\"displayTimeUnit\":\"ms\"}\n"; }

 private:
  std::string& begin() { return text_ += std::exchange(is_first_, false) ? "\n{" : ",\n{"; }
  void add_name(std::string_view what, int thread, std::string_view name) {
    begin() += "\"ph\":\"M\",\"name\":\"" + std::string(what) + "\"," + process_ +
               ",\"tid\":" + std::to_string(thread) + ",\"args\":{\"name\":";
    text_ += io::quoted(name);
    text_ += "}}";
  }
  std::string at_time(std::int64_t time) const { return io::spell(unit_ * real(time)); }
  void add_counter(std::int64_t time, const KindSums& sums) {
    begin() += "\"ph\":\"C\",\"name\":\"memory\"," + process_ + ",\"ts\":" + at_time(time) + ",\"args\":{";
    for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
      text_ += (kind == 0 ? "\"" : ",\"") + std::string(to_string(static_cast<MemoryKind>(kind))) +
               "\":" + std::to_string(sums[kind].count());
    }
    text_ += "}}";
  }
  void add_measured(std::int64_t time, Bytes bytes) { add_amount("measured memory", time, bytes); }
  void add_amount(std::string_view name, std::int64_t time, Bytes bytes) {
    begin() += "\"ph\":\"C\",\"name\":\"" + std::string(name) + "\"," + process_ +
               ",\"ts\":" + at_time(time) + ",\"args\":{\"bytes\":" + std::to_string(bytes.count()) + "}}";
  }
  /// Each way is a thread, and host memory a counter.
  void add_copies(const Shown& shown, const PlanTimes& times) {
    add_name("thread_name", 3, "copies to the host");
    add_name("thread_name", 4, "copies back");
    for (std::size_t i = 0; i < times.copies.size(); ++i) {
      const Copy& copy = shown.plan.copies[i];
      const TimeSpan& span = times.copies[i];
      begin() += "\"ph\":\"X\"," + process_ + ",\"tid\":" + (copy.way == Way::kOut ? "3" : "4") +
                 ",\"ts\":" + at_time(span.begin.count()) +
                 ",\"dur\":" + at_time((span.end - span.begin).count()) + ",\"name\":";
      text_ += io::quoted(name_of(copy.value));
      text_ += ",\"cat\":\"copy\",\"args\":{\"bytes\":" + std::to_string(graph_.bytes[copy.value].count()) +
               ",\"issue\":" + std::to_string(copy.issue.index()) +
               ",\"wait\":" + std::to_string(copy.wait.index()) + "}}";
    }
    const auto on_host = host_memory(graph_, shown.plan);
    for (StepId step : shown.plan.steps.ids()) {
      add_amount("host memory", times.steps[step].begin.count(), on_host[step]);
    }
    add_amount("host memory", shown.cost.duration.count(), Bytes());
  }
  std::string name_of(ValueId value) const {
    const std::string_view name = graph_.value_name[value];
    return name.empty() ? "value " + std::to_string(value.index()) : std::string(name);
  }
  void add_slice(std::int64_t time, StepId step, OpId op, int thread) {
    begin() += "\"ph\":\"X\"," + process_ + ",\"tid\":" + std::to_string(thread) +
               ",\"ts\":" + at_time(time) + ",\"dur\":" + at_time(graph_.duration[op].count()) + ",\"name\":";
    text_ += io::quoted(graph_.op_name[op]);
    text_ += ",\"cat\":" + io::quoted(graph_.op_kind[op]);
    text_ += ",\"args\":{\"step\":" + std::to_string(step.index()) + ",\"op\":" + std::to_string(op.index()) +
             ",\"module\":";
    text_ += io::quoted(graph_.op_module[op]);
    text_ += ",\"source\":" + io::quoted(graph_.op_source[op]);
    text_ += "}}";
  }

  const Graph& graph_;
  double unit_;
  bool is_first_ = true;
  std::string process_, text_ = "{\"traceEvents\":[";
};

}  // namespace

std::string perfetto_text(const Graph& graph, const ShownPlans& plans) {
  Trace trace(graph);
  int process = 0;
  for (const Shown& shown : plans.all()) trace.add_plan(shown, ++process);
  return trace.finish();
}

}  // namespace remat::report
