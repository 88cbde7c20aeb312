"""remat.layout, layout_buffers, check_layout."""

from __future__ import annotations

import json
import os
import pickle
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
import remat
from graphs import GraphDict, chain, graph_dicts, two_layers
from hypothesis import example, given, settings, strategies as st

Buffers = list[tuple[int, int, int]]


def overlaps(buffers: Buffers, offsets: list[int]) -> list[tuple[int, int]]:
    """Pairs that share a moment and a byte."""
    placed = [(*buffer, offset) for buffer, offset in zip(buffers, offsets, strict=True) if buffer[2] > 0]
    return [
        (i, j)
        for i, (low, high, size, offset) in enumerate(placed)
        for j, (low2, high2, size2, offset2) in enumerate(placed[:i])
        if low < high2 and low2 < high and offset < offset2 + size2 and offset2 < offset + size
    ]


WRITTEN_OVER = {
    "format": "remat.graph", "version": 1, "values": [{"bytes": 1}, {"bytes": 1}],
    "ops": [
        {"name": "make", "duration": 1, "inputs": [], "outputs": [0]},
        {"name": "over", "duration": 1, "inputs": [0], "outputs": [1], "over": [[0, 1]]},
    ],
    "inputs": [], "outputs": [],
}  # fmt: skip


@given(graph_dicts(), st.sampled_from([1, 16, 64]))
@example(WRITTEN_OVER, 1)
def test_a_plan_s_layout_keeps_apart_what_lives_at_once(d: GraphDict, alignment: int) -> None:
    graph = remat.Graph.from_dict(d)
    plan = remat.Plan(graph, list(range(graph.num_ops)))
    result = remat.layout(graph, plan, alignment=alignment)
    layout = result.layout
    assert layout is not None
    assert result.status == "optimal"
    placed = [b for b in layout.buffers if b.bytes > 0]
    shared = overlaps([(b.first, b.end, b.bytes) for b in placed], [b.offset for b in placed])
    # An output that is written over an input of its size has the input's place.
    sizes = [value["bytes"] for value in d["values"]]
    over = [pair for op in d["ops"] for pair in op.get("over", ())]
    one_place = [{read, made} for read, made in over if sizes[read] == sizes[made]]
    assert all({placed[i].value, placed[j].value} in one_place for i, j in shared)
    assert all(b.offset % alignment == 0 for b in layout.buffers)
    assert layout.arena == result.arena == result.best_arena == layout.resident + layout.pool
    assert result.arena >= result.arena_lower_bound >= result.live_peak >= plan.peak
    # An output of another size has a place of its own here, where in a plan it may take that of an input.
    if alignment == 1 and not any("over" in op for op in d["ops"]):
        assert result.live_peak == plan.peak
    remat.check_layout(graph, plan, layout)


@given(
    st.lists(
        st.tuples(st.integers(-5, 5), st.integers(1, 5), st.integers(0, 20)).map(
            lambda b: (b[0], b[0] + b[1], b[2])
        ),
        max_size=12,
    )
)
@settings(deadline=None)  # a busy machine is no failure
def test_buffers_of_one_s_own(buffers: Buffers) -> None:
    columns = np.array(buffers, dtype=np.int64).reshape(-1, 3).T
    result = remat.layout_buffers(*columns)
    offsets = result.offsets
    assert offsets is not None
    assert overlaps(buffers, offsets.tolist()) == []
    assert result.arena == max((o + b[2] for o, b in zip(offsets, buffers, strict=True)), default=0)
    assert result.layout is None


def test_a_layout_is_saved_and_read_and_checked(tmp_path: Path) -> None:
    graph = chain(6)
    plan = remat.plan(graph, "80%").plan
    assert plan is not None
    layout = remat.layout(graph, plan).layout
    assert layout is not None
    layout.save(tmp_path / "l.json")
    read = remat.load_layout(tmp_path / "l.json")
    assert read == layout == pickle.loads(pickle.dumps(layout))
    assert hash(read) == hash(layout)
    remat.check_layout(graph, plan, read)
    text = json.loads((tmp_path / "l.json").read_text())
    for buffer in text["buffers"]:
        buffer["offset"] = 0
    (tmp_path / "l.json").write_text(json.dumps(text))
    with pytest.raises(remat.PlanError, match="rule disjoint: buffer .* overlaps buffer"):
        remat.check_layout(graph, plan, remat.load_layout(tmp_path / "l.json"))
    text["more"] = 1
    (tmp_path / "l.json").write_text(json.dumps(text))
    with pytest.warns(UserWarning, match="ignored unknown keys: more"):
        remat.load_layout(tmp_path / "l.json")
    with pytest.raises(remat.PlanError, match="nowhere"):
        remat.load_layout(tmp_path / "nowhere.json")


def test_a_capacity_is_kept_or_proved_out_of_reach() -> None:
    full = remat.layout_buffers([0, 1, 2], [2, 3, 4], [4, 4, 4], capacity=8)
    assert (full.status, full.arena) == ("optimal", 8)
    none = remat.layout_buffers([0, 1, 2], [2, 3, 4], [4, 4, 4], capacity=7)
    assert (none.status, none.stopped_by) == ("infeasible", "proof")
    assert none.arena is None
    assert none.offsets is None
    assert (none.best_arena, none.arena_lower_bound, none.arena_bound_argument) == (8, 8, "live_peak")
    graph = remat.Graph.from_dict(two_layers())
    plan = remat.Plan(graph, [0, 1])
    assert remat.layout(graph, plan, "100%").arena == graph.keep_all_peak
    refused = remat.layout(graph, plan, 4096)
    assert refused.status == "infeasible"
    assert refused.layout is None


def hard(moments: int) -> tuple[list[int], list[int], list[int]]:
    """A full strip cut into pieces."""
    random = np.random.default_rng(1)
    living: list[tuple[int, int]] = []
    columns: tuple[list[int], list[int], list[int]] = ([], [], [])
    for at in range(moments):
        living = [(end, size) for end, size in living if end > at]
        free = 1000 - sum(size for _, size in living)
        while free > 0:
            size = min(free, int(random.integers(1, 300)))
            end = at + int(random.integers(1, 20 if random.random() < 0.3 else 4))
            living.append((end, size))
            free -= size
            for column, entry in zip(columns, (at, end, size), strict=True):
                column.append(entry)
    return columns


def test_limits_say_what_they_cut_off() -> None:
    result = remat.layout_buffers(*hard(300), capacity=1000, work_limit=1, time_limit=None)
    assert (result.status, result.stopped_by, result.arena) == ("unknown", "work", None)
    assert result.best_arena > 1000
    again = [remat.layout_buffers(*hard(100), work_limit=20_000, time_limit=None, seed=3) for _ in range(2)]
    assert again[0].offsets is not None
    assert again[1].offsets is not None
    assert again[0].offsets.tolist() == again[1].offsets.tolist()


def test_ctrl_c_returns_the_best_layout(ctrl_c_works: None) -> None:
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    result = remat.layout_buffers(*hard(600), time_limit=None)
    timer.join()
    assert result.arena is not None
    assert result.stopped_by in ("interrupted", "proof")


def test_bad_questions_are_refused() -> None:
    graph = chain(2)
    plan = remat.Plan(graph, list(range(graph.num_ops)))
    with pytest.raises(remat.UsageError, match=r"alignment 0 is outside"):
        remat.layout(graph, plan, alignment=0)
    with pytest.raises(remat.BudgetError):
        remat.layout(graph, plan, -1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'threads'"):
        remat.layout(graph, plan, threads=2)  # type: ignore[call-arg]
    with pytest.raises(remat.UsageError, match="lower, upper and size have 1, 2 and 1 entries"):
        remat.layout_buffers([0], [1, 2], [3])
    with pytest.raises(remat.RematError, match="buffer 0: its life ends at 1, not after it begins at 1"):
        remat.layout_buffers([1], [1], [3])
    with pytest.raises(remat.PlanError):
        remat.layout(chain(3), plan)


@given(graph_dicts(), st.sampled_from([1, 16]))
def test_a_budget_on_the_arena_holds_for_the_arena(d: GraphDict, alignment: int) -> None:
    graph = remat.Graph.from_dict(d)
    everything = remat.layout(graph, remat.Plan(graph, list(range(graph.num_ops))), alignment=alignment)
    budget = max(1, everything.best_arena - 1)
    for amount in (budget, everything.best_arena):
        if amount == 0:
            continue
        result = remat.plan(
            graph, amount, budget_on="arena", alignment=alignment, work_limit=20_000, time_limit=None
        )
        if result.plan is None:
            assert amount < everything.best_arena
            assert result.layout is result.arena is None
            continue
        assert result.layout is not None
        assert result.arena == result.layout.arena
        assert result.arena <= amount
        remat.check_layout(graph, result.plan, result.layout)


def test_a_plan_says_what_arena_it_needs() -> None:
    graph = chain(6, size=128)
    result = remat.plan(graph, "80%", work_limit=20_000, time_limit=None)
    assert result.plan is not None
    assert result.arena == remat.layout(graph, result.plan).arena
    assert result.layout is None
    with pytest.raises(remat.UsageError, match="budget_on='all' is not one of peak, arena, reserved"):
        remat.plan(graph, "80%", budget_on="all")  # type: ignore[arg-type]
    with pytest.raises(remat.UsageError, match="budget_on='arena' goes with objective='time' only"):
        remat.plan(graph, "80%", budget_on="arena", objective="peak")
    with pytest.raises(remat.NoPlanError) as raised:
        remat.plan(graph, "90%", "keep_all", budget_on="arena", alignment=1, check=True)
    assert raised.value.smallest_known == graph.keep_all_peak
