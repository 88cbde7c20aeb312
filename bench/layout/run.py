#!/usr/bin/env python3
"""Layouts: distance to the live peak, time, and the overhead of budgets on the arena.

    python3 bench/layout/run.py --remat build/remat --shared DIR --write docs/layout.md

DIR has published graphs in `instances/` and minimalloc's problems (A.1048576.csv, ...) in `layout/`. Every
layout goes through `remat check`. Seconds are CPU time of the whole process, reading included, on one thread.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import command

CAPACITY = 1048576
SEEDS = 5
# name, alignment; sizes of graphs of the literature are small numbers, not bytes
PUBLISHED = [
    ("random_layered_n100", 1),
    ("random_layered_n500", 1),
    ("fcn8_vgg_train", 64),
    ("mobilenet_train", 64),
    ("vgg16_train", 64),
    ("torch_gpt2_12", 64),
    ("torch_resnet50", 64),
    ("torch_transformer_6", 64),
    ("torch_unet", 64),
]
GENERATED = [
    ("gpt_24", "gpt --depth 24 --durations roofline --device a100", 64),
    ("densenet", "densenet", 64),
    ("transformer", "transformer", 64),
]
# Of the way from the smallest peak found to the keep-all peak.
SHARES = [0.9, 0.7, 0.5, 0.3, 0.15]
LARGE = [
    ("layered_20000", "random_layered --nodes 20000", 80),
    ("gpt_1886", "gpt --depth 1886 --durations roofline --device a100", 60),
    ("dag_100000", "random_dag --nodes 100000 --reach 1000", 97),
    ("chain_50000", "chain --length 50000", 20),
]
TABLES = [10_000, 30_000, 62_000, 100_000]  # buffers
TABLE_WORK = 50_000_000  # about ten seconds where there are many
PLAN_WORK = 5_000_000  # about a second


class Bench:
    def __init__(self, remat: str, shared: Path, folder: Path) -> None:
        self.remat = remat
        self.shared = shared
        self.folder = folder
        self.failures: list[str] = []

    def run(self, *arguments: object) -> command.Run:
        return command.run(self.remat, *arguments)

    def generate(self, name: str, arguments: str) -> Path:
        return command.generate(self.remat, self.folder / f"{name}.json", arguments.split())

    def confirm(self, *arguments: object) -> None:
        check = [self.remat, "check", *map(str, arguments)]
        done = subprocess.run(check, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            self.failures.append(done.stderr.strip())

    def strips(self) -> list[str]:
        rows, totals = (
            ["| problem | buffers | seed 0 | median | worst |", "|---|---|---|---|---|"],
            [0.0] * SEEDS,
        )
        for table in sorted((self.shared / "layout").glob(f"*.{CAPACITY}.csv")):
            name, out = table.name.partition(".")[0], self.folder / "out.csv"
            seconds = []
            for seed in range(SEEDS):
                run = self.run(
                    "layout", table, "--capacity", CAPACITY, "--seed", seed, "--time-limit", "60s", "-o", out
                )
                if run.code == 0:
                    self.confirm(out, "--capacity", CAPACITY)
                else:
                    self.failures.append(f"{name} with seed {seed}: exit {run.code}")
                seconds.append(run.cpu if run.code == 0 else math.inf)
                totals[seed] += seconds[-1]
            print(name, seconds, flush=True)
            columns = seconds[0], median(seconds), max(seconds)
            rows.append(f"| {name} | {run.said['buffers']} | " + " | ".join(map(in_seconds, columns)) + " |")
        columns = totals[0], median(totals), max(totals)
        rows.append("| together | | " + " | ".join(map(in_seconds, columns)) + " |")
        return rows

    def plans(self) -> list[str]:
        rows = [
            "| graph | budget | buffers | arena over live peak | seconds | overhead | on arena | arena |",
            "|---|---|---|---|---|---|---|---|",
        ]
        graphs = [(name, self.shared / "instances" / f"{name}.json", align) for name, align in PUBLISHED]
        graphs += [(name, self.generate(name, arguments), align) for name, arguments, align in GENERATED]
        for name, graph, align in graphs:
            rows += self.plans_of(name, graph, align)
        return rows

    def plans_of(self, name: str, graph: Path, align: int) -> list[str]:
        effort = ("--work-limit", PLAN_WORK)
        least = self.run("plan", graph, "--objective", "peak", *effort).said
        low, high = least["peak"], least["keep_all_peak"]
        rows = []
        plan, layout = self.folder / "p.plan", self.folder / "p.layout"
        for share in SHARES:
            budget = int(low + share * (high - low))
            live = self.run("plan", graph, "-b", budget, *effort, "-o", plan)
            if live.code != 0:
                self.failures.append(f"{name} at {budget}: no plan")
                continue
            laid = self.run("layout", graph, plan, "--align", align, "--time-limit", "1s", "-o", layout)
            self.confirm(graph, plan, layout)
            over = (
                (laid.said["arena"] - laid.said["live_peak"]) / laid.said["live_peak"],
                laid.said["arena_lower_bound"] > laid.said["live_peak"],
            )
            both = self.run(
                "plan", graph, "-b", budget, "--budget-on", "arena", "--align", align, *effort, "-o", plan,
                "--layout", layout,
            )  # fmt: skip
            found = both.code == 0
            if found:
                self.confirm(graph, plan, layout, "--budget", budget)
            on_arena = f"{100 * both.said['overhead']:.2f} %" if found else "none"
            used = f"{100 * both.said['arena'] / budget:.2f} %" if found else "-"
            row = (
                f"| {name} | {100 * budget / high:.1f} % | {laid.said['buffers']} | {100 * over[0]:.3f} % "
                f"| {laid.cpu:.2f} | {100 * live.said['overhead']:.2f} % | {on_arena} | {used} |"
            )
            print(row, flush=True)
            rows.append(row)
        return rows

    def large(self) -> list[str]:
        rows = [
            "| graph | buffers | after 2 s | after 10 s | seconds |",
            "|---|---|---|---|---|",
        ]
        for name, arguments, percent in LARGE:
            graph, plan, layout = (
                self.generate(name, arguments),
                self.folder / "l.plan",
                self.folder / "l.layout",
            )
            if self.run("plan", graph, "-b", f"{percent}%", "--time-limit", "5s", "-o", plan).code != 0:
                self.run("plan", graph, "-b", "100%", "--planner", "keep_all", "-o", plan)
                name += ", keep-all"
            over = []
            for limit in ("2s", "10s"):
                run = self.run("layout", graph, plan, "--align", 1, "--time-limit", limit, "-o", layout)
                over.append(f"{100 * run.said['arena_over_live_peak']:.3f} %")
            self.confirm(graph, plan, layout)
            row = f"| {name} | {run.said['buffers']} | {over[0]} | {over[1]} | {run.cpu:.2f} |"
            print(row, flush=True)
            rows.append(row)
        return rows

    def tables(self) -> list[str]:
        rows = ["| buffers | median | worst | seconds: median | worst |", "|---|---|---|---|---|"]
        for count in TABLES:
            table, out = self.folder / "table.csv", self.folder / "out.csv"
            over, seconds = [], []
            for seed in range(1, SEEDS + 1):
                self.run("generate", "buffers", "--count", count, "--seed", seed, "-o", table)
                run = self.run("layout", table, "--work-limit", TABLE_WORK, "-o", out)
                self.confirm(out)
                over.append(100 * run.said["arena_over_live_peak"])
                seconds.append(run.cpu)
            row = (
                f"| {count:,} | {median(over):.3f} % | {max(over):.3f} % "
                f"| {median(seconds):.2f} | {max(seconds):.2f} |"
            )
            print(row, over, flush=True)
            rows.append(row)
        return rows


def in_seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if math.isfinite(seconds) else "none"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--remat", default="build/remat")
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--write", type=Path, help="put the tables into this page")
    parser.add_argument("--only", choices=["strips", "plans", "large", "tables"], action="append")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(arguments.remat, arguments.shared, Path(folder))
        for name in arguments.only or ["strips", "plans", "large", "tables"]:
            rows = getattr(bench, name)()
            if arguments.write:
                command.write(arguments.write, f"bench/layout/run.py writes {name}", rows)
    for failure in bench.failures:
        print("MISSED:", failure)
    return 1 if bench.failures else 0


if __name__ == "__main__":
    sys.exit(main())
