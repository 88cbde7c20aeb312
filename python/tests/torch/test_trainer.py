"""Where people train: the example for the Trainer of transformers, in both precisions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed")

EXAMPLE = Path(__file__).parents[3] / "examples" / "trainer.py"


@pytest.mark.parametrize("options", [[], ["--bf16"]])
def test_the_trainer_trains_a_fitted_model_as_it_does_the_model_itself(options: list[str], tmp_path) -> None:
    run = subprocess.run(
        [sys.executable, str(EXAMPLE), *options], capture_output=True, text=True, cwd=tmp_path, timeout=600
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("equal bit for bit") == 2
