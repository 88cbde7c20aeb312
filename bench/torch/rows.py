"""Rows of Markdown tables, and scripts that run each of their rows in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def mb(size: float) -> str:
    return f"{size / 1e6:.2f}"


def yes(value: Any) -> str:
    return "yes" if value else "NO"


def in_error(row: Row) -> str:
    """How far the predicted peak is from the measured one."""
    return f"{100 * (row['predicted'] / row['peak'] - 1):+.3f} %"


def table(head: str, rows: list[list[str]]) -> list[str]:
    """head: names of columns, with `|` between them."""
    columns = head.split("|")
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def memory_of_process(name: str) -> int:
    """Bytes: a line of /proc/self/status, such as "VmHWM", the highest resident set so far."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {name}: this benchmark needs Linux")


def run_apart(child: str, path: Path | None = None) -> Any:
    """What this script prints as its last line, in JSON, with `--child CHILD` beside its own arguments; None
    where it fails. If there is a path, the result is kept there, and what is there is not run again.
    """
    if path is not None and path.exists():
        return json.loads(path.read_text())
    start = time.perf_counter()
    command = [sys.executable, sys.argv[0], *sys.argv[1:], "--child", child]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    last = done.stdout.strip().splitlines()[-1:]
    if done.returncode or not last:
        print(f"{child}: failed\n{done.stderr[-700:]}", file=sys.stderr, flush=True)
        return None
    print(f"{child}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    if path is not None:
        path.write_text(last[0])
    return json.loads(last[0])
