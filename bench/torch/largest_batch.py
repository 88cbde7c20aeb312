#!/usr/bin/env python3
"""The largest batch of each model of the tests' zoo within eager mode's memory.

    python bench/torch/largest_batch.py [--models gpt2,unet] [--size large] [--time-limit 10]

The budget is the measured peak of eager mode at the model's own batch. `largest_batch` looks for the largest
batch within it, with measured costs; the step is then planned and run at that batch and its peak measured.
Eager mode is measured at one sample more than its own batch, too: its largest batch is its own where that is
above the budget. Prints a row of a table for each model.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import remat
import remat.torch
import torch
from remat_models.zoo import ZOO, Zoo, animal
from rows import mb, yes
from subjects import STATED, Setting, Subject, copied, fitted

HEAD = (
    "| model | budget MB | eager's batch | one more | largest | proved | predicted MB | measured MB | kept | "
    "overhead | best | s |"
)


def measured(z: Zoo, size: str, seconds: float) -> str:
    """The row of a model."""
    sizes = dict(z.small if size == "small" else z.large)
    setting = Setting(size=size)
    model, inputs = z.build(size)

    def make(batch: int) -> Any:
        torch.manual_seed(batch)
        wanted = {**sizes, "batch": batch}
        names = z.inputs.__code__.co_varnames[: z.inputs.__code__.co_argcount]
        return z.inputs(**{name: wanted[name] for name in names if name in wanted})

    budget = Subject(z, copied(model), inputs).peak()
    more = Subject(z, copied(model), make(sizes["batch"] + 1)).peak()
    start = time.perf_counter()
    found = remat.torch.largest_batch(copied(model), make, budget, loss=z.loss, time_limit=seconds, **STATED)
    took = time.perf_counter() - start
    row = found.row(found.largest)
    subject = fitted(z, copied(model), make(found.largest), budget, setting, row.plan)
    report: Any = subject.model.remat
    peak = subject.peak()
    kept = peak <= budget and peak <= report.predicted_peak
    proved = "yes" if found.proved else f"not below {found.impossible}"
    return (
        f"| {z.name} | {mb(budget)} | {sizes['batch']} | {mb(more)} | {found.largest} | {proved} | "
        f"{mb(report.predicted_peak)} | {mb(peak)} | {yes(kept)} | {row.overhead or 0:.1%} | {found.best} | "
        f"{took:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default=",".join(z.name for z in ZOO))
    parser.add_argument("--size", choices=("small", "large"), default="small")
    parser.add_argument("--time-limit", type=float, default=10.0, help="seconds of planning for each model")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"PyTorch {torch.__version__}, size {options.size}, load {os.getloadavg()[0]:.1f}\n")
    print(HEAD)
    print("|" + "---|" * HEAD.count(" | ") + "---|")
    for name in options.models.split(","):
        torch._dynamo.reset()
        try:
            print(measured(animal(name), options.size, options.time_limit), flush=True)
        except remat.RematError as error:
            print(f"| {name} | {error} |", flush=True)


if __name__ == "__main__":
    main()
