"""`bench/torch/gpt2.py` on a GPT-2 small enough for a test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="transformers is not installed")

SCRIPT = Path(__file__).resolve().parents[3] / "bench" / "torch" / "gpt2.py"
SMALL = "--layers 2 --width 64 --heads 2 --vocabulary 256 --batch 2 --length 64 --threads 1 --steps 2"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *SMALL.split(), *arguments], capture_output=True, text=True
    )


def test_all_rows_train_alike_and_the_planned_one_takes_less_memory() -> None:
    done = run("--budgets", "60%")
    assert done.returncode == 0, done.stderr
    eager, checkpointing, planned = (line.split() for line in done.stdout.splitlines()[1:4])
    assert [eager[-1], checkpointing[-1], planned[-1]] == ["yes"] * 3
    peak = {"GB": 1e9, "MB": 1e6}
    bytes_of = [float(row[row.index("s") - 3]) * peak[row[row.index("s") - 2]] for row in (eager, planned)]
    assert bytes_of[1] < 0.7 * bytes_of[0]


def test_a_row_without_a_plan_ends_with_its_error() -> None:
    done = run("--budgets", "1KB")
    assert done.returncode == 1
    assert "InfeasibleError" in done.stderr
