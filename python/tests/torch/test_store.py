"""`cache_dir`: a second start plans nothing, and nothing in the folder can do harm."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import remat
import remat.torch
import torch
from models import case
from remat.torch.cost.cost import Cost
from remat.torch.plan import store as store_module
from remat.torch.plan.cache import PlanCache
from remat.torch.plan.options import Options
from remat.torch.plan.part import Part
from remat.torch.plan.planning import plan_step
from remat.torch.plan.problem import Problem
from remat.torch.plan.store import Store
from remat.torch.session.captured import captured_step
from training import fit, train

HERE = {"torch": "x"}


def files(folder: Path, kind: str) -> list[Path]:
    return sorted(folder.glob(f"{kind}-*.json"))


def fit_anew(folder: Path, **options):
    """The report of fitting as a new process would: nothing is compiled yet."""
    torch._dynamo.reset()
    model, inputs = case("mlp").build()
    return fit(model, inputs, "80%", cache_dir=folder, work_limit=100_000, **options), inputs


def test_a_second_start_measures_and_plans_nothing(tmp_path, monkeypatch) -> None:
    first, _ = fit_anew(tmp_path)

    def fail(*args, **kwargs):
        raise AssertionError("this was to come from the folder")

    monkeypatch.setattr(remat, "plan", fail)
    monkeypatch.setattr(remat.torch.cost.profile, "measure_op", fail)
    second, inputs = fit_anew(tmp_path)
    assert (first.remat.parts[0].stored, second.remat.parts[0].stored) == (False, True)
    assert second.remat.plan.steps == first.remat.plan.steps
    assert second.remat.parts[0].recomputed_steps > 0
    for name in (
        "status",
        "planner",
        "predicted_peak",
        "overhead",
        "peak_lower_bound",
        "duration_lower_bound",
    ):
        assert getattr(second.remat.parts[0], name) == getattr(first.remat.parts[0], name)
    model, _ = case("mlp").build()
    assert train(model, inputs, 1).differences(train(second, inputs, 1)) == []


def test_another_process_finds_the_plan_too(tmp_path) -> None:
    program = """
        import sys
        sys.path.insert(0, sys.argv[1])
        import remat.torch, torch
        from models import case
        torch.set_num_threads(1)
        model, inputs = case("mlp").build()
        fitted = remat.torch.fit(model, inputs, "80%", cache_dir=sys.argv[2], work_limit=20_000)
        print(fitted.remat.parts[0].stored)
    """
    printed = [
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), str(Path(__file__).parent), str(tmp_path)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    assert printed == ["False\n", "True\n"]


def test_another_budget_seed_or_planner_is_another_problem(tmp_path) -> None:
    fit_anew(tmp_path)
    for options in ({"seed": 1}, {"planner": "search"}, {"reserve": 1000}):
        fitted, _ = fit_anew(tmp_path, **options)
        assert not fitted.remat.parts[0].stored
    # Of each problem one for steps that add to gradients, too.
    assert len(files(tmp_path, "plan")) == 2 * 4
    assert len(files(tmp_path, "costs")) == 1


@pytest.fixture(scope="module")
def captured():
    model, inputs = case("mlp").build()
    return captured_step(model, inputs, None, {"costs": "roofline"})


def plan_anew(captured, folder: Path):
    """The report of planning a captured step as a new process would."""
    options = Options(budget="80%", work_limit=100_000)
    problem = Problem(captured.step, Part.of(captured.step, captured.graph), options)
    return plan_step(problem, PlanCache(Store(folder)))


def test_calls_in_flight_together_are_planned_once_for_all_starts(tmp_path, captured) -> None:
    options = Options(budget=int(2.2 * captured.graph.keep_all_peak), work_limit=20_000)
    problem = Problem(captured.step, Part.of(captured.step, captured.graph, copies=2), options)
    first, second = (plan_step(problem, PlanCache(Store(tmp_path))) for _ in range(2))
    assert (first.stored, second.stored) == (False, True)
    assert second.plan.steps == first.plan.steps
    assert second.predicted_peak == first.predicted_peak > captured.graph.keep_all_peak


def test_the_names_of_a_traced_step_are_no_part_of_the_problem(tmp_path, captured) -> None:
    plan_anew(captured, tmp_path)
    described = captured.graph.to_dict()
    described["name"] = "step_7"
    for position, op in enumerate(described["ops"]):
        op["name"] = f"other_{position}"
    renamed = replace(captured, graph=remat.Graph.from_dict(described))
    assert plan_anew(renamed, tmp_path).stored
    described["ops"][0]["duration"] += 1
    slower = replace(captured, graph=remat.Graph.from_dict(described))
    assert not plan_anew(slower, tmp_path).stored


def _truncate(content: dict) -> str:
    return json.dumps(content)[:-20]


def _other_version(content: dict) -> str:
    return json.dumps({**content, "version": 99})


def _foreign(content: dict) -> str:
    return '{"format": "something.else"}'


def _other_problem(content: dict) -> str:
    return json.dumps({**content, "problem": {**content["problem"], "budget": 1}})


def _broken_rule(content: dict) -> str:
    return json.dumps({**content, "found": {**content["found"], "steps": [0, 0, 1]}})


def _no_fields(content: dict) -> str:
    return json.dumps({**content, "found": {}})


def _over_budget(content: dict) -> str:
    steps = list(range(1 + max(content["found"]["steps"])))  # keeps everything
    return json.dumps({**content, "found": {**content["found"], "steps": steps}})


@pytest.mark.parametrize(
    "damage", [_truncate, _other_version, _foreign, _other_problem, _broken_rule, _no_fields, _over_budget]
)
def test_a_damaged_plan_is_ignored_with_a_warning_and_written_anew(
    tmp_path, captured, caplog, damage
) -> None:
    plan_anew(captured, tmp_path)
    (path,) = files(tmp_path, "plan")
    good = path.read_text()
    path.write_text(damage(json.loads(good)))
    with caplog.at_level(logging.WARNING, "remat.torch"):
        second = plan_anew(captured, tmp_path)
    assert f"{path} is ignored" in caplog.text
    assert not second.stored
    assert second.predicted_peak <= second.budget
    assert plan_anew(captured, tmp_path).stored
    assert json.loads(path.read_text()) == json.loads(good)


def test_damaged_costs_are_ignored_with_a_warning_and_measured_anew(tmp_path, caplog) -> None:
    store = Store(tmp_path)
    store.add_costs(HERE, {"op": Cost(3, 4)})
    (path,) = files(tmp_path, "costs")
    for text in ("", "\x00\xff", path.read_text().replace("[3, 4]", "[3, -4]"), '{"format": "remat.costs"}'):
        path.write_text(text)
        caplog.clear()
        assert store.load_costs(HERE) == {}
        assert f"{path} is ignored" in caplog.text
    path.write_bytes(b"\xff\xfe")
    assert store.load_costs(HERE) == {}
    assert store.add_costs(HERE, {"op": Cost(5, 6)}) == {"op": Cost(5, 6)}
    assert store.load_costs(HERE) == {"op": Cost(5, 6)}


def test_costs_hold_for_one_environment(tmp_path) -> None:
    store = Store(tmp_path)
    store.add_costs(HERE, {"op": Cost(3, 4)})
    assert store.load_costs({"torch": "y"}) == {}


def test_what_was_measured_first_stays(tmp_path) -> None:
    a, b = Store(tmp_path), Store(tmp_path)
    assert a.add_costs(HERE, {"op": Cost(3, 4)}) == {"op": Cost(3, 4)}
    assert b.add_costs(HERE, {"op": Cost(5, 6), "other": Cost(7, 8)}) == {
        "op": Cost(3, 4),
        "other": Cost(7, 8),
    }


def test_writers_at_the_same_time_lose_nothing(tmp_path) -> None:
    def write(number: int) -> None:
        for i in range(10):
            Store(tmp_path).add_costs(HERE, {f"op {number} {i}": Cost(number, i)})

    threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = {f"op {n} {i}": Cost(n, i) for n in range(4) for i in range(10)}
    assert Store(tmp_path).load_costs(HERE) == expected
    assert list(tmp_path.glob(".*.tmp")) == []


def test_the_folder_is_bounded_and_the_least_recently_used_goes(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(store_module, "MAX_FILES", {"plan": 3, "costs": 1})
    monkeypatch.setattr(store_module, "MAX_COSTS", 2)
    store = Store(tmp_path)
    for number in range(5):
        store.add_plan({"number": number}, {"steps": [number]})
        for age, path in enumerate(sorted(files(tmp_path, "plan"), key=os.path.getmtime, reverse=True)):
            os.utime(path, (1e9 - age, 1e9 - age))
        store.load_plan({"number": 0})  # a use
    kept = [number for number in range(5) if store.load_plan({"number": number}) is not None]
    assert kept == [0, 3, 4]
    for name in "abc":
        store.add_costs(HERE, {name: Cost(1, 1)})
    assert list(store.load_costs(HERE)) == ["b", "c"]


def test_a_folder_that_cannot_be_written_is_a_warning(tmp_path, caplog) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING, "remat.torch"):
        fitted, _ = fit_anew(tmp_path / "file" / "folder")
    assert "is not written" in caplog.text
    assert fitted.remat.predicted_peak <= fitted.remat.budget


def test_what_a_dead_writer_left_is_removed(tmp_path) -> None:
    left, busy = tmp_path / ".plan-1.json.x.tmp", tmp_path / ".plan-2.json.y.tmp"
    left.write_text("")
    busy.write_text("")
    os.utime(left, (1e9, 1e9))
    Store(tmp_path).add_plan({"number": 1}, {})
    assert not left.exists()
    assert busy.exists()
