"""The tests of `sim_checks.py` and `sim_reserved_checks.py`, on a device that is not there (`sim.py`). It
cannot be unregistered, so they run in processes of their own. By hand: `pytest .../sim_checks.py`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils import backend_registration


@pytest.mark.parametrize("kind", ["not long", pytest.param("long", marks=pytest.mark.long)])
@pytest.mark.parametrize("checks", ["sim_checks.py", "sim_reserved_checks.py"])
def test_a_device_that_is_not_there(checks: str, kind: str) -> None:
    if not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"):
        pytest.skip(f"PyTorch {torch.__version__} has no devices that are written in Python")
    path = Path(__file__).with_name(checks)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", kind, str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
