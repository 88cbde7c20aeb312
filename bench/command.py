"""Calls of the command line, and tables in pages, for the benchmarks in these folders."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Run:
    """A call: its exit code, CPU seconds of the whole process, and its report ({}: none)."""

    code: int
    cpu: float
    said: dict[str, Any]


def run(remat: str, *arguments: object, codes: Collection[int] = (0, 2, 3)) -> Run:
    """A call with `--json`. Another exit code than these ends the script."""
    command = [remat, *map(str, arguments), "--json"]
    before = os.times()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    after = os.times()
    if done.returncode not in codes:
        raise SystemExit(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}")
    cpu = after.children_user - before.children_user + after.children_system - before.children_system
    return Run(done.returncode, cpu, json.loads(done.stdout) if done.stdout.startswith("{") else {})


def generate(remat: str, path: Path, arguments: Sequence[str]) -> Path:
    """A graph of `remat generate`, unless the file is there."""
    if not path.exists():
        subprocess.run([remat, "generate", *arguments, "-o", str(path)], check=True, capture_output=True)
    return path


def planners(remat: str) -> list[str]:
    return [planner["name"] for planner in run(remat, "planners").said["planners"]]


def write(page: Path, mark: str, rows: Sequence[str]) -> None:
    """Replaces what stands in a page between `<!-- MARK from here -->` and `<!-- to here -->`."""
    begin, end = f"<!-- {mark} from here -->\n", "<!-- to here -->"
    head, rest = page.read_text().split(begin)
    page.write_text(head + begin + "\n".join(rows) + "\n" + rest[rest.index(end) :])
