"""Plans for the executors: `remat.plan(..., executor=...)`."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import remat

REPEATABLE: Any = {"work_limit": 300_000, "time_limit": None}


def step(layers: int = 4, named: bool = True) -> remat.Graph:
    """Each layer makes a wide result from the one before it, and from that a narrow one; both are read again.

    x -> [ wide -> narrow ] x layers -> loss | backward: of each layer one op that reads all three
    """
    values = [{"bytes": 1}]
    ops: list[dict[str, object]] = []

    def add(name: str, inputs: list[int], size: int, duration: int, **more: object) -> int:
        values.append({"bytes": size})
        ops.append(
            {"name": name, "inputs": inputs, "outputs": [len(values) - 1], "duration": duration, **more}
        )
        return len(values) - 1

    last = 0
    read = []
    for i in range(layers):
        module = {"module": f"layers.{i}.fc"} if named else {}
        wide = add(f"wide{i}", [last], 10, 3, phase="forward", **module)
        narrow = add(f"narrow{i}", [wide], 2, 5, phase="forward", **module)
        read.append(([last, wide, narrow], module))
        last = narrow
    last = loss = add("loss", [last], 1, 1, phase="loss")
    for i in reversed(range(layers)):
        inputs, module = read[i]
        last = add(f"back{i}", [last, *inputs], 2, 8, phase="backward", **module)
    return remat.Graph.from_dict(
        {
            "format": "remat.graph",
            "version": 1,
            "name": "step",
            "values": values,
            "ops": ops,
            "inputs": [0],
            "outputs": [loss, last],
        }
    )


def test_executors_give_up_time_and_say_how_much() -> None:
    graph = step()
    budget = graph.keep_all_peak - 12
    for executor in ("partitioner", "checkpoint"):
        result = remat.plan(graph, budget, executor=executor, **REPEATABLE)
        assert (result.executor, result.status) == (executor, "optimal")
        assert result.duration_bound_argument == "executor"
        assert result.duration_lower_bound == result.duration
        assert result.full is not None
        assert result.full.duration is not None
        assert result.duration is not None
        assert result.full.duration <= result.duration
        assert result.plan is not None
        assert remat.check(graph, result.plan).peak == result.peak
        assert result.peak is not None
        assert result.peak <= budget


def test_a_region_runs_again_in_a_row_right_before_its_backward() -> None:
    graph = step()
    result = remat.plan(graph, graph.keep_all_peak - 12, executor="checkpoint", **REPEATABLE)
    assert result.plan is not None
    assert result.regions is not None
    steps = result.plan.steps
    assert [name for name, _ in result.regions] == [f"layers.{i}" for i in range(4)]
    again = {name: ops for name, ops in result.regions if ops}
    assert again
    for name, ops in again.items():
        trigger = 9 + 3 - int(name.split(".")[1])
        at = steps.index(trigger)
        assert steps[at - len(ops) : at] == ops
    assert result.saved is not None
    made_again = {v for ops in again.values() for op in ops for v in graph.op(op).outputs}
    assert not made_again & set(result.saved) - {2, 4, 6, 8}  # what a layer hands on is held anyway


def test_a_plan_without_a_executor_has_nothing_beside_it() -> None:
    graph = step()
    result = remat.plan(graph, "90%", executor="remat", **REPEATABLE)
    assert (result.executor, result.full, result.saved, result.regions) == ("remat", None, None, None)


def test_what_a_graph_lacks_is_named() -> None:
    with pytest.raises(remat.GraphError, match="graph 'step' has no ops of numbered modules"):
        remat.plan(step(named=False), "80%", executor="checkpoint")
    chain = {
        "format": "remat.graph",
        "version": 1,
        "name": "line",
        "values": [{"bytes": 1}, {"bytes": 1}],
        "ops": [{"name": "op", "inputs": [0], "outputs": [1], "duration": 1}],
        "inputs": [0],
        "outputs": [1],
    }
    with pytest.raises(
        remat.GraphError, match="graph 'line' has no backward half, which the executor 'partitioner' needs"
    ):
        remat.plan(remat.Graph.from_dict(chain), 2, executor="partitioner")


def test_wrong_uses_are_refused() -> None:
    graph = step()
    with pytest.raises(remat.UsageError, match="'window' is not one of remat, partitioner, checkpoint"):
        remat.plan(graph, "80%", executor="window")  # type: ignore[arg-type]
    with pytest.raises(remat.UsageError, match="executor='partitioner' goes with order='fixed' only"):
        remat.plan(graph, "80%", executor="partitioner", order="free")
    with pytest.raises(remat.UsageError, match="executor='partitioner' goes with budget_on='peak' only"):
        remat.plan(graph, "80%", executor="partitioner", budget_on="arena")


def test_below_what_the_executor_can_do_the_error_says_so() -> None:
    graph = step(3)
    for executor in ("partitioner", "checkpoint"):
        budget = graph.keep_all_peak
        while remat.plan(graph, budget - 1, executor=executor, **REPEATABLE).status == "optimal":
            budget -= 1
        with pytest.raises(
            remat.InfeasibleError, match=f"set of saved results of the executor '{executor}'"
        ) as said:
            remat.plan(graph, budget - 1, executor=executor, check=True, **REPEATABLE)
        assert budget <= said.value.smallest_known <= graph.keep_all_peak


def test_a_budget_has_a_plan_where_a_smaller_one_has_one() -> None:
    """A recorded step of a recurrent net of 40 steps: of plans for any order less room can need more here."""
    packed = gzip.decompress((Path(__file__).parent / "data" / "recurrent_step.json.gz").read_bytes())
    graph = remat.Graph.from_dict(json.loads(packed))
    for share in (0.85, 0.75, 0.65):
        budget = int(share * graph.keep_all_peak)
        result = remat.plan(
            graph, budget, executor="partitioner", work_limit=2_000_000, time_limit=None, seed=1
        )
        assert result.plan is not None, share
