"""The table of docs/jax.md: five models on the CPU, within 70, 50 and 35 % of the plain step's memory, beside
policies that people choose by hand, and within the memory of each of these.

    python bench/jax/run.py --out FILE [--models gpt,unet] [--repeats 3] [--time-limit 1]

Sizes are XLA's. Flops are those that XLA counts in the compiled step. Times are of the processor, the least
of the repeats, so that a busy machine counts less.
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

HAND = {
    "dots": jax.checkpoint_policies.dots_saveable,
    "dots, no batch": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "nothing": jax.checkpoint_policies.nothing_saveable,
}
MB = 1e6


@dataclass(frozen=True)
class Step:
    """A compiled step: XLA's sizes in bytes, flops, seconds of the processor to compile and to run."""

    temporary: int
    total: int
    flops: float
    compiling: float
    seconds: float


def measured(fn: Callable[..., Any], args: Sequence[Any], repeats: int) -> Step:
    start = time.process_time()
    lowered = jax.jit(jax.value_and_grad(fn)).lower(*args)
    compiled = lowered.compile(compiler_options=remat.jax.COMPILER_OPTIONS)
    compiling = time.process_time() - start
    sizes = compiled.memory_analysis()
    held = sizes.argument_size_in_bytes + sizes.output_size_in_bytes
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        jax.block_until_ready(compiled(*args))
        seconds.append(time.process_time() - start)
    temporary, flops = int(sizes.temp_size_in_bytes), float((compiled.cost_analysis() or {}).get("flops", 0))
    return Step(temporary, int(temporary + held), flops, compiling, min(seconds))


class Table:
    """Rows in Markdown, written as they come."""

    def __init__(self, path: Path) -> None:
        self.path = path
        head = ["model", "step", "budget, MB", "predicted temporary, MB", "compiled, MB", "off, %"]
        head += ["total, MB", "Gflop", "time", "planning"]
        self.path.write_text(f"| {' | '.join(head)} |\n|{'---|' * len(head)}\n")

    def row(self, *cells: str) -> None:
        line = f"| {' | '.join(cells)} |"
        print(line, flush=True)
        with self.path.open("a") as file:
            file.write(line + "\n")


def compared(table: Table, model: str, repeats: int, limit: float) -> None:
    loss, args = MODELS[model]()
    plain = measured(loss, args, repeats)
    table.row(model, "plain", *cells(plain, plain), "")
    budgets = [(f"{share} %", int(plain.total * share / 100)) for share in (70, 50, 35)]
    for name, policy in HAND.items():
        hand = measured(MODELS[model](lambda f, p=policy: jax.checkpoint(f, policy=p))[0], args, repeats)
        table.row(model, f"`{name}` by hand", *cells(hand, plain), "")
        budgets.append((f"memory of `{name}`", hand.total))
    for name, budget in budgets:
        planned(table, model, (name, budget), plain, (loss, args), repeats, limit)


def planned(
    table: Table, model: str, asked: tuple[str, int], plain: Step, step: tuple[Loss, Any], repeats: int,
    limit: float,
) -> None:  # fmt: skip
    loss, args = step
    name, budget = asked
    fn = remat.jax.checkpoint(loss, budget, time_limit=limit)
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
    got = measured(fn, args, repeats)
    assert got.total == report.compiled <= budget
    predicted = report.predicted - (got.total - got.temporary)
    off = f"{100 * (predicted / got.temporary - 1):+.1f}"
    size = [f"{budget / MB:.1f}", f"{predicted / MB:.1f}", f"{got.temporary / MB:.1f}", off]
    table.row(model, name, *size, *cells(got, plain)[4:], f"{spent:.1f}")


def cells(step: Step, plain: Step) -> list[str]:
    sizes = ["", "", f"{step.temporary / MB:.1f}", "", f"{step.total / MB:.1f}"]
    return [*sizes, f"{step.flops / 1e9:.2f}", f"{step.seconds / plain.seconds:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--time-limit", type=float, default=1.0)
    given = parser.parse_args()
    table = Table(given.out)
    for model in given.models.split(","):
        compared(table, model, given.repeats, given.time_limit)


if __name__ == "__main__":
    main()
