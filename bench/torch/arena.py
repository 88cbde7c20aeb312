#!/usr/bin/env python3
"""Effects of `arena=True` on CPU steps: memory of the process, page faults, time.

Each model runs in eager mode, planned, and planned with an arena, in a process for each: resident set
(highest and at the end) and minor page faults over many steps. Then all of them run in one process, in turns,
and their times are compared step by step.

    python bench/torch/arena.py --models gpt2,bert,resnet,unet --budget 75%
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import resource
import statistics
import time
from pathlib import Path
from typing import Any

import remat.torch
import torch
from remat_models.zoo import Zoo, animal
from rows import memory_of_process, run_apart
from subjects import Subject

KINDS = ("eager", "planned", "arena")


def forget_highest() -> None:
    """Resets the peak of the resident set."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def made(z: Zoo, kind: str, given: argparse.Namespace, model: Any, inputs: Any) -> Any:
    if kind == "eager":
        return model
    options: Any = {"arena": kind == "arena", "accumulate": False, "outputs": "dropped", "loss": z.loss}
    if given.work:
        options |= {"work_limit": given.work}
    return remat.torch.fit(model, inputs, given.budget, cache_dir=given.cache, **options)


def memory(z: Zoo, kind: str, given: argparse.Namespace) -> dict[str, Any]:
    model, inputs = z.build(given.size)
    model = made(z, kind, given, model, inputs)
    subject = Subject(z, model, inputs)
    for _ in range(3):
        subject.seconds()
    gc.collect()
    forget_highest()
    faults, start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.process_time()
    for _ in range(given.steps):
        subject.seconds()
    seconds = time.process_time() - start
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    found = {
        "highest": memory_of_process("VmHWM"),
        "resident": memory_of_process("VmRSS"),
        "faults": faults / given.steps,
        "seconds": seconds / given.steps,
    }
    if kind != "eager":
        report = model.remat.largest()
        found |= {"peak": report.predicted_peak, "overhead": report.overhead}
        if report.arena is not None:
            arena = report.arena
            found |= {"pool": arena.pool, "inside": len(arena.places), "outside": arena.outside}
    return found


def times(z: Zoo, given: argparse.Namespace) -> dict[str, Any]:
    """Times with the same plan, the one made for the arena."""
    model, inputs = z.build(given.size)
    arena = made(z, "arena", given, copy.deepcopy(model), inputs)
    plan = arena.remat.largest().plan
    common = {"accumulate": False, "outputs": "dropped", "loss": z.loss}
    same = remat.torch.fit(copy.deepcopy(model), inputs, given.budget, plan=list(plan.steps), **common)
    planned = made(z, "planned", given, copy.deepcopy(model), inputs)
    models = {"arena": arena, "same plan": same, "planned": planned, "eager": model}
    subjects = {name: Subject(z, each, inputs) for name, each in models.items()}
    taken: dict[str, list[float]] = {name: [] for name in models}
    for turn in range(given.turns + 3):
        for name, subject in subjects.items():
            seconds = subject.seconds()
            if turn >= 3:
                taken[name].append(seconds)
    least = {name: statistics.median(values) for name, values in taken.items()}
    return {
        f"arena over {name}": statistics.median(
            a / b for a, b in zip(taken["arena"], taken[name], strict=True)
        )
        for name in ("same plan", "planned", "eager")
    } | {"seconds": least["arena"]}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default="gpt2,bert,resnet,unet")
    parser.add_argument("--size", choices=("small", "large"), default="large")
    parser.add_argument("--budget", default="75%")
    parser.add_argument("--steps", type=int, default=200, help="whose memory is measured")
    parser.add_argument("--turns", type=int, default=20, help="that are timed")
    parser.add_argument("--work", type=int, default=0, help="limit of planning; 0: by time")
    parser.add_argument("--cache", default=None)
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    given = parse()
    torch.set_num_threads(1)
    if given.child:
        name, kind = given.child.split()
        z = animal(name)
        print(json.dumps(times(z, given) if kind == "times" else memory(z, kind, given)))
        return
    for name in given.models.split(","):
        for kind in (*KINDS, "times"):
            print(name, kind, run_apart(f"{name} {kind}"), flush=True)


if __name__ == "__main__":
    main()
