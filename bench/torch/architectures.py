#!/usr/bin/env python3
"""Every architecture of the tests' zoo, planned at several budgets: bits, bytes and times against eager mode.

    python bench/torch/architectures.py --out DIR [--models gpt2,unet] [--budgets 100,75,50,least] [--jobs 2]
    python bench/torch/architectures.py --out DIR --others      what PyTorch has beside, and us at its peaks
    python bench/torch/architectures.py --out DIR --growth 200  memory of the process over so many steps
    python bench/torch/architectures.py --out DIR --host auto --budgets 50,30    with a file as host
    python bench/torch/architectures.py --out DIR --all         the first three
    python bench/torch/architectures.py --out DIR --device cuda --dtype bfloat16

Each model runs in a process of its own. DIR holds a file for each model and table: what is there is not run
again. The tables are printed, and written to DIR/report.md.

Budgets are percent of the measured eager peak; `least` is the plan with the least peak that is found in 10 s.
Times are medians of steps that take turns: processor time on the CPU, elapsed time on CUDA.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import remat
import torch
from remat_models.zoo import ZOO, Zoo, animal
from rows import Row, in_error, mb, run_apart, table, yes
from subjects import (
    Setting,
    State,
    Subject,
    alternate,
    checkpointed,
    copied,
    distance,
    fitted,
    least_plan,
    min_cut,
    resident_bytes,
)

SHARES = (1.0, 0.7, 0.5, 0.3, 0.1)


def eager_mode(z: Zoo, setting: Setting) -> tuple[Any, Any, Subject, State, int]:
    """The model, its inputs, it in eager mode, the state after its step, and its peak."""
    model, inputs = setting.build(z)
    eager = _fresh(z, model, inputs)
    first = eager.peak()
    eager.model.load_state_dict(model.state_dict())
    expected = eager.state()
    return model, inputs, eager, expected, max(first, eager.peak())


def _checked(subject: Subject, expected: State) -> Row:
    """What a planned step gives beside eager mode's, and its peak beside the predicted one."""
    report: Any = subject.model.remat
    row: Row = {"equal": not expected.differs(subject.state())}
    row |= {"peak": subject.peak(), "predicted": report.predicted_peak, "ops": report.parts[0].ops}
    return row | {"kept": row["peak"] <= min(report.budget, report.predicted_peak)}


def budgets_table(z: Zoo, setting: Setting, budgets: Sequence[str]) -> list[Row]:
    """One row for each budget."""
    model, inputs, eager, expected, eager_peak = eager_mode(z, setting)
    again = not expected.differs(_fresh(z, model, inputs).state())
    rows: list[Row] = []
    for budget in budgets:
        row: Row = {"model": z.name, "budget": budget, "eager_peak": eager_peak, "deterministic": again}
        start = time.perf_counter()
        try:
            if budget == "least":
                plan = least_plan(z, copied(model), inputs, setting)
                subject = fitted(z, copied(model), inputs, 1 << 60, setting, plan)
            else:
                limit = int(eager_peak * float(budget) / 100)
                subject = fitted(z, copied(model), inputs, limit, setting)
        except remat.NoPlanError as error:
            rows.append({**row, "no_plan": str(error)})
            continue
        row["planning_s"] = time.perf_counter() - start
        row |= _checked(subject, expected)
        row["overhead"] = subject.model.remat.overhead
        eager_s, planned_s = alternate([eager, subject], setting.steps)
        rows.append({**row, "eager_s": eager_s, "ratio": planned_s / eager_s})
    return rows


def _fresh(z: Zoo, model: Any, inputs: Any) -> Subject:
    return Subject(z, copied(model), inputs)


def others_table(z: Zoo, setting: Setting) -> list[Row]:
    """Other tools, one row each, and our plan within the same peak. With dropout, only their gradients are
    checked: a wrong step need not be timed.
    """
    model, inputs = setting.build(z)
    eager = _fresh(z, model, inputs)
    expected, eager_peak = eager.state(), eager.peak()
    ways: list[tuple[str, Callable[[], Subject]]] = []
    if z.layers:
        ways.append(("checkpoint by layer", lambda: checkpointed(z, copied(model), inputs)))
    for share in (1.0, 0.5, 0.1) if z.dropout else SHARES:
        make = lambda share=share: min_cut(z, copied(model), inputs, share)  # noqa: E731
        ways.append((f"memory budget {share}", make))
    rows: list[Row] = []
    known: dict[int, Row] = {}
    for name, make in ways:
        row: Row = {"model": z.name, "way": name, "eager_peak": eager_peak, "dropout": z.dropout}
        try:
            theirs = make()
            theirs.model.load_state_dict(model.state_dict())
            state = theirs.state()
            row |= {"peak": theirs.peak(), "differs": expected.differs(state)}
            row["off"] = distance(state, expected)
        except Exception as error:
            rows.append({**row, "failed": f"{type(error).__name__}: {str(error).splitlines()[0]}"})
            continue
        if z.dropout:
            rows.append(row)
            continue
        # Before compiling ours, which makes Dynamo forget theirs.
        eager_s, theirs_s = alternate([eager, theirs], setting.steps)
        row["ratio"] = theirs_s / eager_s
        if row["peak"] in known:
            rows.append({**row, **known[row["peak"]]})
            continue
        try:
            ours = fitted(z, copied(model), inputs, row["peak"], setting)
        except remat.NoPlanError as error:
            rows.append({**row, "no_plan": str(error)})
            continue
        mine = ours.state()
        eager_s, ours_s = alternate([eager, ours], setting.steps)
        compared = {
            "our_peak": ours.peak(),
            "our_ratio": ours_s / eager_s,
            "our_overhead": ours.model.remat.overhead,
            "our_equal": not expected.differs(mine),
        }
        known[row["peak"]] = compared
        rows.append({**row, **compared})
    return rows


def growth_table(z: Zoo, setting: Setting, steps: int) -> list[Row]:
    """Growth of the process over many steps of the small model, in eager mode and planned."""
    setting = replace(setting, size="small")
    model, inputs = setting.build(z)
    eager = _fresh(z, model, inputs)
    eager_peak = eager.peak()
    planned = fitted(z, copied(model), inputs, int(0.75 * eager_peak), setting)
    return [
        {
            "model": z.name,
            "steps": steps,
            "eager_grown": _grown(eager, steps),
            "grown": _grown(planned, steps),
            "eager_peak": eager_peak,
        }
    ]


def host_table(z: Zoo, setting: Setting, budgets: Sequence[str], host: str) -> list[Row]:
    """One row for each budget: the plan with a host, and the one without. Times are elapsed, as waiting takes
    no CPU time.
    """
    model, inputs, eager, expected, eager_peak = eager_mode(z, setting)
    rows: list[Row] = []
    for budget in budgets:
        row: Row = {"model": z.name, "budget": budget, "eager_peak": eager_peak}
        limit = int(eager_peak * float(budget) / 100)
        for key, where in (("", host), ("plain_", None)):
            start = time.perf_counter()
            try:
                subject = fitted(z, copied(model), inputs, limit, setting, host=where)
            except remat.NoPlanError as error:
                row[f"{key}no_plan"] = str(error)
                continue
            row[f"{key}planning_s"] = time.perf_counter() - start
            part = subject.model.remat.parts[0]
            row[f"{key}overhead"] = part.overhead
            if where is not None:
                row |= _checked(subject, expected)
                row |= {"out": part.copied_out, "again": part.recomputed_steps}
                row |= {"host": repr(part.host), "stalled": part.stalled / (part.duration_lower_bound / 1e9)}
                part.traffic.clear()
            eager_s, planned_s = alternate([eager, subject], setting.steps, elapsed=True)
            row |= {f"{key}eager_s": eager_s, f"{key}ratio": planned_s / eager_s}
            if where is not None:
                row["really_stalled"] = part.traffic.stalled / max(1, part.traffic.calls) / eager_s
        rows.append(row)
    return rows


def _grown(subject: Subject, steps: int) -> int:
    for _ in range(20):
        subject.seconds()
    start = resident_bytes()
    for _ in range(steps):
        subject.seconds()
    return resident_bytes() - start


def _in_short(rows: list[Row]) -> str:
    errors = [abs(r["predicted"] / r["peak"] - 1) for r in rows]
    return (
        f"{len(rows)} rows: equal {sum(r['equal'] for r in rows)}, kept {sum(r['kept'] for r in rows)}; "
        f"prediction error of the peak: median {100 * statistics.median(errors):.3f} %, largest "
        f"{100 * max(errors):.3f} %. "
    )


def write_budgets(rows: list[Row]) -> list[str]:
    lines = []
    for r in rows:
        start = [r["model"], str(r.get("ops", "")), r["budget"], mb(r["eager_peak"])]
        if "no_plan" in r:
            lines.append([*start, *["no plan"] * 8])
            continue
        lines.append(
            [
                *start,
                yes(r["equal"]),
                mb(r["predicted"]),
                mb(r["peak"]),
                in_error(r),
                yes(r["kept"]),
                f"{1 + r['overhead']:.3f}",
                f"{r['ratio']:.3f}",
                f"{r['planning_s']:.1f}",
            ]
        )
    head = "model|ops|budget %|eager MB|equal|predicted MB|measured MB|error|kept|predicted time|time|plan s"
    good = [r for r in rows if "no_plan" not in r]
    text = table(head, lines)
    if good:
        whole = [r["ratio"] for r in good if r["overhead"] == 0]
        off = [abs(r["ratio"] - 1 - r["overhead"]) for r in good if r["overhead"] > 0]
        text += [
            "",
            _in_short(good)
            + (f"Time with nothing recomputed: median {statistics.median(whole):.3f}. " if whole else "")
            + (f"Distance from the predicted time: median {statistics.median(off):.3f}." if off else ""),
        ]
    unsure = sorted({r["model"] for r in rows if not r["deterministic"]})
    return [*text, *([f"Eager mode itself differs from run to run: {', '.join(unsure)}."] if unsure else [])]


def write_others(rows: list[Row]) -> list[str]:
    lines = []
    for r in rows:
        start = [r["model"], r["way"], mb(r["eager_peak"])]
        if "failed" in r:
            lines.append([*start, r["failed"], *[""] * 8])
            continue
        lines.append(
            [
                *start,
                mb(r["peak"]),
                f"{r['differs']} differ" if r["differs"] else "yes",
                f"{r['off']:.1e}",
                f"{r['ratio']:.3f}" if "ratio" in r else "",
                *(
                    ["no plan" if "no_plan" in r else ""] * 5
                    if "our_ratio" not in r
                    else [
                        mb(r["our_peak"]),
                        yes(r["our_equal"]),
                        f"{r['our_ratio']:.3f}",
                        f"{1 + r['our_overhead']:.3f}",
                        yes(r["our_ratio"] <= r["ratio"]),
                    ]
                ),
            ]
        )
    head = (
        "model|way|eager MB|its MB|equal|off by|its time|our MB|our equal|our time|our predicted time|as fast"
    )
    good = [r for r in rows if "our_ratio" in r]
    faster = sum(r["our_ratio"] <= r["ratio"] for r in good)
    close = sum(r["our_ratio"] <= 1.02 * r["ratio"] for r in good)
    return [*table(head, lines), "", f"At least as fast: {faster} of {len(good)}; within 2 %: {close}."]


def write_growth(rows: list[Row]) -> list[str]:
    return table(
        "model|steps|eager grows by MB|planned grows by MB|step's peak MB",
        [
            [
                r["model"],
                str(r["steps"]),
                *(f"{r[k] / 1000000.0:+.2f}" for k in ("eager_grown", "grown")),
                mb(r["eager_peak"]),
            ]
            for r in rows
        ],
    )


def write_host(rows: list[Row]) -> list[str]:
    lines = []
    for r in rows:
        plain = ["no plan", ""]
        if "plain_ratio" in r:
            plain = [f"{1 + r['plain_overhead']:.3f}", f"{r['plain_ratio']:.3f}"]
        start = [r["model"], r["budget"], mb(r["eager_peak"])]
        if "no_plan" in r:
            lines.append([*start, *["no plan"] * 9, *plain])
            continue
        lines.append(
            [
                *start,
                yes(r["equal"]),
                mb(r["peak"]),
                in_error(r),
                yes(r["kept"]),
                mb(r["out"]),
                str(r["again"]),
                f"{1 + r['overhead']:.3f}",
                f"{r['ratio']:.3f}",
                f"{r['really_stalled']:.3f}",
                *plain,
            ]
        )
    head = (
        "model|budget %|eager MB|equal|measured MB|error|kept|out MB|again|predicted time|time|of it stalled|"
        "without: predicted|without: time"
    )
    good = [r for r in rows if "no_plan" not in r]
    if not good:
        return table(head, lines)
    both = [r for r in good if "plain_overhead" in r]
    better = sum(r["overhead"] <= r["plain_overhead"] for r in both)
    return [
        *table(head, lines),
        "",
        f"{_in_short(good)}Predicted to be no slower than without a host: {better} of {len(both)}; "
        f"no plan without: {len(good) - len(both)}. Host: {good[0]['host']}.",
    ]


WRITERS = {"budgets": write_budgets, "others": write_others, "growth": write_growth, "host": write_host}


def run_one(given: argparse.Namespace, kind: str, name: str) -> list[Row]:
    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as cache:
        setting = Setting(given.size, given.device, given.dtype, given.steps, cache)
        z = animal(name)
        if kind == "budgets":
            return budgets_table(z, setting, given.budgets.split(","))
        if kind == "host":
            return host_table(z, setting, given.budgets.split(","), given.host)
        return others_table(z, setting) if kind == "others" else growth_table(z, setting, given.growth)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default=",".join(z.name for z in ZOO))
    parser.add_argument("--budgets", default="100,75,50,least")
    parser.add_argument("--size", choices=("small", "large"), default="large")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="models at once")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    parser.add_argument("--others", action="store_true")
    parser.add_argument("--growth", type=int, default=0)
    parser.add_argument("--host", default="")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.all and not given.growth:
        given.growth = 200
    return given


def main() -> int:
    given = parse()
    if given.child:
        kind, _, name = given.child.partition(":")
        print(json.dumps(run_one(given, kind, name)))
        return 0
    kinds = ["budgets"] if given.all or not (given.others or given.growth or given.host) else []
    kinds += ["host"] * bool(given.host)
    kinds += ["others"] * (given.all or given.others) + ["growth"] * (given.growth > 0)
    out: Path = given.out or Path(tempfile.mkdtemp(prefix="remat-architectures-"))
    out.mkdir(parents=True, exist_ok=True)
    models = given.models.split(",")
    jobs = [(kind, model) for kind in kinds for model in models]
    with ThreadPoolExecutor(given.jobs) as pool:
        done = pool.map(lambda job: run_apart(":".join(job), out / f"{'-'.join(job)}.json"), jobs)
        found = dict(zip(jobs, done, strict=True))
    lines = [
        f"PyTorch {torch.__version__}, {given.device}, {given.dtype}, {given.threads} threads, "
        f"{given.jobs} models at once"
    ]
    good = None not in found.values()
    for kind in kinds:
        rows: list[Row] = [row for model in models for row in found[kind, model] or []]
        lines += ["", f"## {kind}", "", *WRITERS[kind](rows)]
        good = good and all(
            r.get("equal", True) and r.get("kept", True) for r in rows if kind in ("budgets", "host")
        )
    (out / "report.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
