"""Where people train: the examples of training loops, each in one precision."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"
NEEDS = {
    "trainer": "transformers",
    "accelerate_loop": "accelerate",
    "sft": "trl",
    "lightning_loop": "pytorch_lightning",
}


# Each takes most of a minute: one type for each.
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("trainer", ["--bf16"]),
        pytest.param("sft", [], marks=pytest.mark.long),
        pytest.param("accelerate_loop", ["--bf16"], marks=pytest.mark.long),
        pytest.param("lightning_loop", [], marks=pytest.mark.long),
    ],
    ids=lambda x: x if isinstance(x, str) else "bf16" if x else "float32",
)
def test_loops_train_a_fitted_model_as_they_do_the_model_itself(
    name: str, options: list[str], tmp_path
) -> None:
    for package in ("transformers", "accelerate", NEEDS[name]):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    run = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *options],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=600,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("equal bit for bit") == 2
