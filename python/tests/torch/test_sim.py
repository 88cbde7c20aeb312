"""The tests of `sim_checks.py`, on a device that is not there (`sim.py`). It cannot be unregistered, so they
run in a process of their own. By hand: `pytest python/tests/torch/sim_checks.py`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils import backend_registration


def test_a_device_that_is_not_there() -> None:
    if not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"):
        pytest.skip(f"PyTorch {torch.__version__} has no devices that are written in Python")
    checks = Path(__file__).with_name("sim_checks.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(checks)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
