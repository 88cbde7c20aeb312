#!/usr/bin/env python3
"""Steps that add to existing gradients, and optimizers that step inside the backward: bytes and bits.

    python bench/torch/accumulation.py [--models gpt2,llama] [--size small] [--seconds 5] [--out DIR]

For every architecture of the tests' zoo, in a process of its own: the least peak that is found in so many
seconds for a first step (without gradients), for a second one (which adds to them), and with plain SGD inside
the backward; measured peaks of both steps in eager mode and without recomputation, beside the predicted ones;
the time of a second step beside eager mode; and whether 10 steps of AdamW, each over 4 micro-batches, leave
the parameters of eager mode bit for bit at 85 % of the keep-all peak. DIR holds a file for each model; what
is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import remat
import remat.torch
import torch
from remat_models.zoo import ZOO, animal
from rows import Row, mb, run_apart, table, yes
from subjects import Setting, Subject, copied
from torch import nn

STATED: dict[str, Any] = {"outputs": "dropped"}
STEPS, MICRO_BATCHES = 10, 4


def least(model: nn.Module, inputs: Any, seconds: float, **options: Any) -> tuple[int, int]:
    """Bytes of the least peak found for a step, and the lower bound."""
    torch._dynamo.reset()
    graph = remat.torch.capture(model, inputs, **STATED, **options)
    result = remat.plan(graph, objective="peak", time_limit=seconds)
    assert result.peak is not None
    return result.peak, result.peak_lower_bound


def peaks(subject: Subject) -> tuple[int, int]:
    """Peaks of a first and of a second step."""
    first = subject.peak()
    values = list(subject.inputs.values() if isinstance(subject.inputs, dict) else subject.inputs)
    return first, remat.torch.measure_peak(subject.step, resident=[subject.model, values])


def seconds_of(subject: Subject, times: int) -> float:
    """Processor time of a step that adds to gradients."""
    taken = []
    for _ in range(times):
        start = time.process_time()
        subject.step()
        taken.append(time.process_time() - start)
    return statistics.median(taken)


def train(subject: Subject) -> list[torch.Tensor]:
    """The parameters after the steps."""
    torch.manual_seed(5)
    optimizer = torch.optim.AdamW(subject.model.parameters(), 1e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        for _ in range(MICRO_BATCHES):
            subject.step()
        optimizer.step()
    return [p.detach().clone() for p in subject.model.parameters()]


def measured(name: str, size: str, seconds: float) -> Row:
    torch.set_num_threads(1)
    z = animal(name)
    model, inputs = Setting(size=size).build(z)
    own: dict[str, Any] = {"loss": z.loss}
    row: Row = {"model": name}
    row["first"], row["first_bound"] = least(copied(model), inputs, seconds, accumulate=False, **own)
    row["second"], row["second_bound"] = least(copied(model), inputs, seconds, accumulate=True, **own)
    stepped = copied(model)
    sgd = torch.optim.SGD(stepped.parameters(), 1e-3)
    inside = {"accumulate": False, "optimizer": sgd, "step": "backward"}
    row["inside"], row["inside_bound"] = least(stepped, inputs, seconds, **inside, **own)
    eager = Subject(z, copied(model), inputs)
    row["eager_first"], row["eager_second"] = peaks(eager)
    gradients = [p.grad.nbytes for p in eager.model.parameters() if p.grad is not None]
    row["gradients"], row["largest"] = sum(gradients), max(gradients)
    torch._dynamo.reset()
    whole = remat.torch.fit(copied(model), inputs, 1 << 60, time_limit=2.0, **STATED, **own)
    planned = Subject(z, whole, inputs)
    row["planned_first"], row["planned_second"] = peaks(planned)
    row["predicted_first"], row["predicted_second"] = (p.predicted_peak for p in whole.remat.parts[:2])
    times = [seconds_of(subject, 5) for subject in (eager, planned, eager, planned)]
    row["ratio"] = min(times[1], times[3]) / min(times[0], times[2])
    torch._dynamo.reset()
    within = remat.torch.fit(copied(model), inputs, "85%", time_limit=2.0, **STATED, **own)
    row["recomputed"] = sum(part.recomputed_steps for part in within.remat.parts)
    mine, theirs, again = (train(Subject(z, each, inputs)) for each in (within, copied(model), copied(model)))
    row["deterministic"] = all(a.equal(b) for a, b in zip(again, theirs, strict=True))
    row["equal"] = all(a.equal(b) for a, b in zip(mine, theirs, strict=True))
    return row


HEAD = (
    "model|gradients MB|largest|least first|least second|proved|above first|SGD inside|proved"
    "|below, of gradients|eager first / second|planned first / second|second beside eager"
    "|error of the predicted|time|equal"
)


def report(rows: list[Row]) -> list[str]:
    lines = []
    for r in rows:
        errors = [abs(r[f"predicted_{k}"] / r[f"planned_{k}"] - 1) for k in ("first", "second")]
        lines.append(
            [
                r["model"],
                mb(r["gradients"]),
                mb(r["largest"]),
                mb(r["first"]),
                mb(r["second"]),
                mb(r["second_bound"]),
                f"{(r['second'] - r['first']) / 1e6:+.2f}",
                mb(r["inside"]),
                mb(r["inside_bound"]),
                f"{(r['first'] - r['inside']) / r['gradients']:.2f}",
                f"{mb(r['eager_first'])} / {mb(r['eager_second'])}",
                f"{mb(r['planned_first'])} / {mb(r['planned_second'])}",
                f"{r['planned_second'] / r['eager_second']:.3f}",
                f"{100 * max(errors):.3f} %",
                f"{r['ratio']:.2f}",
                yes(r["equal"]) + ("" if r["deterministic"] else " (eager differs too)"),
            ]
        )
    return table(HEAD, lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default=",".join(z.name for z in ZOO))
    parser.add_argument("--size", choices=("small", "large"), default="small")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each search for the least peak")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(measured(given.child, given.size, given.seconds)))
        return 0
    out: Path = given.out or Path(tempfile.mkdtemp(prefix="remat-accumulation-"))
    out.mkdir(parents=True, exist_ok=True)
    names = given.models.split(",")
    found = [run_apart(name, out / f"{name}.json") for name in names]
    rows: list[Row] = [row for row in found if row is not None]
    print("\n".join(report(rows)))
    good = len(rows) == len(names)
    return 0 if good and all(row["equal"] or not row["deterministic"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
