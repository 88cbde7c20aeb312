// Partitioners and level solvers of the planner hiremate, written in Python: see remat/hiremate.py.
#include "remat/hiremate.h"

#include "bindings.h"
#include "planning.h"

namespace remat::python {
namespace {

using hiremate::Level;
using hiremate::LevelBudget;
using hiremate::Nested;
using hiremate::Option;
using hiremate::Partition;
using hiremate::TrainingGraph;

/// A Python object that a C++ thread may release; takes the GIL for it.
std::shared_ptr<nb::object> shared_object(nb::handle object) {
  return {new nb::object(nb::borrow(object)), [](nb::object* held) {
            const nb::gil_scoped_acquire gil;
            delete held;
          }};
}

nb::list list_of(std::span<const OpId> ops) {
  nb::list list;
  for (OpId op : ops) list.append(op.index());
  return list;
}

std::vector<OpId> ops_of(nb::handle object, const std::string& what) {
  std::vector<OpId> ops;
  for (std::int64_t index : with_fault<UsageError>([&] { return to_integers(object, what); })) {
    if (index < 0 || index > 0x7fffffff) throw UsageError(what + ": " + std::to_string(index) + " is no op");
    ops.emplace_back(index);
  }
  return ops;
}

nb::list option_list(const std::vector<Option>& options) {
  nb::list list;
  for (const Option& option : options)
    list.append(nb::make_tuple(option.forward, option.backward, option.refresh));
  return list;
}

nb::tuple level_tuple(const Level& level) {
  nb::list members;
  for (const hiremate::Member& member : level.members) {
    members.append(nb::make_tuple(member.forward, member.backward, option_list(member.options)));
  }
  return nb::make_tuple(level.is_root, level.forward, level.backward, members);
}

nb::list budget_list(const std::vector<LevelBudget>& budgets) {
  nb::list list;
  for (const LevelBudget& budget : budgets) list.append(nb::make_tuple(budget.peak, budget.saved));
  return list;
}

class PythonSolver final : public hiremate::LevelSolver {
 public:
  PythonSolver(std::string name, nb::handle applicable, nb::handle options)
      : name_(std::move(name)), applicable_(shared_object(applicable)), options_(shared_object(options)) {}
  std::string name() const override { return name_; }
  bool applicable(const Level& level) const override {
    const nb::gil_scoped_acquire gil;
    return nb::cast<bool>((*applicable_)(level_tuple(level)));
  }
  std::vector<Option> options(const Level& level, const std::vector<LevelBudget>& budgets,
                              Limits&) const override {
    const nb::gil_scoped_acquire gil;
    std::vector<Option> options;
    const nb::object found = (*options_)(level_tuple(level), budget_list(budgets));
    for (nb::handle option : found) {
      options.push_back({ops_of(option[0], name_ + ": forward"), ops_of(option[1], name_ + ": backward"),
                         name_, ops_of(option[2], name_ + ": refresh")});
    }
    return options;
  }

 private:
  std::string name_;
  std::shared_ptr<nb::object> applicable_, options_;
};

Nested nested_of(nb::handle object) {
  if (!nb::isinstance<nb::list>(object) && !nb::isinstance<nb::tuple>(object)) {
    return {OpId(with_fault<UsageError>([&] { return to_integer(object, "partition"); })), {}};
  }
  Nested nested;
  for (nb::handle member : object) nested.members.push_back(nested_of(member));
  return nested;
}

class PythonPartitioner final : public hiremate::Partitioner {
 public:
  PythonPartitioner(std::string name, nb::handle partition)
      : name_(std::move(name)), partition_(shared_object(partition)) {}
  std::string name() const override { return name_; }
  Nested partition(const TrainingGraph& training, Limits&) const override {
    const nb::gil_scoped_acquire gil;
    nb::list before, backward;
    for (OpId layer : training.layers()) {
      before.append(list_of(training.before[layer]));
      backward.append(list_of(training.backward[layer]));
    }
    return nested_of((*partition_)(before, backward));
  }

 private:
  std::string name_;
  std::shared_ptr<nb::object> partition_;
};

/// Solvers by name (of the framework or a planner), or as (name, applicable, options) from remat/hiremate.py.
std::vector<std::shared_ptr<const hiremate::LevelSolver>> solvers_of(nb::list list,
                                                                     const hiremate::Settings& settings) {
  std::vector<std::shared_ptr<const hiremate::LevelSolver>> solvers;
  for (nb::handle one : list) {
    if (nb::isinstance<nb::str>(one)) {
      solvers.push_back(hiremate::solver_named(nb::cast<std::string>(one), settings));
    } else {
      solvers.push_back(std::make_shared<PythonSolver>(nb::cast<std::string>(one[0]), one[1], one[2]));
    }
  }
  return solvers;
}

/// Partitioner, solvers below the root, solvers of the root; None where the options name them.
hiremate::Settings settings_with(const PlanOptions& options, nb::tuple parts) {
  hiremate::Settings settings = hiremate::settings_of(options);
  const nb::handle partitioner = parts[0], lower = parts[1], top = parts[2];
  if (!partitioner.is_none())
    settings.partitioner =
        std::make_shared<PythonPartitioner>(nb::cast<std::string>(partitioner[0]), partitioner[1]);
  if (!lower.is_none()) settings.lower = solvers_of(nb::cast<nb::list>(lower), settings);
  if (!top.is_none()) settings.top = solvers_of(nb::cast<nb::list>(top), settings);
  return settings;
}

BoundResult plan_by_hiremate(const Question& question, const Effort& effort, nb::handle progress,
                             nb::tuple parts) {
  const hiremate::Settings settings = settings_with(effort.options, parts);
  const auto run = [&settings](const Problem& bounded, Limits& inner) {
    return hiremate::plan(bounded, settings, inner);
  };
  return plan_with(with_effort(question, "hiremate", effort), progress,
                   [&run](const Request& request, Limits& limits) {
                     return make_plan_with(request.problem, "hiremate", run, limits);
                   });
}

nb::object nested_lists(const Partition& partition, hiremate::GroupId group) {
  const hiremate::Group& one = partition.groups[group];
  if (one.layer) return nb::cast(one.layer.index());
  nb::list list;
  for (hiremate::GroupId member : one.members) list.append(nested_lists(partition, member));
  return list;
}

nb::object partition(const Graph& graph, const Effort& effort) {
  const hiremate::Settings settings = hiremate::settings_of(effort.options);
  Limits limits;
  const Partition result = hiremate::partition(hiremate::pair_layers(graph), settings, limits);
  return nested_lists(result, result.root);
}

}  // namespace

void bind_hiremate(nb::module_& m) {
  m.def("hiremate_plan", plan_by_hiremate, nb::arg("question"), nb::arg("effort"), nb::arg("progress").none(),
        nb::arg("parts"),
        nb::sig("def hiremate_plan(question: Question, effort: Effort, progress: "
                "collections.abc.Callable[[str, float, int | None, int | None, bool], object] | None, "
                "parts: tuple[typing.Any, list[typing.Any] | None, list[typing.Any] | None]) -> PlanResult"),
        "See remat.hiremate.plan.");
  m.def("hiremate_partition", partition, nb::arg("graph"), nb::arg("effort"),
        nb::sig("def hiremate_partition(graph: Graph, effort: Effort) -> list[typing.Any]"),
        "See remat.hiremate.partition.");
}

}  // namespace remat::python
