"""Values that leave for a host and come back: bits of eager mode, predicted peaks, whatever the clock."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable

import pytest
import remat
import remat.torch
import torch
from models import CASES, Case, case
from plans import random_plan, with_random_copies
from remat.torch.run import channels
from torch import nn
from training import fit, step_peak, train

HOST = "2GB/s"


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], float]], list[int]]:
    """Lets each copy begin so many seconds late, a function of its bytes; returns the sizes of all copies."""

    def late(seconds: Callable[[int], float]) -> list[int]:
        sizes: list[int] = []
        move = channels.move

        def late_move(target: int, source: int, size: int) -> None:
            time.sleep(seconds(size))
            sizes.append(size)
            move(target, source, size)

        monkeypatch.setattr(channels, "move", late_move)
        return sizes

    return late


def at_random(seed: int, most: float = 0.01) -> Callable[[int], float]:
    """Most copies a little late, some by `most` seconds."""
    rng = random.Random(seed)
    return lambda size: most * rng.random() ** 6


def fit_copying(
    model: nn.Module, inputs: tuple[torch.Tensor, ...], budget: str, **options: object
) -> nn.Module:
    """A plan that is not worth much without copies."""
    return fit(model, inputs, budget, **{"host": HOST, "time_limit": None, "work_limit": 30_000, **options})


@pytest.mark.parametrize("c", CASES, ids=lambda c: c.name)
def test_late_copies_change_neither_bits_nor_the_peak(c: Case, slow) -> None:
    model, inputs = c.build()
    eager = train(copy.deepcopy(model), inputs)
    sizes = slow(at_random(1))
    fitted = fit_copying(model, inputs, "60%")
    assert all(part.copied_out > 0 for part in fitted.remat.parts)
    assert eager.differences(train(fitted, inputs)) == []
    assert sizes
    adding, making = fitted.remat.parts[-1], fitted.remat.parts[0]
    assert adding.existing_gradients > 0
    assert step_peak(fitted, inputs) == pytest.approx(adding.predicted_peak, rel=1e-4)
    fitted.zero_grad()
    measured = step_peak(fitted, inputs)
    assert measured == pytest.approx(making.predicted_peak, rel=1e-4)
    assert measured <= making.budget


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["mlp", "conv_net", "encoder"])
def test_copies_at_any_time_of_any_plan_equal_eager(name: str, seed: int, slow) -> None:
    model, inputs = case(name).build()
    eager = train(copy.deepcopy(model), inputs)
    graph = remat.torch.capture(model, inputs, accumulate=False, host=HOST)
    plan = with_random_copies(graph, random_plan(graph, seed), seed)
    assert {way for _, way, _, _ in plan.copies} == {"out", "in"}
    slow(at_random(seed, 0.003))
    fitted = fit(model, inputs, 1 << 40, plan=plan, accumulate=False, host=HOST)
    assert eager.differences(train(fitted, inputs)) == []
    fitted.zero_grad()
    assert step_peak(fitted, inputs) == pytest.approx(fitted.remat.predicted_peak, rel=1e-4)


def test_the_device_is_waited_for_and_the_report_says_for_how_long(slow) -> None:
    model, inputs = case("mlp").build()
    fitted = fit_copying(model, inputs, "60%")
    (part, *_) = fitted.remat.parts
    assert part.traffic == remat.torch.Traffic()  # of training alone
    sizes = slow(lambda size: 0.02)
    for _ in range(2):
        fitted(*inputs).backward()
        fitted.zero_grad()
    assert part.traffic.calls == 2
    assert part.traffic.out == 2 * part.copied_out
    assert part.traffic.back == 2 * part.copied_in
    assert sum(sizes) == 2 * (part.copied_out + part.copied_in)
    assert part.traffic.stalled > 0.02
    assert part.host_peak > 0
    text = str(part)
    assert "copied_out = " in text
    assert "stalled_measured = " in text
    assert "copied out" in part.summary()


@pytest.mark.parametrize("way", ["out", "in"])
def test_a_wait_that_is_left_out_shows(way: str, slow, monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = case("mlp").build()
    eager = train(copy.deepcopy(model), inputs)
    fitted = fit_copying(model, inputs, "60%", accumulate=False)
    slow(lambda size: 0.03)
    wait = channels._Job.wait
    left_out = "remat out" if way == "out" else "remat in"
    put = channels._Worker.put

    def put_and_note(self, job):
        job.way = self._name
        return put(self, job)

    monkeypatch.setattr(channels._Worker, "put", put_and_note)
    monkeypatch.setattr(channels._Job, "wait", lambda job: 0.0 if job.way == left_out else wait(job))
    fitted(*inputs).backward()
    fitted.zero_grad()
    peak = step_peak(fitted, inputs)
    fitted.zero_grad()
    differences = eager.differences(train(fitted, inputs))
    if way == "in":
        assert differences
    else:
        assert peak > 1.01 * fitted.remat.predicted_peak or differences
    time.sleep(0.5)  # until what nobody waited for has ended
