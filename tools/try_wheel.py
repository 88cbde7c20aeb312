"""Tries an installed package in a bare Python environment: import, plan, check, the command line.

PYTHON tools/try_wheel.py
"""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import remat
import remat._core


def training_step(layers: int) -> remat.Graph:
    """A chain: forward op i makes value i + 1 of value i, backward op i reads value i and a gradient."""
    ops = [remat.Op(f"f{i}", 10, [i], [i + 1]) for i in range(layers)]
    ops += [remat.Op(f"b{i}", 20, [i, 2 * layers - 1 - i], [2 * layers - i]) for i in reversed(range(layers))]
    return remat.Graph([1000] * (2 * layers + 1), ops, inputs=[0], outputs=[2 * layers])


def plan_in_python(folder: Path) -> None:
    graph = training_step(8)
    result = remat.plan(graph, "60%", time_limit=2)
    assert result.status == "optimal", result.status
    assert result.plan is not None
    remat.check(graph, result.plan)  # every rule, the budget among them
    solved = remat.plan(graph, "60%", planner="checkmate_milp", time_limit=20)  # by HiGHS
    assert solved.duration == result.duration, (solved.duration, result.duration)
    graph.save(folder / "graph.json")
    result.plan.save(folder / "python.plan")


def plan_on_the_command_line(folder: Path) -> None:
    def remat_command(*arguments: str) -> str:
        command = [str(Path(sysconfig.get_path("scripts")) / "remat"), *arguments]
        return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout

    assert remat_command("--version").strip() == f"remat {remat.__version__}"
    remat_command("check", "graph.json", "python.plan")
    assert "status = optimal" in remat_command("plan", "graph.json", "--budget", "60%", "-o", "shell.plan")
    remat.check(remat.load_graph(folder / "graph.json"), remat.load_plan(folder / "shell.plan"))


def licences() -> int:
    files = importlib.metadata.files("remat") or []
    found = [file for file in files if ".dist-info/licenses/" in str(file)]
    assert {"LICENSE", "HiGHS.txt", "nanobind.txt", "THIRD_PARTY.md"} <= {file.name for file in found}
    return len(found)


def main() -> None:
    module = Path(remat._core.__file__).name
    with tempfile.TemporaryDirectory() as folder:
        plan_in_python(Path(folder))
        plan_on_the_command_line(Path(folder))
    compilers = [name for name in ("cc", "c++", "gcc", "g++", "clang", "clang++") if shutil.which(name)]
    version = ".".join(map(str, sys.version_info[:3]))
    found = ", ".join(compilers) or "none"
    print(f"Python {version}, {module}: plans; {licences()} licences; compilers: {found}")


if __name__ == "__main__":
    main()
