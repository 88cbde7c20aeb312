#!/usr/bin/env python3
"""Train a GPT of 10 million parameters twice: as PyTorch does it, and within 60 % of the memory that took.

Same seed, same data, dropout 0.1. One step in eager mode says how many are trained: 20 of each run, or as
many as take about two minutes in all. The text is the source code of Python's own standard library, which
every machine with Python has. Writes a page that shows the plan. Ends with exit code 1 if the budget was
exceeded or a single loss or gradient differs.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import os
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

# The allocator warns about blocks that are older than a measurement.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import remat.torch
import torch
from gpt import GPT, Config

LEAST_STEPS, MOST_STEPS = 5, 20
# Of a pair of steps, in eager ones: the planned one takes longer.
PAIR = 2.3
# Budgets in percent by sequences of a step: of fewer, more of the memory is parameters and optimizer state.
PERCENT = {1: 80.0, 2: 70.0}
USUAL_PERCENT = 60.0


@dataclass
class Run:
    """What one training run showed: bytes, seconds, and a fingerprint of all gradients after every step."""

    name: str
    losses: list[float] = field(default_factory=list)
    gradients: list[str] = field(default_factory=list)
    peaks: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    planning: float = 0.0
    predicted: int = 0
    overhead: float = 0.0

    @property
    def peak(self) -> int:
        return max(self.peaks)

    @property
    def step_time(self) -> float:
        return statistics.median(self.seconds)


class TrainingStep:
    """Forward, backward, optimizer: the same code for both runs."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        tokens: torch.Tensor,
        targets: torch.Tensor,
    ) -> None:
        self.model, self.optimizer, self.tokens, self.targets = model, optimizer, tokens, targets
        self.loss = float("nan")

    def __call__(self) -> None:
        loss = self.model(self.tokens, self.targets)
        loss.backward()
        self.optimizer.step()
        self.loss = loss.item()


def load_text() -> torch.Tensor:
    """About two million characters of Python, as numbers below 128."""
    sources = sorted(Path(os.__file__).parent.glob("*.py"))
    data = b"".join(path.read_bytes() for path in sources)[: 1 << 21]
    return torch.frombuffer(bytearray(b if b < 128 else 63 for b in data), dtype=torch.uint8)


def batches(
    text: torch.Tensor, steps: int, size: int, context: int
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    starts = torch.randint(len(text) - context - 1, (steps, size), generator=generator).tolist()
    windows = [torch.stack([text[s : s + context + 1] for s in row]).long() for row in starts]
    return [(w[:, :-1].contiguous(), w[:, 1:].contiguous()) for w in windows]


def fingerprint(model: torch.nn.Module) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for parameter in model.parameters():
        digest.update(parameter.grad.numpy().tobytes())
    return digest.hexdigest()


def say(text: str, end: str = "\n") -> None:
    print(text, end=end, flush=True)


def steps_for(first: float, seconds: float) -> int:
    """Steps of each run, where an eager one takes so long and both runs together are to take `seconds`."""
    return max(LEAST_STEPS, min(MOST_STEPS, int(seconds / (PAIR * first))))


def first_step(config: Config, batch: int) -> float:
    """Seconds of a step in eager mode, measured as all others are."""
    return train("first  ", batches(load_text(), 1, batch, config.context), config, quiet=True).step_time


def tried(config: Config, batch: int, threads: int) -> float:
    """Says what it does: a step in eager mode."""
    torch.set_num_threads(threads)
    several = "threads" if threads > 1 else "thread"
    say(f"  one step of {batch} sequences in eager mode on {threads} {several} ...", end="")
    seconds = first_step(config, batch)
    say(f" {seconds:.2f} s")
    return seconds


def choose(config: Config, batch: int, seconds: float) -> tuple[int, int, float]:
    """Sequences of a step and steps of each run for about so many seconds; the seconds of an eager step. On a
    busy machine threads wait for each other: one of them may be faster than all.
    """
    trials = {threads: tried(config, batch, threads) for threads in sorted({1, torch.get_num_threads()})}
    threads, first = min(trials.items(), key=lambda trial: trial[1])
    torch.set_num_threads(threads)
    while batch > 1 and LEAST_STEPS * PAIR * first > seconds:
        batch //= 2
        first = tried(config, batch, threads)
    return batch, steps_for(first, seconds), first


def train(
    name: str,
    data: list[tuple[torch.Tensor, torch.Tensor]],
    config: Config,
    budget: int | None = None,
    page: Path | None = None,
    seconds: float = float("inf"),
    quiet: bool = False,
) -> Run:
    """Train from seed 0. With a budget, the model is fitted into it first; the rest of the code does not
    change. Ends early, after a few steps, where the machine has become so slow that `seconds` are over.
    """
    run = Run(name)
    torch.manual_seed(0)
    model = GPT(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    if budget is not None:
        say(f"  {name}: measuring the model's operations and planning, 10 s or so ...", end="")
        start = time.perf_counter()
        parameters = list(model.parameters())
        # AdamW keeps two numbers per parameter, and a step count for each tensor.
        state = sum(2 * p.numel() * p.element_size() + 4 for p in parameters)
        model = remat.torch.fit(model, data[0], budget=budget, reserve=state)
        run.planning = time.perf_counter() - start
        run.predicted, run.overhead = model.remat.predicted_peak, model.remat.overhead
        say(f" {run.planning:.1f} s")
    torch.manual_seed(1)
    begun = time.perf_counter()
    for number, (tokens, targets) in enumerate(data, 1):
        optimizer.zero_grad()
        step = TrainingStep(model, optimizer, tokens, targets)
        start = time.perf_counter()
        run.peaks.append(remat.torch.measure_peak(step, resident=[model, optimizer, tokens, targets]))
        run.seconds.append(time.perf_counter() - start)
        run.losses.append(step.loss)
        run.gradients.append(fingerprint(model))
        elapsed = time.perf_counter() - begun
        is_last = number == len(data) or (elapsed > seconds and number >= LEAST_STEPS)
        if not quiet:
            show(run, number, len(data), 0 if is_last else elapsed / number * (len(data) - number), is_last)
        if is_last:
            break
    if page is not None:
        say(f"  {name}: drawing the plan, 3 s ...", end="")
        model.remat.save(page, points=8, time_limit=3.0)
        say(f" {page.resolve()}")
    return run


def show(run: Run, number: int, steps: int, left: float, is_last: bool) -> None:
    """A line that is written over on a terminal; elsewhere one for every fifth step."""
    line = f"  {run.name}: step {number:2}/{steps}   loss {run.losses[-1]:.4f}   {run.seconds[-1]:.2f} s"
    line += f"   about {left:.0f} s left" if left else " " * 20
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        say("\r" + line.ljust(78), end="\n" if is_last else "")
    elif number % 5 == 0 or number == 1 or is_last:
        say(line.rstrip())


def megabytes(size: float) -> str:
    return f"{size / 1e6:8.1f} MB"


def summary(eager: Run, planned: Run, budget: int) -> bool:
    same_losses = eager.losses == planned.losses
    same_gradients = eager.gradients == planned.gradients
    within = planned.peak <= budget
    say("")
    say(f"  measured peak, eager       {megabytes(eager.peak)}")
    say(f"  budget                     {megabytes(budget)}   {100 * budget / eager.peak:.0f} % of eager")
    say(f"  predicted peak, planned    {megabytes(planned.predicted)}")
    verdict = "within the budget" if within else "OVER THE BUDGET"
    say(f"  measured peak, planned     {megabytes(planned.peak)}   {verdict}")
    say(f"  step time, eager           {eager.step_time:8.2f} s")
    ratio = planned.step_time / eager.step_time - 1
    say(
        f"  step time, planned         {planned.step_time:8.2f} s    {100 * ratio:+.0f} % "
        f"(the plan's own estimate: {100 * planned.overhead:+.0f} %)"
    )
    say(f"  profiling and planning     {planned.planning:8.2f} s    once")
    say(f"  losses equal bit for bit       {'yes' if same_losses else 'NO'}   ({len(eager.losses)} steps)")
    answer = "yes" if same_gradients else "NO"
    say(f"  gradients equal bit for bit    {answer}   (every parameter, every step)")
    return within and same_losses and same_gradients


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, help="training steps of each run (up to 20, by --seconds)")
    parser.add_argument(
        "--batch", type=int, default=4, help="sequences per step (4, or fewer on slow machines)"
    )
    parser.add_argument("--seconds", type=float, default=120, help="both runs together, about (120)")
    parser.add_argument(
        "--page", type=Path, default=Path("train_gpt.html"), help="shows the plan (%(default)s)"
    )
    parser.add_argument(
        "--percent",
        type=float,
        help="budget in percent of the measured eager peak (60; more for small steps)",
    )
    options = parser.parse_args()
    config = Config()
    parameters = sum(p.numel() for p in GPT(config).parameters())
    say(
        f"GPT: {config.layers} layers, {parameters / 1e6:.1f} M parameters, dropout {config.dropout}, "
        f"context {config.context}; choosing threads and steps"
    )
    batch, steps, seconds = options.batch, options.steps, float("inf")
    if steps is None:
        batch, steps, first = choose(config, batch, options.seconds)
        # Twice as long, should the machine become busier: then fewer steps do.
        seconds = 2 * steps * first
        say(f"  {steps} steps of {batch} sequences, twice: {PAIR * steps * first:.0f} s or so, and planning")
    data = batches(load_text(), steps, batch, config.context)
    eager = train("eager  ", data, config, seconds=seconds)
    data = data[: len(eager.losses)]
    gc.collect()
    percent = options.percent or PERCENT.get(batch, USUAL_PERCENT)
    budget = int(eager.peak * percent / 100)
    needed, allowed = megabytes(eager.peak).strip(), megabytes(budget).strip()
    say(f"  eager needed {needed} at its peak; now the same within {allowed}")
    try:
        planned = train("planned", data, config, budget, options.page)
    except remat.RematError as error:
        say(f"\n  no plan: {error}")
        return 1
    return 0 if summary(eager, planned, budget) else 1


if __name__ == "__main__":
    sys.exit(main())
