"""Durations that other programs disturb, with a clock that does what the test wants."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterator

import pytest
import remat.torch
import torch
from models import case
from remat.torch.cost import profile, standins
from remat.torch.cost.cost import Cost
from remat.torch.cost.timing import Stopwatch, clock_of_ops

US = 1000


class Runs:
    """Durations that runs take one after the other; counts them."""

    def __init__(self, *durations: int) -> None:
        self.left: Iterator[int] = itertools.chain(durations, itertools.repeat(durations[-1]))
        self.count = 0

    def __call__(self) -> int:
        self.count += 1
        return next(self.left)


@pytest.mark.parametrize(
    ("durations", "expected", "runs"),
    [
        ([100, 105, 98], 100, 3),
        ([100, 800, 98, 102], 100, 4),
        ([900, 800, 700, 100, 105, 98], 100, 6),
        ([800, 790, 810], 800, 3),
        ([100, 200, 300, 400, 500, 600, 700, 800, 900], 200, 9),
    ],
    ids=["quiet", "one run disturbed", "busy at first", "busy all the time", "never agrees"],
)
def test_runs_are_repeated_until_the_least_three_agree(durations, expected, runs) -> None:
    run = Runs(*(d * US for d in durations))
    assert Stopwatch().time(run) == expected * US
    assert run.count == runs


def test_two_runs_of_a_very_long_op_are_enough_if_they_agree() -> None:
    ms = 1000 * US
    for before, then, runs, expected in (
        ([200, 205], 201, 0, 200),
        ([205, 200], 201, 0, 200),
        ([300, 200], 201, 1, 200),
        ([99, 97], 98, 1, 98),
    ):
        run = Runs(then * ms)
        assert Stopwatch().time(run, [ms * b for b in before]) == expected * ms
        assert run.count == runs
    # What other processes take part in runs as often everywhere.
    run = Runs(200 * ms)
    Stopwatch().time(run, [200 * ms, 200 * ms], repeats=False)
    assert run.count == 3


def test_short_ops_are_not_repeated_for_a_microsecond() -> None:
    run = Runs(1 * US, 3 * US, 2 * US)
    assert Stopwatch().time(run) == 2 * US
    assert run.count == 3


def test_repeats_of_all_ops_together_take_no_longer_than_their_first_runs_and_a_second() -> None:
    stopwatch, second = Stopwatch(), 10**9
    total = 0
    for _ in range(20):
        run = Runs(*(second * n for n in range(1, 20)))
        stopwatch.time(run)
        total += run.count
    # First runs: 20 x 6 s. Repeats of 4, 5, ... s end once they have taken 1 s more than those.
    assert 20 * 3 < total < 20 * 6


@pytest.mark.parametrize(("busy", "pairs"), [(False, 10), (True, 10), (True, 1)])
def test_a_busy_machine_is_said_with_the_spread_where_many_ops_were_measured(caplog, busy, pairs) -> None:
    stopwatch = Stopwatch()
    for _ in range(pairs):
        stopwatch.time(Runs(*(50 * US * n for n in (range(1, 20) if busy else [1]))))
        stopwatch.time(Runs(100 * US))
    with caplog.at_level(logging.WARNING, "remat.torch"):
        stopwatch.warn_of_noise()
    said = [record.getMessage() for record in caplog.records]
    assert bool(said) == (busy and pairs > 1)
    if said:
        assert "10 of 20 ops, 50 % of the step's time, moved by up to 400 % between runs" in said[0]


def test_ops_are_timed_by_the_stopwatch(monkeypatch) -> None:
    """Every second run takes ten times as long, by a clock that only the ops move."""
    now, runs = 0, 0

    def op(x: torch.Tensor) -> torch.Tensor:
        nonlocal now, runs
        runs += 1
        now += 1_000_000 if runs % 2 else 100_000
        return x + 1

    monkeypatch.setattr(profile, "clock_of_ops", lambda: lambda: now)
    monkeypatch.setattr(profile, "_leave_the_cache", lambda: None)
    cost = profile._measure_traced(lambda: op(torch.zeros(64)), Stopwatch().time)
    assert cost.duration == 100_000


def test_sweep_and_fit_of_one_process_use_the_same_costs(monkeypatch) -> None:
    model, inputs = case("mlp").build()
    swept = remat.torch.sweep(model, inputs, points=2, work_limit=1000)
    monkeypatch.setattr(profile, "measure_op", lambda *_, **__: pytest.fail("measured again"))
    captured = remat.torch.capture(model, inputs)
    fitted = remat.torch.fit(model, inputs, "90%", work_limit=1000).remat
    assert captured == swept.graph
    assert fitted.graph.base_duration == swept.graph.base_duration
    assert fitted.parts[0].distinct_ops == 0


def test_costs_that_are_written_to_a_file_are_measured_anew(tmp_path, monkeypatch) -> None:
    model, inputs = case("mlp").build()
    remat.torch.capture(model, inputs)
    measured: list[str] = []
    measure = profile.measure_op
    monkeypatch.setattr(
        profile,
        "measure_op",
        lambda node, watch, given: (measured.append(node.name), measure(node, watch, given=given))[1],
    )
    assert remat.torch.measure_costs(model, inputs, tmp_path / "costs.json") == len(measured) > 0


def test_what_other_ranks_take_part_in_runs_as_often_however_far_apart_its_runs_are() -> None:
    runs = Runs(*(50 * US * n for n in range(1, 20)))
    Stopwatch().time(runs, repeats=False)
    assert runs.count == 3


@pytest.mark.parametrize(
    ("before", "repeats", "runs"),
    [
        ((30000, 30000), True, 1),
        ((90000, 30000), True, 2),
        ((30000, 90), True, 3),
        ((30000, 30000), False, 3),
    ],
    ids=["long", "long, the first run longer", "short", "with other ranks"],
)
def test_runs_for_other_purposes_count_for_long_ops(before, repeats, runs) -> None:
    run = Runs(30000 * US)
    assert Stopwatch().time(run, [d * US for d in before], repeats) == 30000 * US
    assert run.count == runs


@pytest.mark.parametrize(
    "numel", [0, 1, standins.DIFFERENT - 1, standins.DIFFERENT, 3 * standins.DIFFERENT + 7]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_tensors_for_measuring_are_filled_with_small_positive_numbers(numel, dtype) -> None:
    made = standins.stand_in(torch.empty(numel, dtype=dtype, device="cpu"))
    numbers = torch.view_as_real(made) if dtype.is_complex else made
    assert ((numbers >= 0.25) & (numbers <= 0.75)).all()


def test_ops_are_timed_again_later_and_the_least_counts(monkeypatch) -> None:
    graph = torch.fx.experimental.proxy_tensor.make_fx(lambda x: x.sin().exp(), tracing_mode="fake")(
        torch.zeros(64)
    )
    nodes = {node.name: node for node in graph.graph.nodes if node.op == "call_function"}
    ticks = itertools.count(step=5_000)
    monkeypatch.setattr(profile, "clock_of_ops", lambda: lambda: next(ticks))
    found = {"sin": Cost(90_000, 1, (256,)), "exp": Cost(4_000, 2, (256,))}
    again = profile._timed_again(nodes, found, profile.RealValues.none())
    assert again == {"sin": Cost(5_000, 1, (256,))}


def test_the_time_of_others_is_not_that_of_ops() -> None:
    assert torch.get_num_threads() == 1
    clock = clock_of_ops()
    before = clock()
    time.sleep(0.05)
    assert clock() - before < 20_000_000
