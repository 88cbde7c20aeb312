#!/usr/bin/env python3
"""Checkpoint policies on every architecture of the tests' zoo: bits, bytes and times, compared with
alternatives.

    python bench/torch/executors.py --out DIR [--models gpt2,unet] [--size small]
           [--budgets 90,75,layer,least]
    python bench/torch/executors.py --out DIR --partitioner
           shares of PyTorch's partitioner beside our solver's

Budgets are percent of the measured eager peak; `layer` is the peak that `torch.utils.checkpoint` around each
layer has, and 0.1 %, `least` the smallest for which policies are found. Beside each row stand our own
executor's plan for the same budget, and for `layer` the checkpoints by layer. Each model runs in a process of
its own; DIR has a file for each; what is there is not run again. Times are medians of processor time of steps
in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import remat
import remat.torch
import torch
from remat_models.zoo import ZOO, Zoo, animal
from rows import Row, in_error, mb, run_apart, table, yes
from subjects import Setting, Subject, alternate, checkpointed, copied, distance, fitted, min_cut


def without_caches(model: torch.nn.Module) -> torch.nn.Module:
    """Without caches: a block that appends to a cache cannot be recomputed."""
    for module in model.modules():
        config = getattr(module, "config", None)
        if hasattr(config, "use_cache"):
            config.use_cache = False
    return model


def rows_of(z: Zoo, setting: Setting, budgets: list[str]) -> list[Row]:
    torch.set_num_threads(1)
    model, inputs = setting.build(z)
    without_caches(model)
    eager = Subject(z, copied(model), inputs)
    eager.peak()
    eager.model.load_state_dict(model.state_dict())
    expected, eager_peak = eager.state(), eager.peak()
    layered = _layered(z, model, inputs)
    rows: list[Row] = []
    for budget in budgets:
        limit = _limit(z, model, inputs, budget, eager_peak, layered)
        if limit is None:
            continue
        row: Row = {"model": z.name, "budget": budget, "eager_peak": eager_peak, "limit": limit}
        start = time.perf_counter()
        try:
            policies = _policies(z, model, inputs, limit)
        except remat.NoPlanError as error:
            rows.append({**row, "no_plan": str(error)})
            continue
        row["planning_s"] = time.perf_counter() - start
        subject = Subject(z, policies.apply(copied(model)), inputs)
        row["differs"] = expected.differs(subject.state())
        row["peak"], row["predicted"] = subject.peak(), policies.report.predicted_peak
        row["overhead"] = policies.report.overhead
        row["blocks"] = sum(region is not None for region in policies.regions.values())
        beside = [layered] if budget == "layer" and layered is not None else []
        times = alternate([eager, subject, *beside], setting.steps)
        row["ratio"] = times[1] / times[0]
        if beside:
            row["layer_ratio"] = times[2] / times[0]
            again: Any = _layered(z, model, inputs)
            row["layer_differs"] = expected.differs(again.state())
        try:
            ours = fitted(z, copied(model), inputs, limit, setting)
        except remat.NoPlanError:
            rows.append(row)
            continue
        planned: Any = ours.model.remat
        row["our_overhead"], row["our_peak"] = planned.overhead, ours.peak()
        eager_s, ours_s = alternate([eager, ours], setting.steps)
        rows.append({**row, "our_ratio": ours_s / eager_s})
    return rows


def _layered(z: Zoo, model: Any, inputs: Any) -> Subject | None:
    return checkpointed(z, without_caches(copied(model)), inputs) if z.layers else None


def _policies(z: Zoo, model: Any, inputs: Any, limit: int) -> remat.torch.CheckpointPolicies:
    blocks = ["body"] if z.name == "lstm" else None
    return remat.torch.checkpoint_policy(
        model, inputs, limit, loss=z.loss, outputs="dropped", blocks=blocks, compare=False
    )


def _limit(
    z: Zoo, model: Any, inputs: Any, budget: str, eager_peak: int, layered: Subject | None
) -> int | None:
    if budget == "layer":
        if layered is None:
            return None
        layered.step()
        return int(1.001 * layered.peak())
    if budget == "least":
        try:
            _policies(z, model, inputs, int(0.05 * eager_peak))
        except remat.NoPlanError as error:
            return error.smallest_known
    return int(eager_peak * float(budget) / 100)


def partitioner_rows(z: Zoo, setting: Setting) -> list[Row]:
    """PyTorch's `activation_memory_budget` with its own solver, and with ours, with the largest budget that
    keeps the peak (`aot_autograd` with the kernels of eager mode, so that bits can be compared).
    """
    torch.set_num_threads(1)
    model, inputs = setting.build(z)
    without_caches(model)
    eager = Subject(z, copied(model), inputs)
    expected, eager_peak = eager.state(), eager.peak()
    rows: list[Row] = []
    for share in (0.5, 0.2):
        row: Row = {"model": z.name, "share": share, "eager_peak": eager_peak}
        config: Any = torch._functorch.config
        theirs = min_cut(z, copied(model), inputs, share)
        theirs.model.load_state_dict(model.state_dict())
        state = theirs.state()
        row |= {"peak": theirs.peak(), "differs": expected.differs(state), "off": distance(state, expected)}
        times = alternate([eager, theirs], setting.steps)
        row["ratio"] = times[1] / times[0]
        low, high = 1000, eager_peak
        ours: Subject | None = None
        while high > 1.1 * low:
            middle = (low + high) // 2
            with config.patch(activation_memory_budget_solver=remat.torch.memory_budget_solver(middle)):
                try:
                    tried = min_cut(z, copied(model), inputs, 1e-9)
                except Exception:
                    low = middle
                    continue
            tried.model.load_state_dict(model.state_dict())
            if tried.peak() <= row["peak"]:
                ours, low = tried, middle
            else:
                high = middle
        if ours is not None:
            mine = ours.state()
            row |= {"our_peak": ours.peak(), "our_differs": expected.differs(mine)}
            times = alternate([eager, ours], setting.steps)
            row["our_ratio"] = times[1] / times[0]
        rows.append(row)
    return rows


def partitioner_report(rows: list[Row]) -> list[str]:
    lines = []
    for r in rows:
        ours = ["none at this peak", "", ""]
        if "our_ratio" in r:
            ours = [mb(r["our_peak"]), yes(not r["our_differs"]), f"{r['our_ratio']:.3f}"]
        lines.append(
            [
                r["model"],
                str(r["share"]),
                mb(r["eager_peak"]),
                mb(r["peak"]),
                f"NO, off by {r['off']:.0e}" if r["differs"] else "yes",
                f"{r['ratio']:.3f}",
                *ours,
            ]
        )
    return table("model|share|eager MB|its MB|equal|its time|our MB|our equal|our time", lines)


def report(rows: list[Row]) -> list[str]:
    lines = []
    for r in rows:
        start = [r["model"], r["budget"], mb(r["eager_peak"]), f"{r['limit'] / r['eager_peak']:.0%}"]
        if "no_plan" in r:
            lines.append([*start, "no plan", *[""] * 9])
            continue
        ours = ["", ""]
        if "our_ratio" in r:
            ours = [f"{1 + r['our_overhead']:.3f}", f"{r['our_ratio']:.3f}"]
        layer = [f"{r['layer_ratio']:.3f}", yes(not r["layer_differs"])] if "layer_ratio" in r else ["", ""]
        lines.append(
            [
                *start,
                yes(not r["differs"]),
                mb(r["predicted"]),
                mb(r["peak"]),
                in_error(r),
                f"{1 + r['overhead']:.3f}",
                f"{r['ratio']:.3f}",
                *ours,
                *layer,
            ]
        )
    head = (
        "model|budget|eager MB|of eager|equal|predicted MB|measured MB|error|predicted time|time|"
        "our predicted time|our time|time by layer|by layer equal"
    )
    good = [r for r in rows if "no_plan" not in r]
    text = table(head, lines)
    if good:
        worst = max(abs(r["predicted"] / r["peak"] - 1) for r in good)
        text += [
            "",
            f"{len(good)} of {len(rows)} rows have policies: equal {sum(not r['differs'] for r in good)}, "
            f"within the budget {sum(r['peak'] <= r['limit'] for r in good)}, prediction of the peak at most "
            f"{100 * worst:.3f} % off.",
        ]
    layered = [r for r in good if "layer_ratio" in r]
    if layered:
        fast = sum(r["ratio"] <= 1.02 * r["layer_ratio"] for r in layered)
        text.append(f"At the peak of checkpoints by layer: as fast within 2 %: {fast} of {len(layered)}.")
    return text


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", default=",".join(z.name for z in ZOO))
    parser.add_argument("--size", default="small", choices=("small", "large"))
    parser.add_argument("--budgets", default="90,75,layer,least")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--partitioner", action="store_true")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    setting = Setting(size=args.size, steps=args.steps)
    kind = f"{args.size}.partitioner" if args.partitioner else args.size
    if args.child:
        z = animal(args.child)
        partitioned = args.partitioner
        rows = partitioner_rows(z, setting) if partitioned else rows_of(z, setting, args.budgets.split(","))
        print(json.dumps(rows))
        return
    args.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in args.models.split(","):
        rows += run_apart(name, args.out / f"{name}.{kind}.json") or []
    text = "\n".join(partitioner_report(rows) if args.partitioner else report(rows)) + "\n"
    (args.out / f"report.{kind}.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
