"""remat.Host, and plans with copies to it and back."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import remat

ROOT = Path(__file__).parents[2]
COPIES = [(0, "out", 0, 2), (0, "in", 3, 3)]


def example() -> remat.Graph:
    return remat.load_graph(ROOT / "docs" / "examples" / "host.json")


def test_the_worked_example_of_the_model() -> None:
    cost = remat.simulate(example(), range(4), COPIES, "4MB/s")
    assert list(cost.memory) == [4, 6, 3, 6]
    assert (cost.peak, cost.duration, cost.stalled) == (6, 9, 1)
    assert (cost.bytes_out, cost.bytes_in, cost.host_peak) == (4, 4, 4)
    assert cost.busy_out == cost.busy_in == pytest.approx(1 / 9)
    assert remat.simulate(example(), range(4), COPIES, remat.Host(1e6, "1MB/s")).duration == 14
    assert remat.simulate(example(), range(4), COPIES, 1e6).duration == 14


def test_memory_needs_no_host_and_durations_do() -> None:
    cost = remat.simulate(example(), range(4), COPIES)
    assert cost.peak == 6
    with pytest.raises(remat.UsageError, match="not known without a host"):
        cost.duration  # noqa: B018
    plan = remat.Plan(example(), range(4), copies=COPIES)
    assert (plan.duration, plan.overhead, plan.peak) == (None, None, 6)


def test_a_plan_keeps_copies_and_host_in_its_file(tmp_path: Path) -> None:
    host = remat.Host(out="2MB/s", in_=1e6, latency=1e-6, budget="1KiB", shared=True)
    plan = remat.Plan(example(), range(4), copies=COPIES, host=host)
    plan.save(tmp_path / "p.json")
    read = remat.load_plan(tmp_path / "p.json")
    assert read == plan == pickle.loads(pickle.dumps(plan))
    assert (read.copies, read.host) == (COPIES, host)
    assert remat.check(example(), read).duration == plan.duration == 14
    with pytest.raises(remat.PlanError, match="duration: the plan says 14, recomputed 9"):
        remat.check(example(), read, "4MB/s")
    assert json.loads((tmp_path / "p.json").read_text())["version"] == 2


def test_a_host_says_what_it_is() -> None:
    host = remat.Host("25GB/s", 12.5e9, latency=10e-6, budget=64)
    assert (host.out, host.in_, host.latency, host.budget) == (25 * 10**9, 12_500_000_000, 10e-6, 64)
    assert host == remat.Host(25e9, 12.5e9, 10e-6, 64) != remat.Host(25e9, 12.5e9, 10e-6)
    assert hash(host) == hash(remat.Host(25e9, 12.5e9, 10e-6, 64))
    written = "remat.Host(out=25000000000, in_=12500000000, latency=1e-05, budget=64, shared=False)"
    assert repr(host) == written


@pytest.mark.parametrize(
    ("copies", "message"),
    [
        ([(0, "out", 0, 2)], "rule on_device: step 3"),
        ([(0, "up", 0, 2)], "copy 0: way: found 'up' instead of 'out' or 'in'"),
        ([(0, "out", 0)], "copy 0: found 3 entries instead of value, way, issue and wait"),
        ([(0, "out", -1, 2)], "copy 0: issue: found -1 instead of an index"),
        ([(7, "out", 0, 2)], "rule copy_value"),
    ],
)
def test_copies_that_break_a_rule(copies: list[tuple[int, str, int, int]], message: str) -> None:
    with pytest.raises(remat.PlanError, match=message):
        remat.simulate(example(), range(4), copies)


def test_hosts_that_are_none() -> None:
    for call in (
        lambda: remat.Host(0, 1),
        lambda: remat.Host("fast", 1),
        lambda: remat.Host(1, 1, latency=-1),
    ):
        with pytest.raises(remat.RematError):
            call()
    data = example().to_dict() | {"time_unit": "cycles"}
    with pytest.raises(remat.GraphError, match="time unit is 'cycles'"):
        remat.simulate(remat.Graph.from_dict(data), range(4), COPIES, 1e6)


def test_a_plan_with_a_host_copies_where_that_is_cheaper() -> None:
    graph = example()
    with_host = remat.plan(graph, 6, host="4MB/s", work_limit=2000, check=True)
    without = remat.plan(graph, 6, work_limit=2000, check=True)
    assert (with_host.duration, without.duration) == (9, 10)
    assert with_host.plan is not None
    assert with_host.plan.copies
    assert with_host.plan.host == remat.Host("4MB/s", "4MB/s")
    assert remat.check(graph, with_host.plan).duration == 9
    with pytest.raises(remat.UsageError, match="do not go together"):
        remat.plan(graph, 6, host="4MB/s", budget_on="arena")


def test_a_sweep_with_a_host_goes_below_what_plans_without_one_reach() -> None:
    graph = example()
    fast = remat.sweep(graph, 3, host="1GB/s", work_limit=20_000, time_limit=None)
    without = remat.sweep(graph, 3, work_limit=20_000, time_limit=None)
    assert [point.budget for point in fast.points] == [7, 6]
    assert fast.smallest_peak == without.smallest_peak == 6
    overheads = [point.overhead for point in fast.points]
    assert overheads == sorted(overheads)
    assert fast.points[-1].duration < without.points[-1].duration
    assert fast.points[-1].plan.host == remat.Host("1GB/s", "1GB/s")
    assert fast.points[-1].plan.copies


def test_the_planners_for_comparison_need_a_host() -> None:
    graph = example()
    with pytest.raises(remat.UsageError, match="it needs a host"):
        remat.plan(graph, 6, "offload_only")
    alone = remat.plan(graph, 6, "offload_only", host="1GB/s", work_limit=2000, check=True)
    assert alone.plan is not None
    assert len(alone.plan.steps) == graph.num_ops


def test_the_stub_has_every_public_name_of_a_host() -> None:
    from pathlib import Path

    stub = Path(remat._core.__file__).parent / "_core.pyi"
    text = stub.read_text().split("class Host:")[1].split("\nclass ")[0]
    for name in (name for name in vars(remat.Host) if not name.startswith("_")):
        assert f"def {name}(self)" in text
