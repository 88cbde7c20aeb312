"""Every second of `fit` is in one phase of its report."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
import torch
from models import case
from remat.torch.base import account as module
from remat.torch.base.account import REST, Account, account, phase, since
from training import fit


class Clock:
    """Seconds pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += seconds


def fail_in(spent: Account, clock: Clock) -> None:
    with spent.phase("plan"):
        clock.passes(8)
        raise RuntimeError


def test_what_begins_inside_a_phase_is_taken_from_it() -> None:
    clock = Clock()
    spent = Account(clock)
    clock.passes(1)
    with spent.phase("dynamo"):
        clock.passes(2)
        with spent.phase("capture"):
            clock.passes(4)
            with pytest.raises(RuntimeError):
                fail_in(spent, clock)
        clock.passes(16)
        before = spent.seconds()
    clock.passes(32)
    with spent.phase("capture"):
        clock.passes(64)
    found = spent.seconds()
    assert list(found.items()) == [("dynamo", 18), ("capture", 68), ("plan", 8), (REST, 33)]
    assert sum(found.values()) == clock.now - 100
    assert since(before, found) == {"dynamo": 0, "capture": 64, "plan": 0, REST: 32}


def test_an_open_account_goes_on_and_without_one_nothing_is_counted() -> None:
    with phase("plan"):
        pass
    with account() as outer:
        with account() as inner, phase("plan"):
            assert inner is outer
        assert "plan" in outer.seconds()
    with account() as another:
        assert list(another.seconds()) == [REST]


@pytest.mark.parametrize("options", [{}, {"loss": lambda y: y.square().mean(), "verify": True}])
def test_the_phases_of_fit_add_up_to_its_time(monkeypatch, options) -> None:
    # The time of this thread: what the machine does besides is in neither.
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=time.thread_time))
    model, inputs = case("mlp").build()
    start = time.thread_time()
    fitted = fit(model if not options else model.layers, inputs, "80%", **options)
    whole = time.thread_time() - start
    seconds = fitted.remat.seconds
    assert sum(seconds.values()) == pytest.approx(whole, rel=0.02)
    asked = {"dynamo", "capture", "profile", "plan", "code", "calls", "verify", REST}
    assert set(seconds) == asked | ({"loss"} if options else set())
    assert all(value > 0 for value in seconds.values())
    text = str(fitted.remat)
    assert f"fit took       {sum(seconds.values()):.2f} s: " in text
    assert all(f"{name} {value:.2f}" in text for name, value in seconds.items())


def test_a_plan_for_another_shape_says_what_it_took() -> None:
    model, x = (
        torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)),
        torch.ones(4, 8),
    )
    fitted = fit(model, x, "100%", accumulate=False)
    before = dict(fitted.remat.seconds)
    fitted(torch.ones(5, 8)).sum().backward()
    assert fitted.remat.seconds == before
    for part in fitted.remat.parts:
        assert list(part.seconds) == ["capture", "profile", "plan", "code"]
        assert min(part.seconds.values()) > 0
