"""remat.Plan, check, simulate."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import remat
from graphs import GraphDict, chain, graph_dicts, two_layers
from hypothesis import given


def memory_by_definition(graph: remat.Graph, steps: list[int]) -> list[int]:
    """Memory of each step from docs/model.md, instance by instance."""
    births: list[tuple[int, int]] = []  # (value, step)
    newest: dict[int, int] = {}  # value -> instance
    last: list[int] = []
    over: list[tuple[int, int, int]] = []  # (step, instance, bytes)
    for step, op in enumerate(steps):
        for value in graph.op_inputs(op):
            if graph.producers[value] >= 0:
                last[newest[value]] = step
        for value, output in graph.op(op).over:
            over.append((step, newest[value], min(int(graph.bytes[value]), int(graph.bytes[output]))))
        for value in graph.op_outputs(op):
            newest[value] = len(births)
            births.append((value, step))
            last.append(step)
    for value in graph.outputs:
        if value in newest:
            last[newest[value]] = len(steps) - 1
    kept = {newest[value] for value in graph.outputs if value in newest}
    memory = [graph.resident + int(graph.workspaces[op]) for op in steps]
    for (value, birth), end in zip(births, last, strict=True):
        for step in range(birth, end + 1):
            memory[step] += int(graph.bytes[value])
    for step, instance, both in over:
        if last[instance] == step and instance not in kept:
            memory[step] -= both
    return memory


def with_recomputations(graph: remat.Graph) -> list[int]:
    """Every op, and once more before each op those of its producers that allow it."""
    steps: list[int] = []
    for op in range(graph.num_ops):
        makers = {int(graph.producers[v]) for v in graph.op_inputs(op)} - {-1}
        steps += [m for m in sorted(makers) if graph.op(m).recompute == "allowed"]
        steps.append(op)
    return steps


@given(graph_dicts())
def test_the_simulator_follows_the_definition(d: GraphDict) -> None:
    graph = remat.Graph.from_dict(d)
    for steps in (list(range(graph.num_ops)), with_recomputations(graph)):
        expected = memory_by_definition(graph, steps)
        cost = remat.simulate(graph, steps)
        plan = remat.Plan(graph, steps)
        assert cost.memory.tolist() == plan.memory(graph).tolist() == expected
        assert cost.peak == plan.peak == max(expected)
        assert cost.peak_step == expected.index(max(expected))
        assert cost.duration == plan.duration == sum(int(graph.durations[op]) for op in steps)
        assert cost.recomputed_ops == len(steps) - graph.num_ops
        if graph.base_duration:
            assert (
                cost.overhead == plan.overhead == (cost.duration - graph.base_duration) / graph.base_duration
            )
    assert remat.simulate(graph, range(graph.num_ops)).peak == graph.keep_all_peak
    assert graph.floor <= graph.keep_all_peak


@given(graph_dicts())
def test_plans_survive_files_and_pickles(tmp_path_factory: pytest.TempPathFactory, d: GraphDict) -> None:
    graph = remat.Graph.from_dict(d)
    path = tmp_path_factory.mktemp("plan") / "p.json"
    plan = remat.Plan(graph, with_recomputations(graph))
    plan.save(path)
    for copy in (remat.load_plan(path), pickle.loads(pickle.dumps(plan))):
        assert copy == plan
        assert copy.steps == plan.steps
        assert remat.check(graph, copy).peak == plan.peak


def test_a_plan_says_what_it_is() -> None:
    graph = remat.Graph.from_dict(two_layers())
    plan = remat.Plan(graph, np.array([0, 0, 1]))
    assert plan.steps == [0, 0, 1]
    assert len(plan) == 3
    assert (plan.peak, plan.duration, plan.budget, plan.order) == (6144, 11300, None, "fixed")
    assert plan.overhead == 5200 / 6100
    assert (plan.graph_name, plan.graph_hash) == ("two_layers", graph.hash)
    assert repr(plan) == "<remat.Plan of 'two_layers': 3 steps, peak 6144, overhead 85.25%>"
    assert plan.memory(graph).dtype == np.int64


def test_a_plan_says_what_it_was_made_for_and_by_whom() -> None:
    graph = remat.Graph.from_dict(two_layers())
    plan = remat.Plan(graph, [0, 1], budget=graph.keep_all_peak, planner="mine")
    assert (plan.budget, plan.planner) == (graph.keep_all_peak, "mine")
    assert remat.check(graph, plan).peak <= graph.keep_all_peak
    with pytest.raises(remat.PlanError, match="rule budget"):
        remat.Plan(graph, [0, 1], budget=graph.keep_all_peak - 1)


def test_free_order_is_a_plan_of_its_own() -> None:
    graph = remat.Graph([1, 1], [remat.Op("a", 1, [], [0]), remat.Op("b", 1, [], [1])])
    assert remat.Plan(graph, [1, 0], order="free").order == "free"
    with pytest.raises(
        remat.PlanError, match="rule fixed_order: step 0: op 1 'b' first runs before op 0 'a'"
    ) as caught:
        remat.Plan(graph, [1, 0])
    assert (caught.value.rule, caught.value.step) == ("fixed_order", 0)
    with pytest.raises(remat.UsageError, match="order must be 'fixed' or 'free', not 'any'"):
        remat.Plan(graph, [0, 1], order="any")


@pytest.mark.parametrize(
    ("steps", "rule", "step", "message"),
    [
        ([1, 0], "input_ready", 0, "op 1 'relu' reads value 1, but its producer op 0 'mm' has not run"),
        ([0], "every_op_runs", None, "op 1 'relu' never runs"),
        ([0, 2], "op_exists", 1, "op index 2 is not one of the 2 ops"),
        ([0, -1], "op_exists", 1, "op index -1 is not one of the 2 ops"),
    ],
)
def test_broken_plans_name_rule_step_and_numbers(
    steps: list[int], rule: str, step: int | None, message: str
) -> None:
    graph = remat.Graph.from_dict(two_layers())
    for call in (remat.Plan, remat.simulate):
        with pytest.raises(remat.PlanError) as caught:
            call(graph, steps)
        assert (caught.value.rule, caught.value.step) == (rule, step)
        assert f"rule {rule}: " in str(caught.value)
        assert message in str(caught.value)


def test_an_op_that_forbids_recomputation_runs_once() -> None:
    d = two_layers()
    d["ops"][0]["recompute"] = "never"
    with pytest.raises(
        remat.PlanError, match="op 0 'mm' forbids recomputation and has run at step 0"
    ) as caught:
        remat.Plan(remat.Graph.from_dict(d), [0, 0, 1])
    assert (caught.value.rule, caught.value.step) == ("runs_once", 1)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.rule, again.step, str(again)) == ("runs_once", 1, str(caught.value))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"peak": 1}, "peak: the plan says 1, recomputed 6144"),
        ({"duration": 7}, "duration: the plan says 7, recomputed 6100"),
        ({"budget": 6143}, "rule budget: step 1: memory 6144 is over the budget 6143"),
        ({"graph_hash": "00"}, "graph_hash: the plan says 00"),
        ({"steps": [1, 0]}, "rule input_ready: step 0"),
    ],
)
def test_check_believes_nothing_but_the_steps(
    change: dict[str, object], message: str, tmp_path: Path
) -> None:
    graph = remat.Graph.from_dict(two_layers())
    path = tmp_path / "p.json"
    remat.Plan(graph, [0, 1]).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(remat.PlanError) as caught:
        remat.check(graph, remat.load_plan(path))
    assert message in str(caught.value)


def test_check_refuses_the_plan_of_another_graph() -> None:
    plan = remat.Plan(chain(3), range(6))
    assert remat.check(chain(3), plan).duration == 6
    with pytest.raises(remat.PlanError, match="graph_hash"):
        remat.check(chain(3, size=101), plan)


def test_steps_must_be_integers() -> None:
    with pytest.raises(remat.PlanError, match=r"steps: found 0.5 instead of an integer"):
        remat.simulate(chain(2), [0.5])  # type: ignore[list-item]


def test_plan_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(remat.PlanError, match="nowhere.json: No such file or directory"):
        remat.load_plan(tmp_path / "nowhere.json")
    path = tmp_path / "p.json"
    path.write_text('{"format": "remat.plan",')
    with pytest.raises(remat.PlanError, match=r"p.json:1:"):
        remat.load_plan(path)
