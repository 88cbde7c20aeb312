#!/usr/bin/env python3
"""Step time and memory of planned training against eager training, both in one run, steps interleaved.

    python bench/torch/step_time.py [--models gpt,encoder,conv_net,mlp] [--budgets 100,75,50] [--steps 15]

For every model and budget (percent of the measured eager peak; `all`: whatever keeping everything needs):
measured and predicted peak, the ratio of the median step times with the predicted one beside it, and whether
loss and gradients are equal to eager bit for bit. Eager and planned steps alternate, so that other load hits
both.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import remat
import remat.torch
import torch
from remat_models.example import GPT, Config
from remat_models.small import MLP, ConvNet, Encoder
from torch import nn

MODELS: dict[str, Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]] = {
    "gpt": lambda: (GPT(Config()), (torch.randint(128, (4, 256)), torch.randint(128, (4, 256)))),
    "encoder": lambda: (Encoder(width=256, depth=6), (torch.randn(8, 128, 256),)),
    "conv_net": lambda: (ConvNet(channels=32, depth=8), (torch.randn(16, 3, 48, 48),)),
    "mlp": lambda: (MLP(width=512, depth=12), (torch.randn(2048, 512),)),
}


@dataclass
class Row:
    """One model at one budget: bytes, ratios of planned to eager."""

    model: str
    budget: str
    eager_peak: int
    peak: int
    predicted: int
    within: bool
    ratio: float
    predicted_ratio: float
    equal: bool
    planning: float

    def __str__(self) -> str:
        return (
            f"{self.model:10} {self.budget:>6} {self.eager_peak / 1e6:9.1f} {self.predicted / 1e6:10.1f} "
            f"{self.peak / 1e6:9.1f} {'yes' if self.within else 'NO':>6} {self.ratio:7.3f} "
            f"{self.predicted_ratio:9.3f} {'yes' if self.equal else 'NO':>6} {self.planning:8.1f}"
        )


HEAD = (
    f"{'model':10} {'budget':>6} {'eager MB':>9} {'predict MB':>10} {'real MB':>9} {'within':>6} "
    f"{'time x':>7} {'predicted':>9} {'equal':>6} {'plan s':>8}"
)


def one_step(
    model: nn.Module, inputs: tuple[torch.Tensor, ...]
) -> tuple[float, torch.Tensor, list[torch.Tensor]]:
    """Seconds, loss and gradients of a step from a fixed seed, gradients cleared before."""
    model.zero_grad()
    torch.manual_seed(1)
    start = time.perf_counter()
    loss = model(*inputs)
    loss.backward()
    seconds = time.perf_counter() - start
    return seconds, loss.detach(), [p.grad for p in model.parameters() if p.grad is not None]


def peak_of(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> int:
    model.zero_grad()
    return remat.torch.measure_peak(lambda: model(*inputs).backward(), resident=[model, *inputs])


def measure(name: str, budget: str, steps: int) -> Row | None:
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    eager_peak = peak_of(model, inputs)
    start = time.perf_counter()
    limit = "100%" if budget == "all" else int(eager_peak * float(budget) / 100)
    model.zero_grad()
    try:
        planned = remat.torch.fit(model, inputs, limit, accumulate=False)
    except remat.RematError as error:
        print(f"{name:10} {budget:>6} {eager_peak / 1e6:9.1f} no plan: {error}", flush=True)
        return None
    planning = time.perf_counter() - start
    peak = peak_of(planned, inputs)
    _, loss, gradients = one_step(model, inputs)
    gradients = [g.clone() for g in gradients]
    _, planned_loss, planned_gradients = one_step(planned, inputs)
    equal = loss.equal(planned_loss) and all(
        a.equal(b) for a, b in zip(gradients, planned_gradients, strict=True)
    )
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(steps):
        for side, subject in enumerate((model, planned)):
            times[side].append(one_step(subject, inputs)[0])
    report = planned.remat
    return Row(
        name,
        budget,
        eager_peak,
        peak,
        report.predicted_peak,
        peak <= report.budget,
        statistics.median(times[1]) / statistics.median(times[0]),
        1 + report.overhead,
        equal,
        planning,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--budgets", default="all,75,50")
    parser.add_argument("--steps", type=int, default=15)
    options = parser.parse_args()
    print(HEAD, flush=True)
    good = True
    for name in options.models.split(","):
        for budget in options.budgets.split(","):
            row = measure(name, budget, options.steps)
            if row is not None:
                print(row, flush=True)
                good = good and row.within and row.equal
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
