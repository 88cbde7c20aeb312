// Results as tuples and back, for pickles.
#include "planning.h"

namespace remat::python {
namespace {

using Counts = std::vector<std::int64_t>;

Counts packed_cost(const Simulation& cost) {
  const Traffic& t = cost.traffic;
  return {cost.peak.count(), cost.peak_step.index(), cost.duration.count(), t.stalled.count(),  t.out.count(),
          t.in.count(),      t.busy_out.count(),     t.busy_in.count(),     t.host_peak.count()};
}

Simulation unpacked_cost(const Counts& c) {
  return {.peak = Bytes(c.at(0)),
          .peak_step = StepId(c.at(1)),
          .duration = Duration(c.at(2)),
          .traffic = {.stalled = Duration(c.at(3)),
                      .out = Bytes(c.at(4)),
                      .in = Bytes(c.at(5)),
                      .busy_out = Duration(c.at(6)),
                      .busy_in = Duration(c.at(7)),
                      .host_peak = Bytes(c.at(8))}};
}

template <class T>
std::int64_t number_of(T word) {
  return static_cast<std::int64_t>(word);
}

using LoggedCounts = std::optional<Counts>;

LoggedCounts packed_logged(const std::optional<LoggedPlan>& p) {
  if (!p) return std::nullopt;
  return Counts{p->duration.count(), p->peak.count(), p->within_budget};
}

std::optional<LoggedPlan> unpacked_logged(const LoggedCounts& c) {
  if (!c) return std::nullopt;
  return LoggedPlan{Duration(c->at(0)), Bytes(c->at(1)), c->at(2) != 0};
}

nb::list packed_log(const std::vector<LogEntry>& log) {
  nb::list entries;
  for (const LogEntry& e : log) {
    entries.append(nb::make_tuple(e.seconds, e.work, e.round, e.arm, packed_logged(e.before),
                                  packed_logged(e.after), e.bound.count()));
  }
  return entries;
}

std::vector<LogEntry> unpacked_log(nb::handle entries) {
  std::vector<LogEntry> log;
  for (nb::handle entry : nb::cast<nb::list>(entries)) {
    const auto t = nb::cast<nb::tuple>(entry);
    log.push_back({nb::cast<double>(t[0]), nb::cast<std::int64_t>(t[1]), nb::cast<int>(t[2]),
                   nb::cast<std::string>(t[3]), unpacked_logged(nb::cast<LoggedCounts>(t[4])),
                   unpacked_logged(nb::cast<LoggedCounts>(t[5])), Duration(nb::cast<std::int64_t>(t[6]))});
  }
  return log;
}

/// `result.plan` is packed as a record beside it.
nb::tuple packed_outcome(const PlanResult& r) {
  return nb::make_tuple(number_of(r.status), number_of(r.stopped_by), r.planner, r.known, number_of(r.order),
                        packed_cost(r.cost), r.peak_bound.argument, r.peak_bound.peak.count(),
                        r.peak_bound.op.index(), r.duration_bound.argument, r.duration_bound.duration.count(),
                        r.counters, r.seconds, packed_log(r.log));
}

PlanResult unpacked_outcome(nb::tuple t, const std::optional<PlanRecord>& record) {
  PlanResult r;
  r.status = static_cast<Status>(nb::cast<int>(t[0]));
  r.stopped_by = static_cast<StoppedBy>(nb::cast<int>(t[1]));
  r.planner = nb::cast<std::string>(t[2]);
  r.known = nb::cast<bool>(t[3]);
  r.order = static_cast<OrderMode>(nb::cast<int>(t[4]));
  r.cost = unpacked_cost(nb::cast<Counts>(t[5]));
  r.peak_bound = {nb::cast<std::string>(t[6]), Bytes(nb::cast<std::int64_t>(t[7])),
                  OpId(nb::cast<std::int64_t>(t[8]))};
  r.duration_bound = {nb::cast<std::string>(t[9]), Duration(nb::cast<std::int64_t>(t[10]))};
  r.counters = nb::cast<Counters>(t[11]);
  r.seconds = nb::cast<double>(t[12]);
  r.log = unpacked_log(t[13]);
  if (record) r.plan = recorded_plan(*record);
  return r;
}

std::optional<PlanRecord> unpacked_record(nb::handle text) {
  if (text.is_none()) return std::nullopt;
  return with_fault<PlanFault>([&] { return parse_plan(nb::cast<std::string>(text), "pickled plan"); });
}

nb::tuple packed_effort(const Effort& e) {
  std::vector<std::pair<std::string, std::string>> set(e.options.set.begin(), e.options.set.end());
  return nb::make_tuple(e.options.seed, e.options.threads, set, e.time_limit, e.work_limit, e.gap);
}

Effort unpacked_effort(nb::tuple t) {
  Effort e;
  e.options.seed = nb::cast<std::uint64_t>(t[0]);
  e.options.threads = nb::cast<int>(t[1]);
  for (const auto& [name, text] : nb::cast<std::vector<std::pair<std::string, std::string>>>(t[2])) {
    e.options.set[name] = text;
  }
  e.time_limit = nb::cast<std::optional<double>>(t[3]);
  e.work_limit = nb::cast<std::optional<std::int64_t>>(t[4]);
  e.gap = nb::cast<double>(t[5]);
  return e;
}

nb::tuple packed_question(const Question& q) {
  std::vector<std::pair<std::string, std::string>> options;
  for (const OptionInfo& option : request_options()) {
    options.emplace_back(option.name, option_of(q.request, option.name));
  }
  return nb::make_tuple(q.graph_object, count_of(q.budget), q.asked_budget, options, q.request.problem.host,
                        q.request.planner, packed_effort(q.request.effort));
}

Question unpacked_question(nb::tuple t) {
  Question q;
  q.graph_object = nb::object(t[0]);
  if (const auto bytes = nb::cast<std::optional<std::int64_t>>(t[1])) q.budget = Bytes(*bytes);
  q.asked_budget = nb::cast<std::string>(t[2]);
  for (const auto& [name, text] : nb::cast<std::vector<std::pair<std::string, std::string>>>(t[3])) {
    set_option(q.request, name, text);
  }
  q.request.planner = nb::cast<std::string>(t[5]);
  q.request.effort = unpacked_effort(nb::cast<nb::tuple>(t[6]));
  Problem& problem = q.request.problem;
  problem.graph = &nb::cast<const Graph&>(q.graph_object);
  problem.budget = q.budget.value_or(kNoBudget);
  problem.host = nb::cast<std::optional<Host>>(t[4]);
  return q;
}

nb::object packed_executor(const std::optional<ExecutorPlan>& executor) {
  if (!executor) return nb::none();
  std::vector<std::pair<std::string, Counts>> regions;
  for (const CheckpointRegion& region : executor->regions) {
    Counts& again = regions.emplace_back(region.name, Counts()).second;
    for (OpId op : region.again) again.push_back(op.index());
  }
  Counts saved;
  for (ValueId v : executor->saved) saved.push_back(v.index());
  return nb::make_tuple(std::string(to_string(executor->executor)), regions, saved);
}

/// The parts that `remat.PlanResult` shows.
std::optional<ExecutorPlan> unpacked_executor(nb::handle state) {
  if (state.is_none()) return std::nullopt;
  const auto t = nb::cast<nb::tuple>(state);
  ExecutorPlan executor;
  executor.executor = parse_executor(nb::cast<std::string>(t[0]));
  for (const auto& [name, ops] : nb::cast<std::vector<std::pair<std::string, Counts>>>(t[1])) {
    CheckpointRegion& region = executor.regions.emplace_back();
    region.name = name;
    for (const std::int64_t op : ops) region.again.emplace_back(op);
  }
  for (const std::int64_t value : nb::cast<Counts>(t[2])) executor.saved.emplace_back(value);
  return executor;
}

nb::object packed_peaks(const std::optional<AllocatorPeaks>& p) {
  if (!p) return nb::none();
  return nb::make_tuple(p->requested.count(), p->allocated.count(), p->reserved.count(), p->steps,
                        p->is_steady);
}

std::optional<AllocatorPeaks> unpacked_peaks(nb::handle state) {
  if (state.is_none()) return std::nullopt;
  const auto t = nb::cast<nb::tuple>(state);
  return AllocatorPeaks{Bytes(nb::cast<std::int64_t>(t[0])), Bytes(nb::cast<std::int64_t>(t[1])),
                        Bytes(nb::cast<std::int64_t>(t[2])), nb::cast<int>(t[3]), nb::cast<bool>(t[4])};
}

template <class Record>
nb::object text_of(const std::optional<Record>& record, std::string (*format)(const Record&)) {
  return record ? nb::cast(format(*record)) : nb::none();
}

}  // namespace

nb::tuple packed(const BoundResult& r) {
  return nb::make_tuple(packed_question(r.question), packed_outcome(r.result), text_of(r.record, format_plan),
                        r.keep_all_peak.count(), r.floor.count(), count_of(r.smallest_known),
                        text_of(r.layout, format_layout), packed_peaks(r.peaks),
                        packed_executor(r.executor_plan), r.full);
}

BoundResult unpacked(nb::tuple t) {
  BoundResult r;
  r.question = unpacked_question(nb::cast<nb::tuple>(t[0]));
  r.record = unpacked_record(nb::object(t[2]));
  r.result = unpacked_outcome(nb::cast<nb::tuple>(t[1]), r.record);
  r.keep_all_peak = Bytes(nb::cast<std::int64_t>(t[3]));
  r.floor = Bytes(nb::cast<std::int64_t>(t[4]));
  if (const auto known = nb::cast<std::optional<std::int64_t>>(t[5])) r.smallest_known = Bytes(*known);
  if (const auto text = nb::cast<std::optional<std::string>>(t[6])) {
    r.layout = with_fault<PlanFault>([&] { return parse_layout(*text, "pickled layout"); });
  }
  r.peaks = unpacked_peaks(nb::object(t[7]));
  r.executor_plan = unpacked_executor(nb::object(t[8]));
  r.full = nb::object(t[9]);
  return r;
}

nb::tuple packed_point(const BoundPoint& p) {
  return nb::make_tuple(p.budget.count(), format_plan(p.record), p.duration_bound.argument,
                        p.duration_bound.duration.count(), p.knee);
}

BoundPoint unpacked_point(nb::tuple t) {
  return {Bytes(nb::cast<std::int64_t>(t[0])),
          *unpacked_record(nb::object(t[1])),
          {nb::cast<std::string>(t[2]), Duration(nb::cast<std::int64_t>(t[3]))},
          nb::cast<bool>(t[4])};
}

nb::tuple packed_sweep(const BoundSweep& s) {
  nb::list points;
  for (std::size_t i = 0; i < s.points.size(); ++i) {
    points.append(nb::make_tuple(packed_point(s.points[i]), packed_outcome(s.result.points[i].result)));
  }
  const nb::object stopped_by =
      s.result.stopped_by ? nb::cast(number_of(*s.result.stopped_by)) : nb::object(nb::none());
  return nb::make_tuple(s.planner, number_of(s.order), s.base_duration.count(), points,
                        s.result.keep_all_peak.count(), s.result.peak_bound.argument,
                        s.result.peak_bound.peak.count(), s.result.peak_bound.op.index(),
                        s.result.smallest_peak.count(), s.result.apart.count(), stopped_by, s.result.seconds);
}

BoundSweep unpacked_sweep(nb::tuple t) {
  const auto bytes = [&t](int at) { return Bytes(nb::cast<std::int64_t>(t[at])); };
  BoundSweep s{nb::cast<std::string>(t[0]),
               static_cast<OrderMode>(nb::cast<int>(t[1])),
               Duration(nb::cast<std::int64_t>(t[2])),
               {},
               {}};
  for (nb::handle state : nb::list(t[3])) {
    const auto pair = nb::cast<nb::tuple>(state);
    const BoundPoint& point = s.points.emplace_back(unpacked_point(nb::cast<nb::tuple>(pair[0])));
    s.result.points.push_back(
        {point.budget, unpacked_outcome(nb::cast<nb::tuple>(pair[1]), point.record), point.knee});
  }
  s.result.keep_all_peak = bytes(4);
  s.result.peak_bound = {nb::cast<std::string>(t[5]), bytes(6), OpId(nb::cast<std::int64_t>(t[7]))};
  s.result.smallest_peak = bytes(8);
  s.result.apart = bytes(9);
  if (const auto reason = nb::cast<std::optional<std::int64_t>>(t[10])) {
    s.result.stopped_by = static_cast<StoppedBy>(*reason);
  }
  s.result.seconds = nb::cast<double>(t[11]);
  return s;
}

}  // namespace remat::python
