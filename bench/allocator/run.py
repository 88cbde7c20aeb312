#!/usr/bin/env python3
"""Memory that PyTorch's caching allocator reserves for plans, by simulation, and the overhead of budgets on
it.

    python3 bench/allocator/run.py --remat build/remat --shared DIR --write docs/allocator.md

DIR has published graphs in `instances/`. Seconds are CPU time of the whole process, on one thread.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import command

# The budget in percent of the keep-all peak: 50 if plans reach it.
GRAPHS = [
    ("torch_gpt2_12", 50),
    ("torch_resnet50", 50),
    ("torch_transformer_6", 50),
    ("torch_unet", 50),
    ("mobilenet_train", 50),
    ("segnet_train", 50),
    ("fcn8_vgg_train", 70),
    ("vgg16_train", 90),
]
ALLOCATORS = ["cuda", "cuda-expandable"]
WORK = 20_000_000


class Bench:
    def __init__(self, remat: str, instances: Path) -> None:
        self.remat = remat
        self.instances = instances

    def plan(self, graph: Path, *arguments: object) -> tuple[float, dict[str, Any]]:
        run = command.run(self.remat, "plan", graph, *arguments, "--work-limit", WORK)
        return run.cpu, run.said

    def row(self, name: str, percent: int, allocator: str) -> str:
        graph = self.instances / f"{name}.json"
        asked = ("-b", f"{percent}%", "--allocator", allocator)
        seconds, live = self.plan(graph, *asked)
        with tempfile.TemporaryDirectory() as folder:
            plan = Path(folder) / "plan.json"
            on_seconds, reserved = self.plan(graph, *asked, "--budget-on", "reserved", "-o", plan)
            if reserved["reserved_peak"] is not None:
                budget = str(reserved["budget"])
                subprocess.run(
                    [self.remat, "check", str(graph), str(plan), "--budget", budget],
                    check=True,
                    capture_output=True,
                )
        return "| " + " | ".join(
            [
                name,
                f"{percent} %",
                f"`{allocator}`",
                f"{live['reserved_peak'] / live['allocated_peak']:.3f}",
                f"{100 * live['reserved_peak'] / live['budget']:.1f} %",
                f"{100 * live['overhead']:.2f} %",
                f"{seconds:.1f}",
                "-" if reserved["overhead"] is None else f"{100 * reserved['overhead']:.2f} %",
                reserved["status"]
                if reserved["reserved_peak"] is None
                else f"{100 * reserved['reserved_peak'] / reserved['budget']:.1f} %",
                f"{on_seconds:.1f}",
            ]
        ) + " |"  # fmt: skip

    def rows(self) -> list[str]:
        rows = [
            "| graph | budget | allocator | reserved over allocated | reserved | overhead | seconds "
            "| on reserved: overhead | reserved | seconds |",
            "|---|---|---|---|---|---|---|---|---|---|",
        ]
        for name, percent in GRAPHS:
            for allocator in ALLOCATORS:
                rows.append(self.row(name, percent, allocator))
                print(rows[-1], flush=True)
        return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--remat", default="build/remat")
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--write", type=Path, help="put the table into this page")
    arguments = parser.parse_args()
    rows = Bench(arguments.remat, arguments.shared / "instances").rows()
    if arguments.write:
        command.write(arguments.write, "bench/allocator/run.py writes", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
