// HTML of graphs, plans and curves for notebook cells: facts and a picture, no scripts, the page's colours.
#include <algorithm>
#include <array>
#include <string>

#include "base/numbers.h"
#include "remat/bounds.h"
#include "remat/keep_all.h"
#include "remat/report.h"

namespace remat {
namespace {

constexpr double kWidth = 640, kHeight = 200;
constexpr double kLeft = 74, kRight = 12, kTop = 16, kBottom = 24;
/// The colours of page/src/style.css.
constexpr std::array<const char*, kMemoryKinds> kColours{
    "#7f868e", "#bcc2c8", "#0072b2", "#56b4e9", "#d55e00", "#cc79a7", "#f0d858", "#e69f00", "#009e73"};
constexpr const char* kGray = "#808890";
constexpr const char* kRed = "#c5382f";
constexpr const char* kGreen = "#0b8f66";

std::string escaped(std::string_view text) {
  std::string safe;
  for (char c : text) {
    if (c == '<') {
      safe += "&lt;";
    } else if (c == '&') {
      safe += "&amp;";
    } else if (c == '"') {
      safe += "&quot;";
    } else {
      safe += c;
    }
  }
  return safe;
}

/// One decimal, the precision of a screen.
std::string spelled(double number) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%.1f", number);
  return text.data();
}

std::string percent(double ratio) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), "%.3g %%", 100 * ratio);
  return text.data();
}

/// The drawing area with its scales.
class Canvas {
 public:
  Canvas(std::string_view label, double from, double to, double top)
      : from_(from),
        wide_(std::max(to - from, 1e-9)),
        top_(std::max(top, 1e-9)),
        text_("<svg viewBox=\"0 0 " + spelled(kWidth) + " " + spelled(kHeight) +
              "\" style=\"max-width:640px;width:100%\" role=\"img\" font-family=\"system-ui,sans-serif\" "
              "font-size=\"11\" fill=\"currentColor\" aria-label=\"" +
              escaped(label) + "\">") {}

  double x(double at) const { return kLeft + (at - from_) / wide_ * (kWidth - kLeft - kRight); }
  double y(double at) const { return kHeight - kBottom - at / top_ * (kHeight - kTop - kBottom); }
  std::string place(double at, double height) const { return spelled(x(at)) + "," + spelled(y(height)); }

  void area(const std::string& points, const std::string& colour) {
    text_ += "<polygon points=\"" + points + "\" fill=\"" + colour + "\"/>";
  }
  void curve(const std::string& points, const std::string& colour) {
    text_ +=
        "<polyline points=\"" + points + "\" fill=\"none\" stroke=\"" + colour + "\" stroke-width=\"2\"/>";
  }
  void dot(double at, double height, const std::string& colour, double radius) {
    text_ += "<circle cx=\"" + spelled(x(at)) + "\" cy=\"" + spelled(y(height)) + "\" r=\"" +
             spelled(radius) + "\" fill=\"" + colour + "\"/>";
  }
  /// A dashed line across, its name above its right end.
  void level(double height, const std::string& name, const std::string& colour) {
    text_ += "<path d=\"M" + spelled(kLeft) + " " + spelled(y(height)) + "H" + spelled(kWidth - kRight) +
             "\" stroke=\"" + colour + "\" stroke-dasharray=\"5 4\"/>";
    write(kWidth - kRight, y(height) - 4, name, "end", colour);
  }
  void write(double left, double top, const std::string& text, const char* anchor,
             const std::string& colour = "currentColor") {
    text_ += "<text x=\"" + spelled(left) + "\" y=\"" + spelled(top) + "\" text-anchor=\"" + anchor +
             "\" fill=\"" + colour + "\">" + escaped(text) + "</text>";
  }
  void left_axis(double height, const std::string& text) { write(kLeft - 6, y(height) + 4, text, "end"); }
  void below(double at, const std::string& text, const char* anchor) {
    write(x(at), kHeight - 8, text, anchor);
  }
  std::string finish() { return text_ + "</svg>"; }

 private:
  double from_, wide_, top_;
  std::string text_;
};

/// Rows of names and values.
class Facts {
 public:
  void add(std::string_view name, const std::string& value) {
    text_ += "<tr><th style=\"text-align:left;font-weight:400;opacity:.7\">" + escaped(name) +
             "</th><td style=\"text-align:left\">" + escaped(value) + "</td></tr>";
  }
  std::string finish() const { return "<table>" + text_ + "</table>"; }

 private:
  std::string text_;
};

std::string cell(std::string_view title, const std::string& body) {
  return "<div class=\"remat\"><b>" + escaped(title) + "</b>" + body + "</div>";
}

std::string legend(const std::array<bool, kMemoryKinds>& shown) {
  std::string text = "<div style=\"font-size:12px\">";
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
    if (!shown[kind]) continue;
    text +=
        "<span style=\"white-space:nowrap;margin-right:1em\"><i style=\"display:inline-block;width:.8em;"
        "height:.8em;border-radius:2px;margin-right:.35em;background:" +
        std::string(kColours[kind]) + "\"></i>" + std::string(to_string(static_cast<MemoryKind>(kind))) +
        "</span>";
  }
  return text + "</div>";
}

Bytes sum_of(const KindSums& sums) {
  Bytes sum;
  for (Bytes bytes : sums) sum += bytes;
  return sum;
}

/// As many steps as a screen can show, each the peak of those it represents.
std::vector<StepId> fullest_steps(const IndexVector<StepId, KindSums>& memory) {
  constexpr std::size_t kMost = 320;
  const std::size_t steps = memory.size(), count = std::min(steps, kMost);
  std::vector<StepId> shown;
  for (std::size_t bucket = 0; bucket < count; ++bucket) {
    std::size_t best = bucket * steps / count;
    for (std::size_t i = best; i < (bucket + 1) * steps / count; ++i) {
      const auto bytes = [&](std::size_t at) { return sum_of(memory[StepId(narrow<std::int64_t>(at))]); };
      if (bytes(i) > bytes(best)) best = i;
    }
    shown.emplace_back(narrow<std::int64_t>(best));
  }
  return shown;
}

/// Memory by step, stacked by what it is for.
std::string memory_picture(const Graph& graph, const Plan& plan, std::optional<Bytes> budget) {
  const auto memory = memory_by_kind(graph, plan);
  const std::vector<StepId> shown = fullest_steps(memory);
  if (shown.empty()) return "";
  Bytes peak;
  for (StepId step : shown) peak = std::max(peak, sum_of(memory[step]));
  const Bytes keep_all = keep_all_peak(graph);
  const double top = 1.05 * real(std::max({peak, keep_all, budget.value_or(Bytes())}).count());
  Canvas canvas("Memory by step, the peak is " + format_bytes(peak), 0, real(shown.size()), top);
  std::array<bool, kMemoryKinds> is_shown{};
  std::vector<Bytes> below(shown.size());
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
    std::string outline;  // along the bottom to the end, and back along the top
    const auto go_to = [&](std::size_t at, Bytes height) {
      outline += canvas.place(real(at), real(height.count())) + " ";
    };
    for (std::size_t i = 0; i < shown.size(); ++i) {
      go_to(i, below[i]);
      go_to(i + 1, below[i]);
      below[i] += memory[shown[i]][kind];
      is_shown[kind] = is_shown[kind] || memory[shown[i]][kind] > Bytes();
    }
    for (std::size_t i = shown.size(); i-- > 0;) {
      go_to(i + 1, below[i]);
      go_to(i, below[i]);
    }
    if (is_shown[kind]) canvas.area(outline, kColours[kind]);
  }
  canvas.level(real(keep_all.count()), "keep-all peak", kGray);
  if (budget) canvas.level(real(budget->count()), "budget", kRed);
  canvas.left_axis(0, "0");
  canvas.left_axis(real(peak.count()), format_bytes(peak));
  canvas.below(0, "step 0", "start");
  canvas.below(real(shown.size()), std::to_string(memory.size() - 1), "end");
  return canvas.finish() + legend(is_shown);
}

Facts facts_of(const PlanRecord& record) {
  Facts facts;
  if (record.budget) facts.add("budget", format_bytes(*record.budget));
  if (record.peak) facts.add("peak", format_bytes(*record.peak));
  if (record.overhead) facts.add("more time", percent(*record.overhead));
  facts.add("steps", std::to_string(record.steps.size()));
  if (!record.status.empty()) facts.add("status", record.status);
  if (!record.planner.empty()) facts.add("planner", record.planner);
  if (record.peak_bound) facts.add("no plan is below", format_bytes(*record.peak_bound));
  return facts;
}

}  // namespace

std::string notebook_html(const Graph& graph) {
  Facts facts;
  facts.add("ops, values", std::to_string(graph.num_ops()) + ", " + std::to_string(graph.num_values()));
  facts.add("keep-all peak", format_bytes(keep_all_peak(graph)));
  facts.add("floor", format_bytes(floor_bound(graph).peak));
  facts.add("every op once",
            std::to_string(graph.base_duration.count()) + " " + std::string(graph.time_unit));
  return cell("Graph " + std::string(graph.name),
              facts.finish() + memory_picture(graph, keep_all_plan(graph), std::nullopt));
}

std::string notebook_html(const PlanRecord& plan) {
  return cell("Plan of " + plan.graph_name, facts_of(plan).finish());
}

std::string notebook_html(const Graph& graph, const PlanRecord& record) {
  return cell("Plan of " + std::string(graph.name),
              facts_of(record).finish() + memory_picture(graph, recorded_plan(record), record.budget));
}

std::string notebook_html(const SweepResult& sweep, Duration base, Bytes beside) {
  const auto overhead_of = [&](Duration duration) {
    return base > Duration() ? std::max(0.0, real(duration.count()) / real(base.count()) - 1) : 0.0;
  };
  std::vector<const SweepPoint*> points;  // by rising budget
  for (const SweepPoint& point : sweep.points) {
    if (point.result.plan) points.insert(points.begin(), &point);
  }
  if (points.empty()) return cell("Sweep", "<p>no plan was found</p>");
  const auto bytes = [&](Bytes budget) { return real((budget + beside).count()); };
  const double most = overhead_of(points.front()->result.cost.duration);
  const double top = 1.15 * std::max(most, 0.01);
  const Bytes low = std::min(sweep.peak_bound.peak, sweep.smallest_peak);
  Canvas canvas("Overhead against memory", bytes(low), bytes(sweep.keep_all_peak), top);
  std::string found, bound = canvas.place(bytes(low), 0) + " " + canvas.place(bytes(low), top) + " " +
                             canvas.place(bytes(sweep.peak_bound.peak), top) + " ";
  double before = bytes(sweep.peak_bound.peak), higher = most;
  for (const SweepPoint* point : points) {
    const double height = overhead_of(point->result.cost.duration);
    const double floor = overhead_of(point->result.duration_bound.duration);
    bound += canvas.place(before, floor) + " " + canvas.place(bytes(point->budget), floor) + " ";
    before = bytes(point->budget);
    found +=
        canvas.place(bytes(point->budget), higher) + " " + canvas.place(bytes(point->budget), height) + " ";
    higher = height;
  }
  canvas.area(bound + canvas.place(before, 0), "#80889055");
  canvas.curve(found, kGreen);
  for (const SweepPoint* point : points) {
    const double height = overhead_of(point->result.cost.duration);
    canvas.dot(bytes(point->budget), height, kGreen, point->knee ? 5 : 2.5);
    if (point->knee) {
      canvas.write(canvas.x(bytes(point->budget)) + 8, canvas.y(height) - 6,
                   "knee: " + format_bytes(point->budget + beside) + ", " + percent(height), "start");
    }
  }
  canvas.left_axis(0, "0 %");
  canvas.left_axis(std::max(most, 0.01), percent(std::max(most, 0.01)));
  canvas.below(bytes(low), format_bytes(low + beside), "start");
  canvas.below(bytes(sweep.keep_all_peak), format_bytes(sweep.keep_all_peak + beside) + ", keep all", "end");
  Facts facts;
  facts.add("keep-all peak", format_bytes(sweep.keep_all_peak + beside));
  facts.add("smallest peak found", format_bytes(sweep.smallest_peak + beside));
  facts.add("no plan is below", format_bytes(sweep.peak_bound.peak + beside));
  return cell("More time against memory", facts.finish() + canvas.finish());
}

}  // namespace remat
