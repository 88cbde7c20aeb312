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


@pytest.mark.long
def test_the_jax_front_end_with_the_oldest_jax(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(tmp_path)]
    fetched = subprocess.run([*pip, "jax==0.4.35", "jaxlib==0.4.35"], capture_output=True, text=True)
    if fetched.returncode:
        pytest.skip(f"JAX 0.4.35 was not installed: {fetched.stderr.strip().splitlines()[-1]}")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    for what in sorted(FOLDER.glob("test_*.py")):
        if what.name != "test_jax_libraries.py":  # those that are installed need a newer JAX
            run(what, "not long", PYTHONPATH=path)
    four = "--xla_force_host_platform_device_count=4"
    run(FOLDER / "on_four_devices.py", "not long", PYTHONPATH=path, XLA_FLAGS=four)


def test_older_jax_is_told_by_the_environment_to_keep_checkpoints() -> None:
    script = """
from remat.jax.devices import COMPILER_OPTIONS, flags_with
print(flags_with(COMPILER_OPTIONS, ""))
print(flags_with(COMPILER_OPTIONS, "--xla_disable_hlo_passes=dce --a=1 --xla_disable_hlo_passes=cse"))
"""
    if importlib.util.find_spec("jax") is None:
        pytest.skip("jax is not installed")
    env = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, check=True)
    flag = "--xla_disable_hlo_passes"
    assert done.stdout.splitlines() == [
        f"{flag}=cse_barrier_expander,small-while-loop-hoisting",
        f"--a=1 {flag}=cse,cse_barrier_expander,small-while-loop-hoisting",
    ]
