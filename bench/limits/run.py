#!/usr/bin/env python3
"""Overrun of each planner's time limit, and its memory.

    nice -n -10 python3 bench/limits/run.py --remat build/remat --write docs/limits.md

Every run is one call of the command line; what counts is the whole process, from its start to its end, and
its largest resident size, both as the system reports them. A planner that ended well before a limit is not
run with longer ones. Runs that break the promises of docs/limits.md are listed again at the end, with exit
code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import command

# name, arguments of `remat generate`, budget in percent of the keep-all peak
GRAPHS = [
    ("chain_10", "chain --length 10 --bytes 1000 --duration 7", 40),
    ("layered_100", "random_layered --nodes 100", 80),
    ("unet_6", "unet --depth 6 --batch 8 --resolution 512", 40),
    ("dag_300", "random_dag --nodes 300", 40),
    ("resnet_50", "resnet --depth 50 --durations roofline --device a100", 50),
    ("layered_1000", "random_layered --nodes 1000 --width 0.36", 80),
    ("gpt_96", "gpt --depth 96 --durations roofline --device a100", 50),
    ("transformer", "transformer --variant big --granularity primitive --optimizer adam", 50),
    ("layered_20000", "random_layered --nodes 20000", 80),
    ("gpt_1886", "gpt --depth 1886 --durations roofline --device a100", 50),
    ("dag_100000", "random_dag --nodes 100000 --reach 1000", 97),
    ("chain_50000", "chain --length 50000", 20),
]
LIMITS_S = [0.2, 1.0, 5.0]
# Of the command line in the table; docs/limits.md says the same.
OVERRUN_S, OVERRUN_SHARE, MOST_MIB = 0.2, 0.1, 2048
# Protects the machine; far above the promised limits.
GUARD_MIB, GUARD_S = 8192, 60.0


@dataclass
class Run:
    planner: str
    graph: str
    limit: float
    exit: int
    seconds: float
    cpu: float
    mib: float
    said: str

    @property
    def overrun(self) -> float:
        return self.seconds - self.limit

    @property
    def keeps_time(self) -> bool:
        return self.overrun <= max(OVERRUN_S, OVERRUN_SHARE * self.limit)

    def line(self) -> str:
        wrong = "" if self.kept else "LATE " if not self.keeps_time else "LARGE or failed "
        return (
            f"{wrong}{self.planner:15} {self.graph:14} {self.limit:>4} s  took {self.seconds:7.3f} s, "
            f"cpu {self.cpu:6.3f} s {self.mib:7.0f} MiB  exit {self.exit}  {self.said[:90]}"
        )

    @property
    def kept(self) -> bool:
        return self.keeps_time and self.mib <= MOST_MIB and self.exit in (0, 2, 3)


def guard() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (GUARD_MIB << 20, GUARD_MIB << 20))


def measure(command: list[str], limit: float) -> tuple[int, float, float, float, str, str]:
    """Exit code, seconds, processor seconds, resident MiB, standard output, last line of standard error."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begun = time.monotonic()
        process = subprocess.Popen(command, stdout=out, stderr=err, preexec_fn=guard)
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() - begun > limit + GUARD_S:
                process.kill()
            time.sleep(0.002)
        seconds = time.monotonic() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        last = err.read().decode().strip().rpartition("\n")[2]
        cpu = usage.ru_utime + usage.ru_stime
        return process.returncode, seconds, cpu, usage.ru_maxrss / 1024, out.read().decode(), last


class Bench:
    def __init__(self, remat: str, folder: Path, order: str) -> None:
        self.remat, self.folder, self.order = remat, folder, order

    def run(self, name: str, arguments: str, budget: str, planner: str, limit: float) -> Run:
        graph = command.generate(self.remat, self.folder / f"{name}.json", arguments.split())
        words = [self.remat, "plan", str(graph), "--budget", budget, "--json"]
        words += ["--planner", planner, "--order", self.order, "--time-limit", f"{limit}s", "--gap", "0"]
        code, seconds, cpu, mib, out, err = measure(words, limit)
        report = json.loads(out) if out.startswith("{") else {}
        said = report.get("status", err)
        return Run(planner, name, limit, code, round(seconds, 3), round(cpu, 3), round(mib, 1), said)


def rows_of(bench: Bench, planner: str, only: str, longest: float) -> list[Run]:
    runs = []
    for name, arguments, percent in GRAPHS:
        if only not in name:
            continue
        for limit in LIMITS_S:
            if limit > longest:
                continue
            run = bench.run(name, arguments, f"{percent}%", planner, limit)
            if run.exit == 64:  # not supported
                break
            runs.append(run)
            print(run.line(), flush=True)
            if run.seconds < 0.8 * limit:
                break
    return runs


def table_of(runs: list[Run]) -> list[str]:
    """The worst overrun over all graphs per planner and limit, and the worst memory over all runs."""
    limits = sorted({run.limit for run in runs})
    lines = ["| planner | " + " | ".join(f"{limit:g} s" for limit in limits) + " | memory |"]
    lines.append("|---|" + "---|" * len(limits) + "---|")
    for planner in dict.fromkeys(run.planner for run in runs):
        cells = []
        for limit in limits:
            own = [run for run in runs if run.planner == planner and run.limit == limit]
            worst = max(own, key=lambda run: run.overrun, default=None)
            if worst is None or worst.overrun <= 0:
                cells.append("-")
            else:
                cells.append(f"{worst.overrun:+.2f} s, {worst.graph}")
        largest = max((run for run in runs if run.planner == planner), key=lambda run: run.mib)
        lines.append(f"| {planner} | {' | '.join(cells)} | {largest.mib:.0f} MiB, {largest.graph} |")
    kept = sum(run.kept for run in runs)
    said = f"{kept} of {len(runs)} runs keep the promise. `-`: every run ended before its limit."
    return [*lines, "", said]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--remat", default="build/remat")
    parser.add_argument("--planners", default="", help="names separated by commas (default: all)")
    parser.add_argument("--only", default="", help="graphs whose name contains this")
    parser.add_argument("--order", default="fixed", choices=["fixed", "free"])
    parser.add_argument("--longest", type=float, default=5.0, help="only limits up to so many seconds")
    parser.add_argument("--keep", help="folder for the graphs (default: made and removed)")
    parser.add_argument("--write", metavar="FILE", help="the page whose table is to be replaced")
    parser.add_argument("-o", "--output", help="writes every run as one JSON file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(args.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(args.remat, folder, args.order)
        runs = []
        for planner in args.planners.split(",") if args.planners else command.planners(args.remat):
            runs += rows_of(bench, planner, args.only, args.longest)
    if args.output:
        Path(args.output).write_text(json.dumps([asdict(run) for run in runs], indent=1) + "\n")
    if args.write:
        command.write(Path(args.write), "bench/limits/run.py writes", table_of(runs))
    broken = [run for run in runs if not run.kept]
    for run in broken:
        print(f"not kept: {run}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
