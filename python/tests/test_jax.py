"""The tests of `jax_steps`, in a process of their own: JAX warns where a process that imported it forks."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).with_name("jax_steps")


both_kinds = pytest.mark.parametrize("kind", ["not long", pytest.param("long", marks=pytest.mark.long)])


def run(what: Path, kind: str, **variables: str) -> None:
    if importlib.util.find_spec("jax") is None:
        pytest.skip("jax is not installed")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", kind, str(what)]
    # JAX takes a plugin for GPUs without one only where GPUs are not asked for.
    env = {**os.environ, "JAX_PLATFORMS": "cpu", **variables}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout + done.stderr


@both_kinds
def test_the_jax_front_end(kind: str) -> None:
    run(FOLDER, kind)


@both_kinds
def test_the_jax_front_end_on_four_devices(kind: str) -> None:
    run(FOLDER / "on_four_devices.py", kind, XLA_FLAGS="--xla_force_host_platform_device_count=4")


def test_the_jax_front_end_compiles_for_gpus() -> None:
    if importlib.util.find_spec("jax_plugins") is None:
        pytest.skip("the wheels that JAX compiles for GPUs with are not installed (docs/jax.md)")
    run(FOLDER / "for_gpus.py", "not long")
