"""`sweep` and `report`: overhead against memory, and what fills the peak."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import remat
import remat.torch
import torch
from models import case
from remat.torch.plan.peak import peak_report
from training import fit

ROOFLINE = {"costs": "roofline", "device": "cpu"}


def test_a_sweep_is_a_falling_curve_whose_budgets_work() -> None:
    model, inputs = case("mlp").build()
    swept = remat.torch.sweep(model, inputs, points=6, work_limit=20_000, **ROOFLINE)
    assert [row.overhead for row in swept.rows] == sorted(row.overhead for row in swept.rows)
    budgets = [row.budget for row in swept.rows]
    assert budgets == sorted(set(budgets), reverse=True)
    assert budgets[0] == swept.keep_all_peak
    assert budgets[-1] >= swept.floor
    assert swept.rows[0].overhead == 0 < swept.rows[-1].overhead
    row = swept.rows[-1]
    assert row.seconds == pytest.approx(swept.graph.base_duration * (1 + row.overhead) / 1e9)
    # Workspaces, which a roofline does not know, come on top.
    fitted = fit(model, inputs, row.budget + 1000, plan=row.plan, **ROOFLINE)
    assert row.budget <= fitted.remat.predicted_peak <= row.budget + 1000


def test_a_sweep_is_a_table_and_data() -> None:
    model, inputs = case("mlp").build()
    swept = remat.torch.sweep(
        model, inputs, points=3, work_limit=20_000, reserve=1000, accumulate=False, **ROOFLINE
    )
    data = json.loads(json.dumps(swept.to_dict()))
    assert [row["budget"] for row in data["rows"]] == [row.budget for row in swept.rows]
    assert data["keep_all_peak"] == swept.graph.keep_all_peak + 1000
    table = str(swept).splitlines()
    assert len(table) == 1 + len(swept.rows)
    assert f"{swept.rows[-1].overhead:.2%}" in table[-1]


def test_a_report_accounts_for_every_byte_of_the_peak() -> None:
    model, inputs = case("encoder").build()
    fitted = fit(model, inputs, "70%", reserve=5000)
    report = remat.torch.report(fitted)
    assert report.peak == fitted.remat.predicted_peak
    assert sum(row.bytes for row in report.rows) == report.peak
    assert sum(report.by_category().values()) == sum(report.by_module().values()) == report.peak
    categories = report.by_category()
    assert categories["parameters"] == sum(4 * p.numel() for p in model.parameters())
    assert categories["inputs"] == 4 * inputs[0].numel()
    assert categories["reserve"] >= 5000
    assert any(m.startswith("encoder.layers.1.") for m in report.by_module())
    assert set(report.by_module(depth=1)) <= {"", "encoder", "head"}
    assert str(report).startswith(
        f"peak = {remat.format_bytes(report.peak)}\nat = step {report.step} of {report.steps}: "
    )


def test_a_report_tells_recomputed_activations_from_kept_ones() -> None:
    graph = remat.Graph(
        values=[{"bytes": 8, "name": "parameter a.weight"}, 4, 2, 1],
        ops=[
            {"name": "a", "duration": 1, "inputs": [0], "outputs": [1], "module": "a", "phase": "forward"},
            {"name": "b", "duration": 1, "inputs": [1], "outputs": [2], "module": "b", "phase": "forward"},
            {
                "name": "c",
                "duration": 1,
                "inputs": [1, 2],
                "outputs": [3],
                "module": "a",
                "phase": "backward",
                "workspace": 5,
            },
        ],
        inputs=[0],
        outputs=[3],
    )
    report = peak_report(graph, [0, 1, 0, 2])
    assert (report.step, report.peak) == (3, 20)
    rows = {(row.module, row.category): row.bytes for row in report.rows}
    assert rows == {
        ("a", "parameters"): 8,
        ("a", "recomputed activations"): 4,
        ("b", "activations"): 2,
        ("a", "gradients of parameters"): 1,
        ("a", "workspace"): 5,
    }
    assert peak_report(graph, [0, 1, 2]).by_category()["activations"] == 6


def test_a_report_of_a_model_that_was_not_planned_is_of_keeping_everything() -> None:
    model, inputs = case("mlp").build()
    whole = remat.torch.report(model, inputs, **ROOFLINE)
    assert whole.peak == remat.torch.report(model, inputs, budget="100%", **ROOFLINE).peak
    assert whole.peak <= remat.torch.capture(model, inputs, **ROOFLINE).keep_all_peak
    part = remat.torch.report(model, inputs, budget="80%", work_limit=20_000, **ROOFLINE)
    assert part.peak <= 0.8 * whole.peak
    with pytest.raises(remat.UsageError, match="needs sample_inputs"):
        remat.torch.report(model)


def test_graph_inputs_are_named_after_what_they_are() -> None:
    model, inputs = case("conv_net").build()
    model.layers = model.layers[:3]
    graph = remat.torch.capture(model, inputs, **ROOFLINE)
    names = {graph.value_name(v) for v in graph.inputs}
    expected = {f"parameter {name}" for name, _ in model.named_parameters()}
    expected |= {f"buffer {name}" for name, _ in model.named_buffers()}
    assert expected <= names
    assert len([name for name in names if name.startswith("input ")]) == 1


def test_the_command_line_plans_a_captured_graph(tmp_path) -> None:
    model, inputs = case("mlp").build()
    graph, plan = tmp_path / "step.json", tmp_path / "plan.json"
    remat.torch.capture(model, inputs, **ROOFLINE).save(graph)

    def run(*arguments: object) -> str:
        command = [sys.executable, "-m", "remat", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path.cwd()).stdout

    run("plan", graph, "--budget", "80%", "--time-limit", "1", "-o", plan)
    assert "valid = true" in run("check", graph, plan)
    assert "layers.15" in run("info", graph, "--top", "1000")
    fitted = fit(model, inputs, "85%", plan=str(plan), **ROOFLINE)
    assert fitted.remat.plan.steps == remat.load_plan(plan).steps
    assert torch.isfinite(fitted(*inputs))


def test_a_fitted_model_saves_a_page_of_its_plan(tmp_path: Path) -> None:
    model, inputs = case("mlp").build()
    fitted = fit(model, inputs, "80%", **ROOFLINE)
    fitted.remat.save(tmp_path / "r.json", format="json", points=0)
    data = json.loads((tmp_path / "r.json").read_text())
    part = fitted.remat.largest()
    assert data["plans"][0]["steps"] == part.plan.steps
    assert data["plans"][0]["peak"] == part.plan.peak
    assert "<svg" in fitted.remat._repr_html_()


def test_a_notebook_shows_a_sweep_with_what_is_reserved() -> None:
    model, inputs = case("mlp").build()
    swept = remat.torch.sweep(model, inputs, points=3, work_limit=20_000, reserve=1 << 40, **ROOFLINE)
    assert f"{remat.format_bytes(swept.keep_all_peak)}, keep all" in swept._repr_html_()
