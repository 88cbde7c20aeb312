"""`remat.report`, what notebooks show, and the files for other viewers as those viewers read them."""

from __future__ import annotations

import csv
import html
import io
import json
import pickle
import shutil
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import remat
from graphs import chain

WORK: dict[str, Any] = {"time_limit": None, "work_limit": 100_000}


def planned(graph: remat.Graph, budget: str = "50%") -> remat.PlanResult:
    return remat.plan(graph, budget, check=True, **WORK)


def shown(graph: remat.Graph, *args: Any, **options: Any) -> Any:
    return json.loads(remat.report(graph, *args, format="json", **{"points": 0, **options}).content)


def test_a_report_is_one_page_that_save_writes(tmp_path: Path) -> None:
    graph = chain(12)
    report = remat.report(graph, planned(graph), points=4, **WORK)
    report.save(tmp_path / "r.html")
    assert (tmp_path / "r.html").read_bytes() == report.content
    assert report.content.startswith(b"<!doctype html>")
    assert report.format == "html"
    assert repr(report) == f"<remat.Report: html, {len(report.content)} bytes>"
    with pytest.raises(remat.RematError, match="No such file"):
        report.save(tmp_path / "missing" / "r.html")


def test_lives_and_workspaces_add_up_to_the_simulators_memory() -> None:
    graph = chain(12)
    plan = planned(graph).plan
    assert plan is not None
    data = shown(graph, plan)
    one = data["plans"][0]
    memory = np.zeros(len(plan) + 1, dtype=np.int64)
    for value, first, length in zip(
        *(one["lives"][key] for key in ("value", "first", "length")), strict=True
    ):
        memory[first] += graph.bytes[value]
        memory[first + length] -= graph.bytes[value]
    memory = memory.cumsum()[:-1] + sum(graph.bytes[i] for i in graph.inputs)
    memory += graph.workspaces[plan.steps]
    assert memory.tolist() == plan.memory(graph).tolist()
    assert one["peak"] == plan.peak


def test_plans_have_titles() -> None:
    graph = chain(12)
    half, less = (remat.plan(graph, budget, "rotor", **WORK) for budget in ("50%", "60%"))
    titles = lambda plans: [plan["title"] for plan in shown(graph, plans)["plans"]]  # noqa: E731
    assert titles({"a": half, "b": less}) == ["a", "b", "keep all"]
    assert titles([half, half]) == ["rotor, 650 B", "rotor, 650 B (2)", "keep all"]
    assert titles(remat.Plan(graph, list(range(graph.num_ops)))) == ["plan", "keep all"]
    assert titles(()) == ["keep all"]
    point = remat.sweep(graph, points=3, **WORK).points[-1]
    assert len(titles([point, half.plan])) == 3


def test_curves_are_made_or_given() -> None:
    graph = chain(12)
    data = shown(graph, points=3, planners=["greedy"], **WORK)
    assert [curve["planner"] for curve in data["curves"]] == ["auto", "greedy"]
    assert len(data["curves"][0]["points"]) == 3
    sweep = remat.sweep(graph, points=5, planner="greedy", **WORK)
    data = shown(graph, sweeps=sweep)
    assert [(curve["planner"], len(curve["points"])) for curve in data["curves"]] == [("greedy", 5)]
    free = remat.plan(graph, "60%", order="free", **WORK)
    assert shown(graph, free, points=2, **WORK)["curves"][0]["order"] == "free"


def test_what_is_refused() -> None:
    graph = chain(12)
    with pytest.raises(remat.PlanError, match="^x: "):
        remat.report(graph, {"x": planned(chain(5))})
    with pytest.raises(remat.UsageError, match="unknown format 'pdf'"):
        remat.report(graph, format="pdf", points=0)  # type: ignore[arg-type]
    with pytest.raises(remat.UsageError, match="shows one plan, not 2"):
        remat.report(graph, [planned(graph)] * 2, format="csv")
    with pytest.raises(remat.UsageError, match="not int"):
        remat.report(graph, [3])  # type: ignore[list-item]
    with pytest.raises(remat.UsageError, match="infeasible has no plan"):
        remat.report(graph, remat.plan(graph, 1))
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        remat.report(graph, colour="red")  # type: ignore[call-arg]


def test_a_report_says_what_an_allocator_takes() -> None:
    graph = chain(6, size=3 << 20)
    plan = planned(graph, "60%").plan
    assert plan is not None
    plans = shown(graph, {"a": plan}, allocator="cuda")["plans"]
    peaks = remat.simulate_allocator(graph, plan, "cuda")
    assert plans[0]["allocator"] == {
        "name": "cuda",
        "allocated": peaks.allocated,
        "reserved": peaks.reserved,
    }
    assert plans[1]["allocator"]["allocated"] >= graph.keep_all_peak
    assert "allocator" not in shown(graph)["plans"][0]
    for format, message in (("csv", "an allocator goes with the formats html and json"), ("json", "'x' is")):
        with pytest.raises(remat.UsageError, match=message):
            remat.report(graph, points=0, format=format, allocator="x")  # type: ignore[arg-type]


def test_csv_has_a_row_for_each_step() -> None:
    graph = chain(12)
    plan = planned(graph).plan
    assert plan is not None
    content = remat.report(graph, plan, format="csv").content.decode()
    rows = list(csv.DictReader(io.StringIO(content)))
    assert [int(row["memory"]) for row in rows] == plan.memory(graph).tolist()


def test_what_was_measured_stands_beside_what_was_predicted() -> None:
    graph = chain(12)
    plan = planned(graph).plan
    assert plan is not None
    amounts = [1000 + i for i in range(len(plan))]
    measured = {"a": amounts}
    first, keep_all = shown(graph, {"a": plan}, measured=measured)["plans"]
    assert first["measured"] == amounts
    assert "measured" not in keep_all
    rows = list(
        csv.DictReader(
            io.StringIO(remat.report(graph, {"a": plan}, format="csv", measured=measured).content.decode())
        )
    )
    assert [int(row["measured"]) for row in rows] == amounts
    trace = json.loads(remat.report(graph, {"a": plan}, format="perfetto", measured=measured).content)
    counters = [e["args"]["bytes"] for e in trace["traceEvents"] if e["name"] == "measured memory"]
    assert counters == [*amounts, 0]
    with pytest.raises(remat.PlanError, match=f"a: 3 steps were measured of {len(plan)}"):
        remat.report(graph, {"a": plan}, measured={"a": [1, 2, 3]})
    with pytest.raises(remat.UsageError, match="no plan is named 'b', which was measured"):
        remat.report(graph, {"a": plan}, measured={"b": amounts})
    with pytest.raises(remat.RematError, match="a measured amount is negative: -1"):
        remat.report(graph, {"a": plan}, measured={"a": [-1] * len(plan)})


def test_the_trace_event_file_keeps_to_its_format() -> None:
    """Of "Trace Event Format": what Perfetto's importer asks of complete events, counters and metadata."""
    graph = chain(12)
    plan = planned(graph).plan
    assert plan is not None
    trace = json.loads(remat.report(graph, {"a": plan}, format="perfetto").content)
    counters: dict[int, list[tuple[float, int]]] = {}
    ends: dict[tuple[int, int], float] = {}
    for event in trace["traceEvents"]:
        assert isinstance(event["pid"], int)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            assert isinstance(event["args"]["name"], str)
        elif event["ph"] == "C":
            assert all(isinstance(amount, int) for amount in event["args"].values())
            counters.setdefault(event["pid"], []).append((event["ts"], sum(event["args"].values())))
        else:
            assert event["ph"] == "X"
            track = event["pid"], event["tid"]
            # Slices of one track must not overlap, or the viewer nests them.
            assert ends.get(track, 0) <= event["ts"] * (1 + 1e-12)
            ends[track] = event["ts"] + event["dur"]
    assert [amount for _, amount in counters[1]] == [*plan.memory(graph).tolist(), 0]
    assert all(times == sorted(times) for times in ([t for t, _ in each] for each in counters.values()))


def test_perfettos_own_importer_reads_the_trace() -> None:
    processor = pytest.importorskip("perfetto.trace_processor", reason="there is no package perfetto")
    program = shutil.which("trace_processor_shell")
    if program is None:
        pytest.skip("there is no trace_processor_shell, which the package perfetto would fetch")
    graph = chain(12)
    plan = planned(graph).plan
    assert plan is not None
    content = remat.report(graph, {"a": plan}, format="perfetto").content
    config = processor.TraceProcessorConfig(bin_path=program)
    with processor.TraceProcessor(trace=iter([content]), config=config) as trace:
        assert next(iter(trace.query("select count(*) as n from slice"))).n == len(plan) + graph.num_ops


def test_pytorchs_viewer_reads_the_snapshot() -> None:
    graph = chain(12)
    plan = planned(graph).plan
    assert plan is not None
    snapshot = pickle.loads(remat.report(graph, plan, format="memory_viz").content)
    events = snapshot["device_traces"][0]
    live, most, blocks = 0, 0, {}
    for event in events:
        if event["action"] == "alloc":
            assert event["addr"] not in blocks
            blocks[event["addr"]] = event["size"]
            live += event["size"]
            most = max(most, live)
        elif event["action"] == "free_completed":
            live -= blocks.pop(event["addr"])
    assert most == plan.peak
    pytest.importorskip("torch")
    from torch.cuda import _memory_viz

    said = _memory_viz.trace(snapshot)
    assert f"{len(events)} entries" in said or said.count("\n") >= len(events)
    assert "MemoryViz" in _memory_viz.trace_plot(snapshot)


def pictures(cell: str) -> list[ET.Element]:
    """The drawings of a notebook's cell, which has to be well-formed."""
    return [each for each in ET.fromstring(cell).iter() if each.tag == "svg"]


def test_notebooks_show_graphs_plans_and_curves() -> None:
    graph = chain(12)
    result = planned(graph)
    assert result.plan is not None
    for cell, text in [
        (graph._repr_html_(), "keep-all peak"),
        (result._repr_html_(), "budget"),
        (remat.sweep(graph, points=4, **WORK)._repr_html_(), "knee"),
    ]:
        assert cell is not None
        (picture,) = pictures(cell)
        assert picture.get("aria-label")
        assert any(text in (each.text or "") for each in picture.iter("text"))
        assert "<script" not in cell
    assert pictures(result.plan._repr_html_()) == []
    assert f">{remat.format_bytes(result.plan.peak or 0)}<" in result.plan._repr_html_()
    assert remat.plan(graph, 1)._repr_html_() is None


def test_the_tops_of_the_areas_are_the_memory_of_the_plan() -> None:
    graph = chain(6)
    result = planned(graph, "70%")
    assert result.plan is not None
    cell = result._repr_html_()
    assert cell is not None
    (picture,) = pictures(cell)
    tops: dict[float, float] = {}
    for area in picture.iter("polygon"):
        for point in area.get("points", "").split():
            x, y = map(float, point.split(","))
            tops[x] = min(tops.get(x, 1e9), y)
    memory = [0, *result.plan.memory(graph).tolist(), 0]
    # Where two steps meet the higher one is seen; the axis is 160 high and ends 5 % above the keep-all peak.
    seen = [max(pair) for pair in pairwise(memory)]
    heights = [176 - 160 * bytes / (1.05 * graph.keep_all_peak) for bytes in seen]
    assert [tops[x] for x in sorted(tops)] == pytest.approx(heights, abs=0.06)


def test_a_name_cannot_end_a_cell() -> None:
    graph = remat.Graph([1], [remat.Op("<b>&", 1, [], [0])], outputs=[0], name='</div><script>"&')
    assert "<script" not in graph._repr_html_()
    assert pictures(graph._repr_html_())


def test_a_notebook_shows_a_report_in_a_frame() -> None:
    report = remat.report(chain(3), points=0)
    framed = report._repr_html_()
    assert framed is not None
    page = framed.partition('srcdoc="')[2].partition('"')[0]
    assert html.unescape(page).encode() == report.content
    assert remat.report(chain(3), points=0, format="json")._repr_html_() is None
