"""remat.plan and its result."""

from __future__ import annotations

import itertools
import json
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import remat
from graphs import chain, graph_dicts, two_layers
from hypothesis import given, settings, strategies as st
from remat import planning

PLANNERS = [p.name for p in remat.planners()]


@settings(max_examples=50, deadline=None)
@given(graph_dicts(), st.integers(1, 100), st.sampled_from(["fixed", "free"]), st.sampled_from(PLANNERS))
def test_results_keep_the_two_facts_apart(d: dict[str, Any], percent: int, order: Any, planner: str) -> None:
    graph = remat.Graph.from_dict(d)
    if graph.keep_all_peak * percent < 100:
        return
    try:
        r = remat.plan(graph, f"{percent}%", planner=planner, order=order, time_limit=None, work_limit=2000)
    except remat.UsageError as error:
        if "does not support this problem" in str(error):  # as a planner may say
            return
        raise
    assert r.budget is not None
    assert r.peak_lower_bound >= r.floor or r.order == "free"
    assert r.duration_lower_bound >= graph.base_duration
    if r.plan is None:
        assert r.status in ("infeasible", "unknown")
        assert (r.peak, r.duration, r.overhead, r.gap) == (None, None, None, None)
        if r.closest is not None:
            assert r.closest.peak == r.best_peak
            assert r.best_peak is not None
            assert r.best_peak > r.budget
            assert remat.simulate(graph, r.closest.steps).peak == r.best_peak
        if r.status == "infeasible":
            assert r.stopped_by == "proof"
    else:
        assert r.status in ("optimal", "feasible")
        assert r.closest is None
        assert r.plan.budget == r.budget
        cost = remat.check(graph, r.plan)
        assert (cost.peak, cost.duration, cost.overhead) == (r.peak, r.duration, r.overhead)
        assert r.best_peak == r.peak
        assert r.peak_lower_bound <= cost.peak <= r.budget
        assert r.duration_lower_bound <= cost.duration


def test_the_plan_of_a_chain_recomputes_within_half_the_memory() -> None:
    graph = chain(40)
    r = remat.plan(graph, "50%", time_limit=None, work_limit=20000, seed=3)
    assert r.plan is not None
    assert r.peak is not None
    assert r.overhead is not None
    assert r.peak <= graph.keep_all_peak // 2
    assert r.overhead > 0
    assert r.plan.seed == 3
    assert remat.plan(graph, "50%", time_limit=None, work_limit=20000, seed=3).plan == r.plan


def test_everything_a_result_says_about_a_full_budget() -> None:
    graph = remat.Graph.from_dict(two_layers())
    r = remat.plan(graph, "100%")
    assert (r.status, r.stopped_by, r.planner, r.order) == ("optimal", "proof", r.planner, "fixed")
    assert (r.peak, r.keep_all_peak, r.budget, r.best_peak) == (6144, 6144, 6144, 6144)
    assert (r.duration, r.duration_lower_bound, r.overhead, r.gap) == (6100, 6100, 0.0, 0.0)
    assert (r.peak_lower_bound, r.floor) == (6144, 6144)
    assert r.peak_bound_argument
    assert r.duration_bound_argument
    assert r.plan is not None
    assert r.plan.steps == [0, 1]
    assert 0 <= r.seconds < 60
    assert isinstance(r.counters, dict)
    r.raise_if_infeasible()
    r.raise_if_no_plan()
    assert repr(r).startswith("<remat.PlanResult: optimal by ")


def test_the_log_says_what_each_arm_of_auto_did() -> None:
    graph = remat.generate("unet", depth=3)
    r = remat.plan(graph, "40%", time_limit=None, work_limit=200_000, gap=0)
    first, last = r.log[0], r.log[-1]
    assert (first.arm, first.round, first.duration_before, first.peak_before) == ("keep_all", 1, None, None)
    assert (first.peak_after, first.within_budget, first.gap) == (graph.keep_all_peak, False, None)
    assert [entry.arm for entry in r.log][1] == "retention"
    assert (last.duration_after, last.peak_after, last.within_budget) == (r.duration, r.peak, True)
    assert (last.duration_lower_bound, last.gap) == (r.duration_lower_bound, r.gap)
    for before, after in itertools.pairwise(r.log):
        assert (after.duration_before, after.peak_before) == (before.duration_after, before.peak_after)
        assert after.seconds >= before.seconds
        assert after.work >= 0
    assert repr(first).startswith("<remat.LogEntry: round 1, keep_all, ")
    copied = pickle.loads(pickle.dumps(r))
    assert [repr(entry) for entry in copied.log] == [repr(entry) for entry in r.log]
    assert (copied.log[0].duration_before, copied.log[-1].gap) == (None, r.gap)
    assert remat.plan(graph, "40%", planner="retention", work_limit=10_000).log == []


def test_without_a_budget_nothing_is_recomputed() -> None:
    r = remat.plan(chain(5))
    assert r.budget is None
    assert r.plan is not None
    assert r.plan.budget is None
    assert r.plan.steps == list(range(10))


def test_the_least_peak_takes_a_budget_or_none() -> None:
    graph = chain(10)
    least = remat.plan(graph, objective="peak", work_limit=20000, time_limit=None)
    assert least.peak is not None
    assert least.peak < graph.keep_all_peak
    below = remat.plan(graph, least.peak_lower_bound - 1, objective="peak", work_limit=20000, time_limit=None)
    assert (below.status, below.stopped_by) == ("infeasible", "proof")
    assert below.plan is None
    within = remat.plan(graph, graph.keep_all_peak, objective="peak", work_limit=20000, time_limit=None)
    assert (within.peak, within.duration) == (least.peak, least.duration)
    assert within.plan is not None
    assert within.plan.budget == graph.keep_all_peak


def test_a_budget_below_the_floor_is_proved_infeasible() -> None:
    graph = chain(10)
    r = remat.plan(graph, graph.floor - 1)
    assert (r.status, r.stopped_by, r.plan) == ("infeasible", "proof", None)
    with pytest.raises(remat.InfeasibleError) as caught:
        r.raise_if_infeasible()
    assert caught.value.floor == graph.floor
    assert graph.floor <= caught.value.smallest_known < graph.keep_all_peak
    assert caught.value.smallest_known == r.smallest_known_budget()
    assert str(caught.value).startswith(f"proved infeasible: no plan fits into {graph.floor - 1} bytes; ")
    assert remat.plan(graph, caught.value.smallest_known, objective="peak", time_limit=2).plan is not None
    with pytest.raises(remat.InfeasibleError):
        remat.plan(graph, graph.floor - 1, check=True)


def test_nothing_found_is_not_called_infeasible() -> None:
    graph = chain(10)
    r = remat.plan(graph, graph.keep_all_peak - 1, planner="keep_all")
    assert (r.status, r.plan) == ("unknown", None)
    assert r.closest is not None
    assert r.closest.peak == graph.keep_all_peak
    r.raise_if_infeasible()
    with pytest.raises(remat.NoPlanError, match="nothing proved") as caught:
        remat.plan(graph, graph.keep_all_peak - 1, planner="keep_all", check=True)
    assert not isinstance(caught.value, remat.InfeasibleError)
    assert caught.value.smallest_known < graph.keep_all_peak


def test_what_was_probably_meant_is_said_in_one_line() -> None:
    graph = chain(2)
    wrong: list[tuple[Any, str]] = [
        (lambda: remat.plan(graph, 0.6), 'budget 0.6 is not a whole number of bytes: did you mean "60%"?'),
        (
            lambda: remat.plan("graph.json", "60%"),
            "the graph is of type str: it has to be a remat.Graph; load_",
        ),
        (lambda: remat.plan(graph, "60%", 3), 'planner is of type int: it has to be a name, such as "auto"'),
        (lambda: remat.layout(graph, 3), "the plan is of type int: it has to be a remat.Plan"),
        (lambda: remat.report(graph, 3), "plans are Plan, PlanResult or SweepPoint, not int"),
        (lambda: remat.simulate(graph, None), "simulate() takes (graph: "),
        (lambda: remat.generate(3), "generate() takes (kind: 'str', "),
        (lambda: remat.register_planner(3, print), "register_planner() takes (name: 'str', "),
    ]
    for call, message in wrong:
        with pytest.raises((remat.RematError, TypeError)) as caught:
            call()
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (0, f"budget 0 is outside [1, {2**62})"),
        (-(2**30), f"budget {-(2**30)} is outside [1, {2**62})"),
        (2**62, f"budget {2**62} is outside"),
        (10**30, f"budget: {10**30} does not fit into 64 bits"),
        (1.5, "budget: found 1.5 instead of an integer"),
        (True, "budget: found True instead of an integer"),
        ("abc", "budget 'abc'"),
        ("", "budget ''"),
        ("-1GiB", "budget '-1GiB'"),
        ("1e400", "budget '1e400'"),
        ("0", "budget '0'"),
        ("0%", "budget '0%'"),
    ],
)
def test_bad_budgets(budget: Any, message: str) -> None:
    for call in (lambda: remat.plan(chain(2), budget), lambda: remat.parse_bytes(budget, keep_all_peak=100)):
        with pytest.raises(remat.BudgetError) as caught:
            call()
        assert message in str(caught.value)
        assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("budget", "count"),
    [
        ("6442450944", 6 * 2**30),
        ("6GiB", 6 * 2**30),
        ("1.5 KiB", 1536),
        ("800MB", 800 * 10**6),
        ("75%", 75),
        ("120 %", 120),
        (7, 7),
        (np.int64(7), 7),
    ],
)
def test_budgets(budget: Any, count: int) -> None:
    assert remat.parse_bytes(budget, keep_all_peak=100) == count


def test_a_share_needs_the_peak_that_it_is_a_share_of() -> None:
    with pytest.raises(remat.BudgetError, match="budget '50%' needs keep_all_peak"):
        remat.parse_bytes("50%")
    assert remat.parse_bytes("50", None) == 50


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"planner": "best"}, "unknown planner 'best'; known: "),
        ({"planner": "keep_all", "options": {"k": 3}}, "planner keep_all has no option 'k'"),
        (
            {"planner": "rotor", "options": {"slots": 0}},
            "rotor: option slots=0 is not an integer in [1, 100000]",
        ),
        ({"planner": "rotor", "options": {"costs": 1}}, "rotor: option costs=1 is not one of given, unit"),
        ({"order": "any"}, "order='any' is not one of fixed, free"),
        ({"objective": "both"}, "objective='both' is not one of time, peak"),
        ({"time_limit": -1.0}, "time_limit -1.000000 is not 0 or more seconds"),
        ({"time_limit": float("nan")}, "is not 0 or more seconds"),
        ({"work_limit": -1}, "work_limit -1 is negative"),
        ({"gap": "0.1"}, "gap '0.1' is not a percentage: write 0.1%"),
        ({"gap": "-1%"}, "gap '-1%' is not a percentage: write 0.1%"),
        ({"gap": ""}, "gap '' is not a percentage: write 0.1%"),
        ({"seed": -1}, "seed -1 is negative"),
        ({"seed": 0.5}, "seed: found 0.5 instead of an integer"),
        ({"threads": 0}, "threads 0 is outside [1, 4096]"),
    ],
)
def test_wrong_usage(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(remat.UsageError) as caught:
        remat.plan(chain(2), "100%", **arguments)
    assert message in str(caught.value)


def test_planners_say_what_they_are() -> None:
    assert len(set(PLANNERS)) == len(PLANNERS) >= 4
    for planner in remat.planners():
        for text in (planner.name, planner.description, planner.guarantee, planner.source):
            assert text
            assert "\n" not in text


def test_planners_list_their_options() -> None:
    options = {o.name: o for p in remat.planners() if p.name == "rotor" for o in p.options}
    slots, costs, first = options["slots"], options["costs"], options["first"]
    assert (slots.type, slots.default, slots.low, slots.high) == ("integer", "500", 1, 100_000)
    assert (slots.unit, slots.values, slots.choices) == ("slots", "[1, 100000]", [])
    assert (costs.type, costs.low, costs.high, costs.choices) == ("choice", None, None, ["given", "unit"])
    assert (first.type, first.default, first.values) == ("flag", "off", "on, off")


def test_the_errors_have_one_base() -> None:
    for error in (
        remat.GraphError,
        remat.PlanError,
        remat.UsageError,
        remat.BudgetError,
        remat.InfeasibleError,
    ):
        assert issubclass(error, remat.RematError)


def test_a_time_limit_of_zero_ends_at_once() -> None:
    start = time.monotonic()
    r = remat.plan(chain(200), "50%", time_limit=0)
    assert time.monotonic() - start < 5
    assert r.status in ("feasible", "unknown")


def test_the_command_line_and_python_are_content_with_the_same_gap(tmp_path: Path) -> None:
    chain(4).save(tmp_path / "g.json")
    command = [sys.executable, "-m", "remat", "plan", str(tmp_path / "g.json"), "-b", "100%", "--json"]
    said = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert said["gap_limit"] == pytest.approx(float(planning.GAP.rstrip("%")) / 100)


def test_a_gap_ends_planning_with_what_is_proved_so_near() -> None:
    graph = chain(40)
    near = remat.plan(graph, "20%", gap="20%", time_limit=None, work_limit=400_000)
    assert near.stopped_by == "gap"
    assert near.gap is not None
    assert 0 < near.gap <= 0.2
    best = remat.plan(graph, "20%", time_limit=None, work_limit=400_000)
    assert best.stopped_by != "gap"
    assert best.duration <= near.duration
