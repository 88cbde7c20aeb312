"""Several threads of a process that trace, plan and train at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import remat.torch
import torch
from torch import nn

_EFFORT = {"work_limit": 10_000, "time_limit": None}


class Chain(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        layers = (each for _ in range(depth) for each in (nn.Linear(48, 48), nn.Tanh()))
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).square().mean()


def in_threads(work: Callable[[int], None], count: int = 2) -> None:
    """Runs work(0), work(1), ... at the same time; raises what they raise."""
    start, errors = threading.Barrier(count), []

    def run(i: int) -> None:
        start.wait()
        try:
            work(i)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def gradients(call: Any, model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    return list(torch.autograd.grad(call(x), list(model.parameters())))


def planned(mode: str, model: nn.Module, x: torch.Tensor) -> Any:
    if mode.endswith("fit"):
        return remat.torch.fit(model, x, "90%", **_EFFORT)
    return torch.compile(model, backend="remat", options={"budget": "90%", **_EFFORT})


one_log = pytest.mark.skipif(
    torch.__version__.startswith("2.10."),
    reason="PyTorch 2.10 keeps one log of compilations for all threads, and fails where two write to it",
)


@one_log
@pytest.mark.parametrize("same", [False, True], ids=["two models", "one model"])
@pytest.mark.parametrize("mode", ["fit", "compile"])
def test_first_steps_at_the_same_time_are_those_of_eager_mode(mode: str, same: bool) -> None:
    torch._dynamo.reset()
    # PyTorch's own registry is for one thread at a time where it meets the name first.
    torch._dynamo.lookup_backend("remat")
    torch.manual_seed(0)
    models = [Chain(5), Chain(8)]
    if same:
        models[1] = models[0]
    inputs = [torch.randn(512, 48), torch.randn(768, 48)]
    expected = [gradients(m, m, x) for m, x in zip(models, inputs, strict=True)]

    def work(i: int) -> None:
        call = planned(mode, models[i], inputs[i])
        for _ in range(3):
            found = gradients(call, models[i], inputs[i])
            assert all(a.equal(b) for a, b in zip(found, expected[i], strict=True))

    in_threads(work)
    # The process is none the worse for it.
    later = remat.torch.fit(Chain(2), inputs[0], "100%", **_EFFORT)
    later(inputs[0]).backward()


@pytest.mark.parametrize("mode", ["fit", "compile"])
def test_threads_that_share_a_planned_model_get_the_gradients_of_eager_mode(mode: str) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Chain(5)
    inputs = [torch.randn(64, 48) for _ in range(3)]
    expected = [gradients(model, model, x) for x in inputs]
    if mode == "fit":
        call: Any = remat.torch.fit(model, inputs[0], "4MiB", **_EFFORT)
    else:
        call = torch.compile(model, backend="remat", options={"budget": "4MiB", **_EFFORT})

    def work(i: int) -> None:
        for _ in range(20):
            found = gradients(call, model, inputs[i])
            assert all(a.equal(b) for a, b in zip(found, expected[i], strict=True))

    in_threads(work, len(inputs))


@one_log
def test_a_thread_trains_while_another_one_plans() -> None:
    torch.manual_seed(0)
    model, x = Chain(5), torch.randn(512, 48)
    expected = gradients(model, model, x)
    call, over = planned("compile", model, x), threading.Event()
    call(x)

    def work(i: int) -> None:
        if i == 0:
            try:
                for depth in (3, 4, 6):
                    planned("fit", Chain(depth), x)
            finally:
                over.set()
            return
        while not over.is_set():
            assert all(a.equal(b) for a, b in zip(gradients(call, model, x), expected, strict=True))

    in_threads(work)


def test_peaks_are_measured_one_after_the_other_and_exact() -> None:
    sizes = (1 << 20, 1 << 21)

    def work(i: int) -> None:
        for _ in range(20):
            assert remat.torch.measure_peak(lambda: torch.empty(sizes[i]), resident=[]) == 4 * sizes[i]

    in_threads(work)
