#!/usr/bin/env python3
"""Every architecture of the tests' zoo, planned at several budgets: bits, bytes and times against eager mode.

    python bench/torch/architectures.py [--models gpt2,unet] [--budgets 100,75,50,least] [--size large]
    python bench/torch/architectures.py --others     checkpointing by layer, activation_memory_budget beside
    python bench/torch/architectures.py --growth 200 memory of the process over so many steps

Budgets are percent of the measured eager peak; `least` is the plan with the
least peak that is found in 10 s.
Per row: measured and predicted peak, is the budget kept, ratio of the median step times (planned steps
alternate with eager ones) beside the predicted ratio, seconds of capture, profiling and planning, and whether
loss, gradients and buffers equal eager mode bit for bit.
"""

from __future__ import annotations

import argparse
import copy
import os
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import remat
import remat.torch
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python" / "tests" / "torch"))
from zoo import ZOO, Zoo, animal

State = tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]


class Subject:
    """A model with its inputs and loss, in eager mode or planned."""

    def __init__(self, z: Zoo, model: nn.Module, inputs: Any, run: Callable[..., Any] | None = None) -> None:
        self.z, self.model, self.inputs = z, model, inputs
        self.run = run or model

    def step(self) -> torch.Tensor:
        inputs = self.inputs
        outputs = self.run(**inputs) if isinstance(inputs, dict) else self.run(*inputs)
        loss = self.z.loss(outputs)
        del outputs
        loss.backward()
        return loss.detach()

    def peak(self) -> int:
        self.model.zero_grad()
        values = list(self.inputs.values()) if isinstance(self.inputs, dict) else list(self.inputs)
        return remat.torch.measure_peak(self.step, resident=[self.model, values])

    def state(self) -> State:
        """Loss, gradients and buffers after a step from a fixed seed."""
        torch.manual_seed(3)
        self.model.zero_grad()
        loss = self.step()
        gradients = [p.grad.clone() for p in self.model.parameters() if p.grad is not None]
        return loss, gradients, [b.clone() for b in self.model.buffers()]

    def seconds(self) -> float:
        self.model.zero_grad()
        # Processor time: other load on the machine counts little.
        start = time.process_time()
        self.step()
        return time.process_time() - start


def equal(a: State, b: State) -> bool:
    mine, theirs = [a[0], *a[1], *a[2]], [b[0], *b[1], *b[2]]
    return len(mine) == len(theirs) and all(x.equal(y) for x, y in zip(mine, theirs, strict=True))


def alternate(a: Subject, b: Subject, steps: int) -> float:
    """Median time of a step of b over that of a."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(steps):
        for side, subject in enumerate((a, b)):
            times[side].append(subject.seconds())
    return statistics.median(times[1]) / statistics.median(times[0])


def planned(z: Zoo, model: nn.Module, inputs: Any, budget: str, eager_peak: int) -> nn.Module:
    options = {"loss": z.loss, "outputs": "dropped", "accumulate": False}
    if budget != "least":
        return remat.torch.fit(model, inputs, int(eager_peak * float(budget) / 100), **options)
    graph = remat.torch.capture(model, inputs, **options)
    plan = remat.plan(graph, objective="peak").plan
    return remat.torch.fit(model, inputs, 1 << 50, plan=plan, **options)


HEAD = (
    f"{'model':11} {'budget':>6} {'eager MB':>9} {'real MB':>9} {'predicted':>9} {'error':>7} {'kept':>4} "
    f"{'time x':>7} {'predicted':>9} {'equal':>5} {'plan s':>7}"
)


def row(z: Zoo, budget: str, size: str, steps: int) -> tuple[str, dict[str, float] | None]:
    model, inputs = z.build(size)
    eager = Subject(z, copy.deepcopy(model), inputs)
    start_peak = eager.peak()
    eager.model.load_state_dict(model.state_dict())
    expected = eager.state()
    eager_peak = max(start_peak, eager.peak())
    torch._dynamo.reset()
    before = time.perf_counter()
    try:
        fitted = planned(z, model, inputs, budget, eager_peak)
    except remat.NoPlanError as error:
        return f"{z.name:11} {budget:>6} {eager_peak / 1e6:9.2f} no plan: {error}", None
    planning = time.perf_counter() - before
    subject = Subject(z, fitted, inputs)
    same = equal(expected, subject.state())
    peak = subject.peak()
    report = fitted.remat
    ratio = alternate(eager, subject, steps)
    error = report.predicted_peak / peak - 1
    numbers = {
        "error": abs(error),
        "kept": float(peak <= min(report.budget, report.predicted_peak)),
        "equal": float(same),
        "ratio": ratio,
        "off": abs(ratio - 1 - report.overhead),
        "planning": planning,
    }
    kept = "yes" if numbers["kept"] else "NO"
    text = (
        f"{z.name:11} {budget:>6} {eager_peak / 1e6:9.2f} {peak / 1e6:9.2f} "
        f"{report.predicted_peak / 1e6:9.2f} {100 * error:+6.3f}% {kept:>4} "
        f"{ratio:7.3f} {1 + report.overhead:9.3f} {'yes' if same else 'NO':>5} {planning:7.1f}"
    )
    return text, numbers


def checkpointed(z: Zoo, model: nn.Module) -> nn.Module:
    """The model with `torch.utils.checkpoint` around each layer."""
    pattern = re.compile(z.layers)
    for name, module in model.named_modules():
        if z.layers and pattern.fullmatch(name):
            forward = module.forward

            def run(*args: Any, forward: Any = forward, **kwargs: Any) -> Any:
                return checkpoint(forward, *args, use_reentrant=False, **kwargs)

            module.forward = run
    return model


def min_cut(z: Zoo, model: nn.Module, inputs: Any, share: float) -> Subject:
    """The model under PyTorch's own `activation_memory_budget`."""
    torch._dynamo.reset()
    config: Any = torch._functorch.config
    run: Any = torch.compile(model, backend="aot_eager_decomp_partition", dynamic=False)
    subject = Subject(z, model, inputs, run)
    with config.patch(activation_memory_budget=share):
        subject.step()
    return subject


def others(z: Zoo, size: str, steps: int) -> None:
    """What users have today, and our plan within the peak that it needs."""
    model, inputs = z.build(size)
    eager = Subject(z, copy.deepcopy(model), inputs)
    expected, eager_peak = eager.state(), eager.peak()
    ways: list[tuple[str, Callable[[], Subject]]] = []
    if z.layers:
        ways.append(("checkpoint", lambda: Subject(z, checkpointed(z, copy.deepcopy(model)), inputs)))
    for share in (1.0, 0.7, 0.5, 0.3, 0.1):
        ways.append(
            (f"memory_budget {share}", lambda share=share: min_cut(z, copy.deepcopy(model), inputs, share))
        )
    for name, make in ways:
        subject = make()
        peak, same = subject.peak(), equal(expected, subject.state())
        ratio = alternate(eager, subject, steps)
        torch._dynamo.reset()
        try:
            fitted = remat.torch.fit(
                copy.deepcopy(model), inputs, peak, loss=z.loss, outputs="dropped", accumulate=False
            )
        except remat.NoPlanError as error:
            print(f"{z.name:11} {name:18} {peak / 1e6:9.2f} {ratio:7.3f} no plan: {error}", flush=True)
            continue
        ours = Subject(z, fitted, inputs)
        ours.step()
        print(
            f"{z.name:11} {name:18} {eager_peak / 1e6:9.2f} {peak / 1e6:9.2f} {ratio:7.3f} "
            f"{'yes' if same else 'no':>5} | {ours.peak() / 1e6:9.2f} {alternate(eager, ours, steps):7.3f} "
            f"{1 + fitted.remat.overhead:9.3f}",
            flush=True,
        )


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def growth(z: Zoo, size: str, steps: int) -> None:
    model, inputs = z.build(size)
    eager_peak = Subject(z, copy.deepcopy(model), inputs).peak()
    subject = Subject(z, planned(z, model, inputs, "60", eager_peak), inputs)
    for _ in range(20):
        subject.seconds()
    start = resident_bytes()
    for _ in range(steps):
        subject.seconds()
    print(f"{z.name:11} {(resident_bytes() - start) / 1e6:+.2f} MB over {steps} steps", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default=",".join(z.name for z in ZOO))
    parser.add_argument("--budgets", default="100,75,50,least")
    parser.add_argument("--size", choices=("small", "large"), default="large")
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--others", action="store_true")
    parser.add_argument("--growth", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    chosen = [animal(name) for name in given.models.split(",")]
    if given.growth:
        for z in chosen:
            growth(z, given.size, given.growth)
        return 0
    if given.others:
        print(
            f"{'model':11} {'way':18} {'eager MB':>9} {'real MB':>9} {'time x':>7} {'equal':>5} | "
            f"{'ours MB':>9} {'time x':>7} {'predicted':>9}"
        )
        for z in chosen:
            if not z.dropout:
                others(z, given.size, given.steps)
        return 0
    print(HEAD, flush=True)
    found = []
    for z in chosen:
        for budget in given.budgets.split(","):
            text, numbers = row(z, budget, given.size, given.steps)
            print(text, flush=True)
            if numbers is not None:
                found.append(numbers)
    middle = {key: statistics.median(n[key] for n in found) for key in found[0]}
    print(
        f"{len(found)} rows: equal {sum(n['equal'] for n in found):.0f}, kept "
        f"{sum(n['kept'] for n in found):.0f}; median prediction error {100 * middle['error']:.3f} %, worst "
        f"{100 * max(n['error'] for n in found):.3f} %; median distance of the time ratio from the predicted "
        f"one {100 * middle['off']:.1f} points; planning {middle['planning']:.1f} s"
    )
    return 0 if all(n["equal"] and n["kept"] for n in found) else 1


if __name__ == "__main__":
    sys.exit(main())
