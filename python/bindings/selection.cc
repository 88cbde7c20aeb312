// Selections of values to keep, for executors that take a set and no order.
#include "remat/selection.h"

#include "bindings.h"
#include "effort.h"
#include "planner_thread.h"

namespace remat::python {
namespace {

using Life = std::tuple<int, int, std::int64_t>;
using Item = std::tuple<std::int64_t, std::vector<Life>, std::vector<int>, std::vector<int>>;

nb::tuple select(const std::vector<std::int64_t>& room, const std::vector<Item>& items,
                 std::optional<double> time_limit, std::optional<std::int64_t> work_limit) {
  SelectionProblem problem;
  for (std::int64_t bytes : room) problem.room.emplace_back(bytes);
  for (const auto& [gain, lives, excludes, needs] : items) {
    Selectable item{Duration(gain), {}, excludes, needs};
    for (const auto& [begin, end, bytes] : lives) item.lives.push_back({begin, end, Bytes(bytes)});
    problem.items.push_back(std::move(item));
  }
  PlannerThread thread;
  if (time_limit) thread.limits().set_time(*time_limit);
  if (work_limit) thread.limits().set_work(*work_limit);
  Selection found;
  thread.run([&] { found = select_within(problem, thread.limits()); }, nb::none());
  return nb::make_tuple(found.items, found.gain.count(), found.bound.count(), thread.limits().work());
}

nb::tuple split(const std::vector<std::int64_t>& room,
                const std::vector<std::vector<std::pair<std::int64_t, std::vector<std::int64_t>>>>& parts,
                std::int64_t work_limit) {
  SplitProblem problem;
  for (std::int64_t bytes : room) problem.room.emplace_back(bytes);
  for (const auto& choices : parts) {
    auto& part = problem.parts.emplace_back();
    for (const auto& [cost, taken] : choices) {
      SplitChoice& choice = part.emplace_back();
      choice.cost = Duration(cost);
      for (std::int64_t bytes : taken) choice.bytes.emplace_back(bytes);
    }
  }
  PlannerThread thread;
  thread.limits().set_work(work_limit);
  Split found;
  thread.run([&] { found = split_within(problem, thread.limits()); }, nb::none());
  return nb::make_tuple(found.choices, found.cost.count(), found.bound.count(), found.proved);
}

}  // namespace

void bind_selection(nb::module_& m) {
  m.def("select_within", select, nb::arg("room"), nb::arg("items"), nb::arg("time_limit").none() = nb::none(),
        nb::arg("work_limit").none() = nb::none(),
        nb::sig("def select_within(room: list[int], items: list[tuple[int, list[tuple[int, int, int]], "
                "list[int], list[int]]], time_limit: float | None = None, work_limit: int | None = None) "
                "-> tuple[list[int], int, int, int]"),
        "The items to keep in memory for the most time saved. room: bytes of each moment. items: gain, "
        "stretches (begin, end, bytes), items that exclude it, items that it requires. Returns the "
        "items, their gain, an upper bound on any gain, and the units of work that it took.");
  m.def("split_within", split, nb::arg("room"), nb::arg("parts"), nb::arg("work_limit"),
        nb::sig("def split_within(room: list[int], parts: list[list[tuple[int, list[int]]]], work_limit: int)"
                " -> tuple[list[int], int, int, bool]"),
        "One choice for each part at the least cost. room: bytes of each moment. parts: the choices of "
        "each: cost, bytes of each moment. Returns the index of each choice (none: []), their cost, a "
        "lower bound on it, and whether the choice is proved optimal (or that none fits).");
}

}  // namespace remat::python
