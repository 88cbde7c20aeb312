"""Planners that are Python functions."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import remat

WORK = {"work_limit": 100_000, "time_limit": None}


@pytest.fixture
def graph() -> remat.Graph:
    return remat.generate("chain", length=8, bytes=100)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """One that no other test has: registered planners stay."""
    return str(request.node.name)


def keep_all(problem: remat.PlannerProblem) -> list[int]:
    return list(range(problem.graph.num_ops))


def test_a_function_is_a_planner_of_every_call(graph: remat.Graph, name: str) -> None:
    asked: list[remat.PlannerProblem] = []

    def mine(problem: remat.PlannerProblem) -> list[int]:
        asked.append(problem)
        assert not problem.spend(10)
        return keep_all(problem)

    remat.register_planner(name, mine, description="every op once", source="a test")
    listed = remat.planners()[-1]
    assert (listed.name, listed.description, listed.source) == (name, "every op once", "a test")
    result = remat.plan(graph, "100%", planner=name, seed=7, options={"k": True}, **WORK)
    assert (result.status, result.planner, result.peak) == ("optimal", name, graph.keep_all_peak)
    (problem,) = asked
    assert (problem.budget, problem.order, problem.objective) == (graph.keep_all_peak, "fixed", "time")
    assert (problem.seed, problem.options) == (7, {"k": "on"})
    assert problem.graph.to_dict() == graph.to_dict()
    with pytest.raises(remat.UsageError, match="the call of the planner has ended"):
        problem.spend()
    assert len(remat.sweep(graph, 3, planner=name, **WORK).points) > 0
    rows = remat.compare(graph, "60%", ["greedy", name], **WORK)
    assert (rows[name].over_budget, rows[name].peak) == (True, graph.keep_all_peak)
    assert rows[name].peak_bound == rows["greedy"].peak_bound


def test_a_plan_may_be_returned_and_nothing_too(graph: remat.Graph, name: str) -> None:
    greedy = remat.plan(graph, "70%", planner="greedy", **WORK)
    remat.register_planner(name, lambda problem: greedy.plan)
    assert remat.plan(graph, "70%", planner=name, **WORK).overhead == greedy.overhead
    remat.register_planner(name, lambda problem: None)
    nothing = remat.plan(graph, "70%", planner=name, **WORK)
    assert (nothing.status, nothing.plan, nothing.closest) == ("unknown", None, None)


def test_a_faulty_planner_gives_one_line_and_does_not_end_a_comparison(graph: remat.Graph, name: str) -> None:
    remat.register_planner(name, lambda problem: [1, 0])
    line = f"planner '{name}': rule input_ready: step 0: op 1"
    with pytest.raises(remat.PlanError, match=re.escape(line)) as raised:
        remat.plan(graph, "70%", planner=name, **WORK)
    assert (raised.value.rule, raised.value.step) == ("input_ready", 0)
    rows = remat.compare(graph, "70%", [name, "greedy"], **WORK)
    assert rows[name].note.startswith(f"not valid: {line}")
    assert rows["greedy"].overhead is not None
    remat.register_planner(name, lambda problem: ["first"])  # type: ignore[list-item]
    with pytest.raises(remat.PlanError, match=f"planner '{name}': steps"):
        remat.plan(graph, "70%", planner=name, **WORK)

    def broken(problem: remat.PlannerProblem) -> list[int]:
        raise ZeroDivisionError("no cost")

    remat.register_planner(name, broken)
    with pytest.raises(ZeroDivisionError, match="no cost"):
        remat.plan(graph, "70%", planner=name, **WORK)
    assert remat.compare(graph, "70%", [name], **WORK)[name].note == "ZeroDivisionError: no cost"


def test_what_a_planner_does_not_support_is_said(graph: remat.Graph, name: str) -> None:
    def supports(problem: remat.PlannerProblem) -> str | None:
        return "fixed order only" if problem.order == "free" else None

    remat.register_planner(name, keep_all, supports=supports)
    assert remat.plan(graph, "100%", planner=name, **WORK).plan is not None
    rows = remat.compare(graph, "100%", [name], order="free", **WORK)
    assert (rows[name].status, rows[name].note) == ("not run", "fixed order only")


def test_a_limit_ends_a_planner_that_counts_its_work(graph: remat.Graph, name: str) -> None:
    def endless(problem: remat.PlannerProblem) -> list[int]:
        while not problem.spend(1000):
            pass
        return keep_all(problem)

    remat.register_planner(name, endless)
    assert remat.plan(graph, "70%", planner=name, **WORK).stopped_by == "work"


@pytest.mark.parametrize("bad", ["auto", "", "a b"])
def test_names_that_it_cannot_have_are_refused(bad: str) -> None:
    with pytest.raises(remat.UsageError, match="name"):
        remat.register_planner(bad, keep_all)


def test_a_file_says_what_was_asked_of_a_planner_that_others_have_too(
    graph: remat.Graph, name: str, tmp_path: Path
) -> None:
    remat.register_planner(name, keep_all)
    for planner, has_request in ((name, False), ("greedy", True)):
        plan = remat.plan(graph, "100%", planner=planner, **WORK).plan
        assert plan is not None
        plan.save(tmp_path / "plan.json")
        assert ("request" in json.loads((tmp_path / "plan.json").read_text())) == has_request
