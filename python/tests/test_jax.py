"""The tests of `jax_steps`, in a process of their own: JAX warns where a process that imported it forks."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest


def test_the_jax_front_end() -> None:
    if importlib.util.find_spec("jax") is None:
        pytest.skip("jax is not installed")
    folder = Path(__file__).with_name("jax_steps")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
