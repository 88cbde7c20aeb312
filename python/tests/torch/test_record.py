"""A real step beside its plan: what was measured at every step, and what was predicted."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import remat
import remat.torch
import torch
from models import CASES, Case, case
from remat.torch import Recording, UnsupportedModelError, record
from torch import nn
from training import fit, step_peak

# Numbers of a few bytes (seeds, counters of batch norms) are not in plans.
FEW = 512


def recorded(model: nn.Module, inputs: tuple[torch.Tensor, ...], **options: Any) -> Recording:
    """Of a step that makes its gradients, with the model's tensors and the inputs."""

    def step() -> None:
        model.zero_grad()
        model(*inputs).backward()

    return record(step, resident=[model, *inputs], **options)


def overlaps(found: remat.torch.Recording) -> list[int]:
    """Bytes of the results that take the place of an argument, by step."""
    graph, plan = found.report.graph, found.report.plan
    sizes = [0] * len(plan)
    for step, _, output in remat.simulate(graph, plan.steps).overwrites:
        sizes[step] += int(graph.bytes[output])
    return sizes


@pytest.mark.parametrize(
    "each",
    [pytest.param(c, marks=pytest.mark.long if c.name == "encoder" else []) for c in CASES[:3]],
    ids=lambda each: each.name,
)
def test_memory_of_every_step_is_what_was_predicted(each: Case) -> None:
    model, inputs = each.build()
    fitted = fit(model, inputs, each.budgets[-1])
    found = recorded(fitted, inputs)
    assert found.report is fitted.remat.largest()
    assert len(found.measured) == len(found.predicted) == len(fitted.remat.plan)
    assert found.report.recomputed_steps > 0
    assert found.predicted_peak == fitted.remat.predicted_peak == found.predicted.max()
    # Where the strides of two arguments turn out to differ, nothing is written over either of them.
    over = overlaps(found)
    above = found.measured - found.predicted
    assert all(-FEW <= more <= size + FEW for more, size in zip(above.tolist(), over, strict=True))
    assert np.count_nonzero(above > FEW) < 0.05 * len(above)
    fitted.zero_grad()
    assert found.measured_peak == step_peak(fitted, inputs)
    assert found.excess == above.max()


def test_what_is_reserved_and_what_is_resident_beside_the_model_counts() -> None:
    model, inputs = case("mlp").build()
    optimizer = torch.optim.AdamW(model.parameters())
    fitted = fit(model, inputs, "100%", optimizer=optimizer)

    def step() -> None:
        optimizer.zero_grad()
        fitted(*inputs).backward()
        optimizer.step()

    found = record(step, resident=[fitted, optimizer, *inputs])
    assert found.predicted_peak == fitted.remat.predicted_peak
    assert abs(found.measured - found.predicted).max() <= FEW
    beside = torch.zeros(1 << 18)
    more = record(step, resident=[fitted, optimizer, *inputs, beside])
    assert (more.measured - found.measured == beside.untyped_storage().nbytes()).all()
    assert more.excess >= beside.untyped_storage().nbytes()


def test_a_step_is_measured_as_it_is_and_not_as_it_was_planned() -> None:
    model, inputs = case("mlp").build()
    fitted = fit(model, inputs, "100%")
    held: list[torch.Tensor] = []

    def step() -> None:
        fitted.zero_grad()
        loss = fitted(*inputs)
        held.append(torch.zeros(1 << 18))  # between the halves: nothing of the plan
        loss.backward()
        held.clear()

    found = record(step, resident=[fitted, *inputs])
    phases = [found.report.graph.op(op).phase for op in found.report.plan.steps]
    loss = phases.index("loss")
    assert abs(found.measured - found.predicted)[:loss].max() <= FEW
    assert (found.measured - found.predicted)[loss:].min() >= 4 << 18


def test_a_compiled_model_is_planned_by_the_warm_up() -> None:
    model, inputs = case("mlp").build()
    compiled = torch.compile(model, backend="remat", options={"budget": "75%", "work_limit": 20_000})
    found = recorded(compiled, inputs)
    assert found.measured_peak <= found.report.budget
    assert abs(found.measured - found.predicted).max() <= FEW


def test_the_step_with_the_highest_prediction_is_taken() -> None:
    model, inputs = case("mlp").build()
    fitted = fit(model, inputs, "100%")

    def accumulate() -> None:
        fitted.zero_grad()
        for _ in range(2):
            fitted(*inputs).backward()

    found = record(accumulate, resident=[fitted, *inputs])
    # The second one adds to the gradients of the first.
    assert found.report.existing_gradients > 0
    assert found.predicted_peak == max(part.predicted_peak for part in fitted.remat.parts)
    assert found.measured_peak == pytest.approx(found.predicted_peak, rel=0.02)


def test_results_are_those_of_a_step_that_nobody_looks_at() -> None:
    model, inputs = case("encoder").build()
    fitted = fit(model, inputs, "65%")

    def gradients(run: Callable[[Callable[[], None]], object]) -> list[torch.Tensor]:
        def step() -> None:
            fitted.zero_grad()
            torch.manual_seed(3)
            fitted(*inputs).backward()

        run(step)
        return [p.grad.clone() for p in fitted.parameters() if p.grad is not None]

    plain, looked_at = gradients(lambda step: step()), gradients(lambda step: record(step, warmup=0))
    assert len(plain) > 0
    assert all(torch.equal(a, b) for a, b in zip(plain, looked_at, strict=True))


def test_a_recording_is_a_page_with_both_lines(tmp_path: Path) -> None:
    model, inputs = case("mlp").build()
    found = recorded(fit(model, inputs, "75%", reserve=1 << 20), inputs)
    plan, graph = found.report.plan, found.report.graph
    assert plan.budget == found.report.budget - (1 << 20)
    assert plan.planner == found.report.planner
    data = json.loads(found.page(format="json", points=0).content)
    measured = data["plans"][0]["measured"]
    # Amounts of the page are the graph's: without the reserve.
    difference = found.measured - found.predicted
    assert measured == (plan.memory(graph) + difference).tolist()
    assert "measured" not in data["plans"][1]
    rows = list(csv.DictReader(io.StringIO(found.page(format="csv").content.decode())))
    assert [int(row["measured"]) for row in rows] == measured
    found.save(tmp_path / "r.html", points=0)
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    html = found._repr_html_()
    assert html is not None
    assert html.startswith("<iframe")
    assert f"steps = {len(plan)}" in str(found)


def test_on_cuda_the_allocators_counters_are_read_between_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counters say what the test wants: 1001, 1002, ... bytes at the most."""
    asked: list[str] = []

    def reset(device: torch.device) -> None:
        asked.append(device.type)

    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 1000)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 1000 + len(asked))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", reset)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    model, inputs = case("mlp").build()
    fitted = fit(model, inputs, "100%")

    def step() -> None:
        fitted.zero_grad()
        fitted(*inputs).backward()

    found = record(step, device="cuda")
    assert set(asked) == {"cuda"}
    # One at the start, one before every step that runs something, one behind each half.
    runs = [found.report.graph.op(op).kind != "remat.loss" for op in found.report.plan.steps]
    assert len(asked) == 1 + sum(runs) + 2
    # A step has the mark that is read behind it; the first one is read before the first step.
    assert found.measured.tolist() == list(range(1002, 1002 + len(runs)))
    # What was there at the start and is not resident is left out; the model is on the CPU.
    asked.clear()
    assert record(step, device="cuda", resident=[fitted]).measured_peak == found.measured_peak - 1000


def test_a_call_without_a_planned_step_is_refused() -> None:
    model, inputs = case("mlp").build()
    with pytest.raises(remat.UsageError, match="no planned step ran"):
        recorded(model, inputs)
    fitted = fit(model, inputs, "100%")
    with pytest.raises(remat.UsageError, match="to the end of its backward"):
        record(lambda: fitted(*inputs))
    with pytest.raises(remat.UsageError, match="meta does not count the memory"):
        recorded(fitted, inputs, device="meta")


def test_steps_that_are_in_flight_together_are_refused() -> None:
    model, inputs = case("mlp").build()
    fitted = fit(model, inputs, "100%", calls=2)

    def step() -> None:
        fitted.zero_grad()
        (fitted(*inputs) + fitted(*inputs)).backward()

    with pytest.raises(UnsupportedModelError, match="several calls of one"):
        record(step)


def test_a_compiler_that_keeps_no_order_is_refused() -> None:
    model, inputs = case("mlp").build()
    fitted = fit(model, inputs, "100%", executor="inductor")
    with pytest.raises(UnsupportedModelError, match='executor="inductor" does not run'):
        recorded(fitted, inputs)
