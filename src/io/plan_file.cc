#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/numbers.h"
#include "io/json_reader.h"
#include "io/json_text.h"
#include "remat/check.h"
#include "remat/io.h"

namespace remat {
namespace {

class Seed : public io::Element {
 public:
  std::string_view expected() const override { return "an integer in [0, 2^64)"; }
  void integer(io::Reader& reader, std::int64_t read) override {
    if (read < 0) Element::integer(reader, read);
    value = static_cast<std::uint64_t>(read);
  }
  void number(io::Reader& reader, double read, const std::string& text) override {
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || at != end) Element::number(reader, read, text);
  }
  std::uint64_t value = 0;
};

class Number : public io::Element {
 public:
  std::string_view expected() const override { return "a number"; }
  void null(io::Reader&) override { value.reset(); }
  void integer(io::Reader&, std::int64_t read) override { value = real(read); }
  void number(io::Reader&, double read, const std::string&) override { value = read; }
  std::optional<double> value;
};

class BoundsObject : public io::Object {
 public:
  BoundsObject() {
    optional("peak", peak);
    optional("duration", duration);
  }
  io::Count peak, duration;

 protected:
  std::string_view key_prefix() const override { return "bounds."; }
};

/// A value or a step within the range of ids; the validator checks whether it exists.
class Index : public io::Integer {
 public:
  void integer(io::Reader& reader, std::int64_t read) override {
    constexpr std::int64_t kEnd = std::int64_t{1} << 31;
    if (read < 0 || read >= kEnd - 1) {
      reader.fail("found " + std::to_string(read) + " instead of an index in [0, 2^31 - 1)");
    }
    value = read;
  }
};

class CopyObject : public io::Object {
 public:
  CopyObject() {
    required("value", value_);
    required("way", way_);
    required("issue", issue_);
    required("wait", wait_);
  }
  std::vector<Copy> copies;

 protected:
  std::string label() const override { return "copy " + std::to_string(copies.size()); }
  std::string_view key_prefix() const override { return "copies[]."; }
  void finish(io::Reader&) override {
    copies.push_back({ValueId(value_.value), way_.value == 0 ? Way::kOut : Way::kIn, StepId(issue_.value),
                      StepId(wait_.value)});
  }

 private:
  Index value_, issue_, wait_;
  io::Choice way_{{to_string(Way::kOut), to_string(Way::kIn)}};
};

class HostObject : public io::Object {
 public:
  HostObject() {
    required("out", out_);
    required("in", in_);
    optional("latency_ns", latency_);
    optional("budget", budget_);
    optional("shared", shared_);
  }
  Host host() const {
    return {.out = out_.value.value_or(1),
            .in = in_.value.value_or(1),
            .latency_ns = latency_.value.value_or(0),
            .budget = budget_.as<Bytes>(),
            .shared = shared_.value};
  }

 protected:
  std::string_view key_prefix() const override { return "machine."; }
  void finish(io::Reader& reader) override {
    for (const io::Count* bandwidth : {&out_, &in_}) {
      if (bandwidth->value.value_or(0) == 0) reader.fail("the machine: a bandwidth must be positive");
    }
  }

 private:
  io::Count out_, in_, latency_, budget_;
  io::Flag shared_;
};

/// Options of a planner: any keys, texts as values.
class OptionsObject : public io::Element {
 public:
  std::string_view expected() const override { return "an object of texts"; }
  void reset() override { values.clear(); }
  void begin_object(io::Reader&) override { values.clear(); }
  std::string where() const override { return key_; }
  io::Element& member(io::Reader&, const std::string& key) override {
    key_ = "'" + key + "'";
    each_.into = &values[key];
    return each_;
  }
  std::map<std::string, std::string> values;

 private:
  struct Each : io::Element {
    std::string_view expected() const override { return "a text"; }
    void text(io::Reader&, std::string& read) override { into->swap(read); }
    std::string* into = nullptr;
  };
  Each each_;
  std::string key_;
};

class RequestObject : public io::Object {
 public:
  RequestObject() {
    optional("remat", version_);
    optional("planner", planner_);
    optional("objective", objective_);
    optional("time_limit", time_limit_);
    optional("work_limit", work_limit_);
    optional("gap_limit", gap_limit_);
    optional("threads", threads_);
    optional("options", options_);
  }
  PlanRequest request() const {
    constexpr std::int64_t kMostThreads = 1 << 16;
    return {.version = version_.value,
            .planner = planner_.value,
            .objective = objective_.value == 0 ? Objective::kTime : Objective::kPeak,
            .time_limit = time_limit_.value,
            .work_limit = work_limit_.value,
            .gap_limit = gap_limit_.value.value_or(0),
            .threads = static_cast<int>(std::min(threads_.value.value_or(1), kMostThreads)),
            .options = options_.values};
  }

 protected:
  std::string_view key_prefix() const override { return "request."; }

 private:
  io::Text version_, planner_;
  io::Choice objective_{{"time", "peak"}};
  Number time_limit_, gap_limit_;
  io::Count work_limit_, threads_;
  OptionsObject options_;
};

class PlanDocument : public io::Object {
 public:
  PlanDocument() {
    required("format", format_);
    required("version", version_);
    optional("graph", graph_);
    optional("graph_hash", graph_hash_);
    optional("budget", budget_);
    optional("order", order_);
    optional("planner", planner_);
    optional("seed", seed_);
    optional("status", status_);
    optional("peak", peak_);
    optional("duration", duration_);
    optional("overhead", overhead_);
    optional("bounds", bounds_);
    optional("request", request_);
    required("steps", steps_);
    optional("copies", copies_);
    optional("machine", host_);
  }
  PlanRecord record() {
    PlanRecord plan;
    plan.graph_name = graph_.value;
    plan.graph_hash = graph_hash_.value;
    plan.budget = budget_.as<Bytes>();
    // Without a stated order, a plan claims none.
    plan.order = has("order") && order_.value == 0 ? OrderMode::kFixed : OrderMode::kFree;
    plan.planner = planner_.value;
    plan.seed = seed_.value;
    if (has("status")) plan.status = status_.word();
    plan.peak = peak_.as<Bytes>();
    plan.duration = duration_.as<Duration>();
    plan.overhead = overhead_.value;
    plan.peak_bound = bounds_.peak.as<Bytes>();
    plan.duration_bound = bounds_.duration.as<Duration>();
    plan.steps = std::move(steps_.values);
    plan.copies = std::move(copy_.copies);
    if (has("machine")) plan.host = host_.host();
    if (has("request")) plan.request = request_.request();
    return plan;
  }

 private:
  io::FormatName format_{"remat.plan"};
  io::FormatVersion version_{2};
  io::Text graph_, graph_hash_, planner_;
  io::Count budget_, peak_, duration_;
  io::Choice order_{{"fixed", "free"}};
  Seed seed_;
  io::Choice status_{{"optimal", "feasible", "infeasible", "unknown"}};
  Number overhead_;
  BoundsObject bounds_;
  RequestObject request_;
  io::IntegerList steps_;
  CopyObject copy_;
  io::Array copies_{copy_};
  HostObject host_;
};

void append_copies(std::string& text, const std::vector<Copy>& copies) {
  text += "],\n\"copies\":[";
  for (std::size_t i = 0; i < copies.size(); ++i) {
    const Copy& copy = copies[i];
    text += i > 0 ? ",\n{\"value\":" : "\n{\"value\":";
    text += std::to_string(copy.value.index()) + ",\"way\":\"" + std::string(to_string(copy.way)) +
            "\",\"issue\":" + std::to_string(copy.issue.index()) +
            ",\"wait\":" + std::to_string(copy.wait.index()) + "}";
  }
}

void append_request(std::string& text, const PlanRequest& request) {
  const auto spelled = [](std::optional<double> x) {
    return x && std::isfinite(*x) ? io::spell(*x) : "null";
  };
  text += ",\n\"request\":{\"remat\":" + io::quoted(request.version);
  text += ",\"planner\":" + io::quoted(request.planner);
  text += ",\"objective\":\"" + std::string(to_string(request.objective)) +
          "\",\"time_limit\":" + spelled(request.time_limit) +
          ",\"work_limit\":" + (request.work_limit ? std::to_string(*request.work_limit) : "null") +
          ",\"gap_limit\":" + spelled(request.gap_limit) + ",\"threads\":" + std::to_string(request.threads) +
          ",\"options\":{";
  const char* between = "";
  for (const auto& [name, value] : request.options) {
    text += between;
    text += io::quoted(name);
    text += ":" + io::quoted(value);
    between = ",";
  }
  text += "}}";
}

void append_host(std::string& text, const Host& host) {
  text += ",\n\"machine\":{\"out\":" + std::to_string(host.out) + ",\"in\":" + std::to_string(host.in) +
          ",\"latency_ns\":" + std::to_string(host.latency_ns) + ",\"budget\":" + io::spell(host.budget) +
          ",\"shared\":" + (host.shared ? "true}" : "false}");
}

}  // namespace

PlanRecord parse_plan(std::string_view text, std::string_view place) {
  PlanDocument document;
  io::Reader reader(text, place);
  reader.read(document);
  PlanRecord plan = document.record();
  if (std::string line = reader.unknown_keys(); !line.empty()) plan.warnings.push_back(std::move(line));
  return plan;
}

PlanRecord load_plan(const std::filesystem::path& path) {
  const std::string text = read_file(path, FileKind::kPlan);
  return parse_plan(text, path.string());
}

std::string format_plan(const PlanRecord& plan) {
  // Plans without copies keep version 1, for older readers.
  std::string text = "{\"format\":\"remat.plan\",\"version\":";
  text += plan.copies.empty() ? "1" : "2";
  text += ",\"graph\":" + io::quoted(plan.graph_name);
  text += ",\"graph_hash\":" + io::quoted(plan.graph_hash);
  text += ",\"budget\":" + io::spell(plan.budget) + ",\"order\":\"" + std::string(to_string(plan.order)) +
          "\",\"planner\":";
  text += io::quoted(plan.planner);
  text += ",\"seed\":" + std::to_string(plan.seed);
  if (!plan.status.empty()) {
    text += ",\"status\":" + io::quoted(plan.status);
  }
  text += ",\n\"peak\":" + io::spell(plan.peak) + ",\"duration\":" + io::spell(plan.duration) +
          ",\"overhead\":" +
          (plan.overhead && std::isfinite(*plan.overhead) ? io::spell(*plan.overhead) : "null") +
          ",\"bounds\":{\"peak\":" + io::spell(plan.peak_bound) +
          ",\"duration\":" + io::spell(plan.duration_bound) + "}";
  if (plan.request) append_request(text, *plan.request);
  text += ",\n\"steps\":[";
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(plan.steps[i]);
  }
  if (!plan.copies.empty()) append_copies(text, plan.copies);
  text += "]";
  if (!plan.copies.empty() && plan.host) append_host(text, *plan.host);
  text += "}\n";
  REMAT_ASSERT_HEAVY(parse_plan(text, "what was written").steps == plan.steps, plan.steps.size());
  REMAT_ASSERT_HEAVY(parse_plan(text, "what was written").copies == plan.copies, plan.copies.size());
  return text;
}

void save_plan(const PlanRecord& plan, const std::filesystem::path& path) {
  write_file(path, format_plan(plan), FileKind::kPlan);
}

}  // namespace remat
