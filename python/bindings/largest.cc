// remat._core.find_largest: the largest size of a step that fits.
#include "remat/largest.h"

#include <algorithm>
#include <map>

#include "bindings.h"
#include "effort.h"
#include "errors.h"
#include "generate.h"
#include "planner_thread.h"
#include "planning.h"
#include "remat/words.h"

namespace remat::python {
namespace {

/// `_core.SizeRow`, with the plans as records.
struct BoundRow {
  SizeRow row;
  std::vector<PlanRecord> plans;
};

/// `_core.LargestResult`.
struct BoundLargest {
  LargestResult result;
  std::vector<BoundRow> rows;
};

BoundRow bound_row(SizeRow row, Bytes budget, OrderMode order, std::uint64_t seed) {
  BoundRow bound{std::move(row), {}};
  for (std::size_t i = 0; i < bound.row.results.size() && bound.row.fits(); ++i) {
    bound.plans.push_back(make_record({&bound.row.graphs[i], budget, order}, bound.row.results[i], seed));
  }
  return bound;
}

LargestOptions options_of(const std::string& planner, const std::string& order,
                          std::pair<std::int64_t, std::int64_t> range, std::int64_t multiple,
                          std::optional<std::int64_t> guess, int rows, const Effort& effort) {
  LargestOptions options;
  options.planner = planner;
  options.order = parse_order(order);
  std::tie(options.least, options.most) = range;
  options.multiple = multiple;
  options.guess = guess;
  options.rows = rows;
  options.plan = effort.options;
  return options;
}

BoundLargest search(const StepsOfSize& steps, std::int64_t budget, const LargestOptions& options,
                    const Effort& effort, nb::handle progress) {
  BoundLargest bound;
  PlannerThread thread;
  effort.apply(thread.limits());
  PlanStore own;
  PlanStore& store = effort.work_limit ? own : plan_store();
  thread.run(
      [&] { bound.result = remat::find_largest(steps, Bytes(budget), options, thread.limits(), store); },
      progress);
  for (SizeRow& row : bound.result.rows) {
    bound.rows.push_back(bound_row(std::move(row), Bytes(budget), options.order, effort.options.seed));
  }
  return bound;
}

BoundLargest find_largest(const std::vector<GraphFamily*>& families, std::int64_t budget,
                          const std::string& planner, const std::string& order,
                          std::pair<std::int64_t, std::int64_t> range, std::int64_t multiple,
                          std::optional<std::int64_t> guess, int rows, const Effort& effort,
                          nb::handle progress) {
  const StepsOfSize steps = [&families](std::int64_t size) {
    std::vector<Graph> graphs;
    for (const GraphFamily* family : families) {
      std::optional<Graph> graph = family->at(size);
      if (!graph) return std::vector<Graph>();
      graphs.push_back(*std::move(graph));
    }
    return graphs;
  };
  const LargestOptions options = options_of(planner, order, range, multiple, guess, rows, effort);
  return search(steps, budget, options, effort, progress);
}

/// The size of a model that `over` names. Throws UsageError where it has none.
std::int64_t ModelSettings::* size_of_model(const std::string& model, const std::string& over) {
  const auto info = std::ranges::find(models(), model, &ModelInfo::name);
  const auto sizes = searched_sizes(*info);
  if (const auto found = sizes.find(over); found != sizes.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [name, size] : sizes) known.push_back(name);
  throw UsageError(unknown_word("size", over, known));
}

BoundLargest largest_of_model(const std::string& model, nb::dict settings, const std::string& over,
                              std::int64_t budget, const std::string& planner, const std::string& order,
                              std::pair<std::int64_t, std::int64_t> range, std::int64_t multiple, int rows,
                              const Effort& effort, nb::handle progress) {
  const TrainingOptions asked = with_fault<UsageError>([&] { return training_options(model, settings); });
  const auto setting = size_of_model(model, over);
  const StepsOfSize steps = [&](std::int64_t size) {
    TrainingOptions sized = asked;
    sized.settings.*setting = size;
    return std::vector<Graph>{training_graph(sized)};
  };
  const LargestOptions options = options_of(planner, order, range, multiple, std::nullopt, rows, effort);
  return search(steps, budget, options, effort, progress);
}

template <class Get>
auto if_fits(Get get) {
  return [get](const BoundRow& b) -> std::optional<decltype(get(b.row))> {
    if (!b.row.fits()) return std::nullopt;
    return get(b.row);
  };
}

void bind_row(nb::module_& m) {
  nb::class_<BoundRow>(m, "SizeRow", "The result for one size.")
      .def_prop_ro("size", of(&BoundRow::row, &SizeRow::size))
      .def_prop_ro(
          "status", [](const BoundRow& b) { return b.row.status(); }, "As in PlanResult, for the worst step.")
      .def_prop_ro("keep_all_peak", [](const BoundRow& b) { return b.row.keep_all_peak().count(); })
      .def_prop_ro("peak_lower_bound", [](const BoundRow& b) { return b.row.peak_bound().count(); })
      .def_prop_ro("peak", if_fits([](const SizeRow& r) { return r.peak().count(); }))
      .def_prop_ro("duration", if_fits([](const SizeRow& r) { return r.duration().count(); }),
                   "For the first step.")
      .def_prop_ro("graphs", of(&BoundRow::row, &SizeRow::graphs))
      .def_prop_ro("plans", of(&BoundRow::plans));
}

}  // namespace

void bind_largest(nb::module_& m) {
  nb::class_<GraphFamily>(m, "GraphFamily", "Graphs of one training step at several sizes.")
      .def(nb::init<>())
      .def("add", &GraphFamily::add, nb::arg("size"), nb::arg("graph"), "Sets the graph of a size.")
      .def("knows", &GraphFamily::knows, nb::arg("size"))
      .def("at", &GraphFamily::at, nb::arg("size"),
           "The graph of a size, interpolated if not known; None if too few are known.");
  bind_row(m);
  m.attr("MOST_SIZE") = kMostSize;
  nb::class_<BoundLargest>(m, "LargestResult", "The largest size that fits, and a table of sizes.")
      .def_prop_ro("rows", of(&BoundLargest::rows))
      .def_prop_ro("largest", of(&BoundLargest::result, &LargestResult::largest))
      .def_prop_ro("impossible", of(&BoundLargest::result, &LargestResult::impossible))
      .def_prop_ro("best", of(&BoundLargest::result, &LargestResult::best))
      .def_prop_ro("missing", of(&BoundLargest::result, &LargestResult::missing),
                   "Size whose unknown graphs ended the search, or None.")
      .def_prop_ro("stopped_by", of(&BoundLargest::result, &LargestResult::stopped_by),
                   "The limit that ended the search, or None.")
      .def_prop_ro("seconds", of(&BoundLargest::result, &LargestResult::seconds));
  m.def("find_largest", find_largest, nb::arg("families"), nb::arg("budget"), nb::arg("planner"),
        nb::arg("order"), nb::arg("range"), nb::arg("multiple"), nb::arg("guess").none(), nb::arg("rows"),
        nb::arg("effort"), nb::arg("progress").none(),
        "The largest size at which the step of each family has a plan within the budget.");
  m.def("largest_of_model", largest_of_model, nb::arg("model"), nb::arg("settings"), nb::arg("over"),
        nb::arg("budget"), nb::arg("planner"), nb::arg("order"), nb::arg("range"), nb::arg("multiple"),
        nb::arg("rows"), nb::arg("effort"), nb::arg("progress").none(),
        nb::sig("def largest_of_model(model: str, settings: dict[str, typing.Any], over: str, budget: int, "
                "planner: str, order: str, range: tuple[int, int], multiple: int, rows: int, effort: Effort, "
                "progress: object | None) -> LargestResult"),
        "See remat.largest.");
}

}  // namespace remat::python
