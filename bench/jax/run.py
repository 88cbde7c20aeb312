"""The tables of docs/jax_results.md: five models, within 70, 50 and 35 % of the plain step's memory, beside
policies that people choose by hand, and within the memory of each of these.

    python bench/jax/run.py --out FILE [--models gpt,unet] [--repeats 3] [--time-limit 1]
    python bench/jax/run.py --out FILE --device h100 [--shares]

Sizes are XLA's. Flops are those that XLA counts in the compiled step. Times are of the processor, the least
of the repeats, so that a busy machine counts less. With --device nothing runs: the step is compiled for that
device, flops are those that XLA counts before it compiles, and in place of a time there are the bytes that
kernels read and write. Both stand beside those of the plain step. --shares leaves out the memory of hand
policies.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import remat
import remat.jax
from models import MODELS, Loss
from moved import moved

HAND = {
    "dots": jax.checkpoint_policies.dots_saveable,
    "dots, no batch": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "nothing": jax.checkpoint_policies.nothing_saveable,
}
MB = 1e6


@dataclass(frozen=True)
class Step:
    """A compiled step: XLA's sizes in bytes, flops, seconds of the processor to compile; seconds of the
    processor to run, or bytes that kernels move on a device that is not there."""

    temporary: int
    total: int
    flops: float
    compiling: float
    cost: float


@dataclass(frozen=True)
class Setting:
    """What is compiled for (None: the CPU, where steps run too), repeats of a run, seconds of a search."""

    device: remat.jax.Target | None
    repeats: int
    limit: float
    shares: bool


def measured(fn: Callable[..., Any], args: Sequence[Any], setting: Setting) -> Step:
    step = jax.value_and_grad(fn)
    start = time.process_time()
    if setting.device is None:
        compiled = jax.jit(step).lower(*args).compile(compiler_options=remat.jax.COMPILER_OPTIONS)
    else:
        compiled = setting.device.compile(step, *args)
    compiling = time.process_time() - start
    sizes = compiled.memory_analysis()
    held = sizes.argument_size_in_bytes + sizes.output_size_in_bytes
    if setting.device is None:
        flops, cost = flops_of(compiled), min(running(compiled, args) for _ in range(setting.repeats))
    else:
        flops, cost = flops_of(jax.jit(step).lower(*args)), float(moved(compiled.as_text()))
    temporary = int(sizes.temp_size_in_bytes)
    return Step(temporary, int(temporary + held), flops, compiling, cost)


def running(compiled: Any, args: Sequence[Any]) -> float:
    start = time.process_time()
    jax.block_until_ready(compiled(*args))
    return time.process_time() - start


def flops_of(program: Any) -> float:
    """Of a program before or after it is compiled."""
    return float((program.cost_analysis() or {}).get("flops", 0))


class Table:
    """Rows in Markdown, written as they come."""

    def __init__(self, path: Path, moves: bool) -> None:
        self.path = path
        head = ["model", "step", "budget, MB", "predicted temporary, MB", "compiled, MB", "off, %"]
        head += ["total, MB", "Gflop", "moved" if moves else "time", "planning"]
        self.path.write_text(f"| {' | '.join(head)} |\n|{'---|' * len(head)}\n")

    def row(self, *cells: str) -> None:
        line = f"| {' | '.join(cells)} |"
        print(line, flush=True)
        with self.path.open("a") as file:
            file.write(line + "\n")


def compared(table: Table, model: str, setting: Setting) -> None:
    loss, args = MODELS[model]()
    plain = measured(loss, args, setting)
    table.row(model, "plain", *cells(plain, plain), "")
    budgets = [(f"{share} %", int(plain.total * share / 100)) for share in (70, 50, 35)]
    for name, policy in HAND.items():
        hand = measured(MODELS[model](lambda f, p=policy: jax.checkpoint(f, policy=p))[0], args, setting)
        table.row(model, f"`{name}` by hand", *cells(hand, plain), "")
        if not setting.shares:
            budgets.append((f"memory of `{name}`", hand.total))
    for name, budget in budgets:
        planned(table, model, (name, budget), plain, (loss, args), setting)


def planned(
    table: Table, model: str, asked: tuple[str, int], plain: Step, step: tuple[Loss, Any], setting: Setting
) -> None:  # fmt: skip
    loss, args = step
    name, budget = asked
    fn = remat.jax.checkpoint(loss, budget, device=setting.device, time_limit=setting.limit)
    start = time.process_time()
    try:
        report = fn.plan(*args)
    except remat.NoPlanError as error:
        spent = (time.process_time() - start) / plain.compiling
        least = f"none: least {error.smallest_known / MB:.1f}"
        table.row(model, name, f"{budget / MB:.1f}", least, "", "", "", "", "", f"{spent:.1f}")
        return
    spent = (time.process_time() - start) / plain.compiling
    if report.executor == "full":
        name += ", full order"
    got = measured(fn, args, setting)
    assert got.total == report.compiled <= budget
    predicted = report.predicted - (got.total - got.temporary)
    off = f"{100 * (predicted / got.temporary - 1):+.1f}"
    size = [f"{budget / MB:.1f}", f"{predicted / MB:.1f}", f"{got.temporary / MB:.1f}", off]
    table.row(model, name, *size, *cells(got, plain)[4:], f"{spent:.1f}")


def cells(step: Step, plain: Step) -> list[str]:
    sizes = ["", "", f"{step.temporary / MB:.1f}", "", f"{step.total / MB:.1f}"]
    ran = f"{step.cost / plain.cost:.2f}" if plain.cost and step.cost else ""
    return [*sizes, f"{step.flops / 1e9:.2f}", ran]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--time-limit", type=float, default=1.0)
    parser.add_argument("--device", help="compile for it, there or not: h100, ...")
    parser.add_argument("--shares", action="store_true", help="budgets of 70, 50 and 35 %% only")
    given = parser.parse_args()
    device = remat.jax.compile_for(given.device) if given.device else None
    setting = Setting(device, given.repeats, given.time_limit, given.shares)
    table = Table(given.out, device is not None)
    for model in given.models.split(","):
        compared(table, model, setting)


if __name__ == "__main__":
    main()
