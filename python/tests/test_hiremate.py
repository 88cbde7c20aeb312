"""The hierarchical planner with parts written in Python."""

from __future__ import annotations

import pytest
import remat
import remat.hiremate
from remat.hiremate import Level, LevelBudget, LevelSolver, Option, TrainingGraph


def training_chain(layers: int = 8) -> remat.Graph:
    values = [{"bytes": 100} for _ in range(2 * layers)]
    ops = []
    for i in range(layers):
        ops.append(
            {
                "name": f"f{i}",
                "duration": 1,
                "inputs": [i - 1] if i else [],
                "outputs": [i],
                "phase": "forward",
            }
        )
    for i in reversed(range(layers)):
        inputs = [i] + ([i - 1] if i else []) + ([layers + i + 1] if i + 1 < layers else [])
        ops.append(
            {
                "name": f"b{i}",
                "duration": 1,
                "inputs": inputs,
                "outputs": [layers + i],
                "phase": "backward",
                "forward_of": i,
            }
        )
    return remat.Graph.from_dict(
        {"format": "remat.graph", "version": 1, "values": values, "ops": ops, "outputs": [layers]}
    )


class Halves:
    def partition(self, training: TrainingGraph) -> list[list[int]]:
        layers = list(range(len(training.before)))
        middle = len(layers) // 2
        return [layers[:middle], layers[middle:]]


class Again:
    """Everything of a group runs again before its backward pass."""

    def applicable(self, level: Level) -> bool:
        return not level.is_root

    def options(self, level: Level, budgets: list[LevelBudget]) -> list[Option]:
        assert all(budget.peak > 0 for budget in budgets)
        return [Option(level.forward, [*level.forward, *level.backward])]


def check_plan_of_halves(graph: remat.Graph, solver: LevelSolver) -> None:
    result = remat.hiremate.plan(
        graph, "75%", order="free", partitioner=Halves(), lower=[solver], top=["h_ilp"], time_limit=20
    )
    assert result.plan is not None
    remat.check(graph, result.plan)
    assert result.peak is not None
    assert result.peak <= graph.keep_all_peak * 3 // 4


def test_parts_in_python_make_a_plan_within_the_budget() -> None:
    check_plan_of_halves(training_chain(), Again())


class Refreshed(Again):
    """The outputs are made again first, and what was made on the way stays."""

    name = "refreshed"

    def options(self, level: Level, budgets: list[LevelBudget]) -> list[Option]:
        return [Option(level.forward, level.backward, refresh=level.forward[1:])]


def test_refreshed_options() -> None:
    graph = training_chain(12)
    check_plan_of_halves(graph, Refreshed())

    class Short(Refreshed):
        def options(self, level: Level, budgets: list[LevelBudget]) -> list[Option]:
            return [Option(level.forward, level.backward, refresh=level.forward[:1])]

    with pytest.raises(remat.UsageError, match="level solver refreshed: an option does not make .* again"):
        remat.hiremate.plan(graph, "75%", partitioner=Halves(), lower=[Short()], top=["h_ilp"])


def test_an_option_that_is_no_run_names_its_solver() -> None:
    class Forgetful(Again):
        name = "forgetful"

        def options(self, level: Level, budgets: list[LevelBudget]) -> list[Option]:
            return [Option(level.forward, [])]

    with pytest.raises(remat.UsageError, match="level solver forgetful: an option does not run"):
        remat.hiremate.plan(training_chain(), "75%", partitioner=Halves(), lower=[Forgetful()], top=["h_ilp"])


def test_groups_that_are_not_convex_are_refused() -> None:
    class Comb:
        def partition(self, training: TrainingGraph) -> list[list[int]]:
            layers = range(len(training.before))
            return [[i for i in layers if i % 2 == 0], [i for i in layers if i % 2 == 1]]

    with pytest.raises(remat.UsageError, match="not convex"):
        remat.hiremate.plan(training_chain(), "75%", partitioner=Comb())


def test_what_a_part_raises_comes_out() -> None:
    class Broken:
        def partition(self, training: TrainingGraph) -> list[int]:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        remat.hiremate.plan(training_chain(), "75%", partitioner=Broken())


def test_the_partition_is_nested_lists_of_all_layers() -> None:
    def flat(tree: object) -> list[int]:
        return [tree] if isinstance(tree, int) else [op for part in tree for op in flat(part)]  # type: ignore[attr-defined]

    groups = remat.hiremate.partition(training_chain(12), {"most_top": 3, "most_lower": 4})
    assert sorted(flat(groups)) == list(range(12))
    assert len(groups) <= 3
