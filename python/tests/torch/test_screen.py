"""`print(model.remat)` answers four questions, and says nothing that is not known."""

from __future__ import annotations

import json
import pickle
import re
from dataclasses import replace
from pathlib import Path

import pytest
import remat
import torch
from remat.torch import fit
from remat.torch.plan.model_report import ModelReport
from remat.torch.plan.screen import Remembered, overhead_within

OPTIONS = {"work_limit": 1_000_000, "time_limit": None}


def planned(budget: str = "60%", **options) -> ModelReport:
    torch.manual_seed(5)
    layers = [m for _ in range(8) for m in (torch.nn.Linear(64, 64), torch.nn.GELU())]
    loss = {"loss": lambda y: y.square().mean()}
    return fit(torch.nn.Sequential(*layers), torch.randn(256, 64), budget, **OPTIONS, **loss, **options).remat


def answers(report: ModelReport) -> dict[str, str]:
    """By question."""
    found: dict[str, str] = {}
    label = ""
    for line in str(report).splitlines():
        label = line[:15].strip() or label
        found[label] = " ".join([*found.get(label, "").split(), *line[15:].split()])
    return found


@pytest.mark.parametrize("executor", ["boxed", pytest.param("eager", marks=pytest.mark.long)])
def test_one_screen_answers_four_questions(executor: str) -> None:
    report = planned("85%" if executor == "eager" else "60%", executor=executor)
    part = report.largest()
    lines = str(report).splitlines()
    assert len(lines) <= 20
    assert max(map(len, lines)) <= 90
    said = answers(report)
    peak, budget = remat.format_bytes(part.predicted_peak), remat.format_bytes(part.budget)
    assert said["does it fit?"].startswith(f"yes: {peak} predicted, the budget is {budget}")
    assert f"{100 * part.overhead:.2f} % more time than {part.compared_with}" in said["what it costs"]
    assert f"no plan needs less than {remat.format_bytes(part.peak_lower_bound)}" in said["how sure?"]
    assert "steps that add to gradients:" in said["also planned"]
    # What `fit` measured in eager mode is there; what nobody measured is not.
    measured = re.search(r"(\S+ [KMG]?i?B) measured", said["does it fit?"])
    assert (measured is not None) == (executor == "eager")


def test_how_sure_is_the_bound_that_the_plan_was_searched_with() -> None:
    report = planned()
    part = report.largest()
    assert part.overhead > 0
    assert part.asked == part.budget
    least = 100 * (part.duration_lower_bound / part.graph.base_duration - 1)
    found = re.search(
        r"no plan within the budget (?:is faster|takes less than (\S+) % more time)", str(report)
    )
    assert found is not None
    assert least - 0.011 <= float(found[1] or 100 * part.overhead - 1e-4) <= least


def test_what_more_memory_buys_is_a_plan_that_exists() -> None:
    report = planned("50%", costs="roofline")
    part = report.largest()
    more = part.budget + part.budget // 10
    bought = overhead_within(part.graph, "fixed", more - part.reserve)
    assert bought is not None
    assert bought < part.overhead
    assert (
        f"{remat.format_bytes(more)}: {100 * bought:.2f} % more time, or less" in answers(report)["10 % more"]
    )
    found = remat.plan(part.graph, more - part.reserve, time_limit=None, work_limit=1_000_000).plan
    assert found is not None
    assert (found.peak or 0) <= more - part.reserve
    assert found.overhead == pytest.approx(bought)
    assert "op times: roofline, not measured here" in str(report)


def test_what_is_not_known_is_not_said() -> None:
    given = planned()
    report = planned(given.budget, plan=given.plan, accumulate=False)
    assert report.largest().within is None
    said = answers(report)
    assert said["10 % more"] == "not known for these options"
    assert "how much faster a plan can be is not known" in said["how sure?"]


def test_nothing_is_to_be_had_where_nothing_runs_again() -> None:
    said = answers(planned("100%"))
    assert said["what it costs"].startswith("no more time than the traced step's ops none of ")
    assert said["10 % more"] == "nothing: the step is as fast as it can be"


def test_a_step_that_was_measured_above_the_budget_does_not_fit() -> None:
    part = planned().largest()
    part.exceed(part.budget)
    assert answers(ModelReport([part]))["does it fit?"].startswith("NO: ")
    adding = replace(part, existing_gradients=1)
    said = answers(ModelReport([replace(part, exceeded=0), adding]))
    assert said["does it fit?"].startswith("yes: ")
    assert "which it does NOT keep" in said["also planned"]


def test_a_budget_is_searched_once() -> None:
    asked: list[int] = []
    within = Remembered(lambda budget: asked.append(budget))
    assert within(3) is None
    assert within(3) is None
    assert asked == [3]


def test_the_report_of_a_plan_can_be_pickled() -> None:
    part = planned().largest()
    again = pickle.loads(pickle.dumps(part))
    assert (again.predicted_peak, again.overhead, again.within) == (part.predicted_peak, part.overhead, None)


def test_before_the_first_plan_it_says_so() -> None:
    assert str(ModelReport()) == "nothing planned yet: run a training step first"


def test_the_page_says_that_its_amounts_are_without_the_reserve(tmp_path: Path) -> None:
    part = planned().largest()
    for reserve, expected in ((3 << 20, " (without the reserve of 3.00 MiB)"), (0, "")):
        replace(part, reserve=reserve).save(tmp_path / "plan.json", format="json", points=0)
        shown = json.loads((tmp_path / "plan.json").read_text())
        assert f"{part.name}, planned{expected}" in [plan["title"] for plan in shown["plans"]]
