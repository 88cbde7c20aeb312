"""`bench/torch/gpt2.py` on a GPT-2 small enough for a test."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="transformers is not installed")

SCRIPT = Path(__file__).resolve().parents[3] / "bench" / "torch" / "gpt2.py"
SMALL = "--layers 2 --width 64 --heads 2 --vocabulary 256 --batch 2 --length 64 --threads 1 --steps 2"


@pytest.mark.long
def test_all_rows_train_alike_within_the_budget_and_one_without_a_plan_ends_the_table() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *SMALL.split(), "--budgets", "60%,1KB"], capture_output=True, text=True
    )
    eager, checkpointing, selective, planned = (line.split() for line in done.stdout.splitlines()[1:5])
    assert [row[-1] for row in (eager, checkpointing, selective, planned)] == ["yes"] * 4
    peaks = [re.findall(r"([\d.]+) MB", " ".join(row))[1] for row in (eager, planned)]
    assert float(peaks[1]) < 0.7 * float(peaks[0])
    assert done.returncode == 1
    assert "InfeasibleError" in done.stderr
