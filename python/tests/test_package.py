"""What the package promises besides planning: imports, the command, types, no leaks."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest
import remat

PACKAGE = Path(remat.__file__).parent


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120
    )


def test_importing_remat_does_not_import_torch() -> None:
    done = python(
        "import sys, remat; remat.planners(); print(sorted(m for m in sys.modules if m.startswith('torch')))"
    )
    assert (done.stdout, done.stderr, done.returncode) == ("[]\n", "", 0)


def test_every_public_name_has_a_docstring() -> None:
    for name in dir(remat):
        assert getattr(remat, name).__doc__, name


def test_types_come_with_the_package() -> None:
    assert (PACKAGE / "py.typed").exists()
    stub = (PACKAGE / "_core.pyi").read_text()
    for name in ("Graph", "Op", "Plan", "PlanResult", "Simulation", "PlannerInfo"):
        assert f"class {name}:" in stub


def test_nothing_leaks_when_python_ends() -> None:
    done = python(
        "import remat\n"
        "g = remat.Graph([4, 4], [remat.Op('a', 1, [], [0]), remat.Op('b', 1, [0], [1])], outputs=[1])\n"
        "view, r = g.bytes, remat.plan(g, '100%', progress=print)\n"
        "p = r.plan; memory = p.memory(g); cost = remat.check(g, p).memory\n"
        "try: remat.plan(g, 1, check=True)\n"
        "except remat.NoPlanError: pass\n"
    )
    assert done.stderr == ""
    assert done.returncode == 0


def test_memory_stays_level_over_many_calls() -> None:
    if sys.platform != "linux":
        pytest.skip("resident size is read from /proc")

    def resident_kib() -> int:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") // 1024

    def work() -> None:
        ops = [remat.Op(f"op{i}", 1, [i - 1] if i else [], [i]) for i in range(200)]
        graph = remat.Graph([1] * 200, ops)
        r = remat.plan(graph, "100%", planner="keep_all")
        assert r.plan is not None
        r.plan.memory(graph)
        graph.to_dict()
        with pytest.raises(remat.UsageError):
            remat.plan(graph, "100%", planner="nope")

    for _ in range(50):
        work()
    before = resident_kib()
    for _ in range(500):
        work()
    # 500 graphs of 200 ops that stayed would be 30 MB or more.
    assert resident_kib() - before < 8 * 1024


def test_the_console_script_is_the_command_line(shipped_planners: list[str]) -> None:
    entry = importlib.metadata.distribution("remat").entry_points
    scripts = {e.name: e.value for e in entry if e.group == "console_scripts"}
    assert scripts == {"remat": "remat._cli:main"}
    backends = {e.name for e in entry if e.group == "torch_dynamo_backends"}
    assert backends == {"remat"}
    done = subprocess.run(
        [sys.executable, "-m", "remat", "planners"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    assert all(name in done.stdout for name in shipped_planners)


def test_the_command_line_and_python_agree(tmp_path: Path) -> None:
    graph = remat.Graph(
        [100] * 3, [remat.Op(f"op{i}", 5, [i - 1] if i else [], [i]) for i in range(3)], outputs=[2]
    )
    graph.save(tmp_path / "g.json")
    command = [sys.executable, "-m", "remat", "plan", "g.json", "--budget", "100%", "-o", "p.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said = dict(line.split(" = ", 1) for line in done.stdout.splitlines())
    r = remat.plan(graph, "100%")
    for key in ("status", "stopped_by", "planner", "order", "peak_bound_argument", "duration_bound_argument"):
        assert said[key] == getattr(r, key)
    for key in ("budget", "peak", "keep_all_peak", "duration", "peak_lower_bound", "duration_lower_bound"):
        assert int(said[key]) == getattr(r, key)
    plan = remat.load_plan(tmp_path / "p.json")
    assert plan.steps == [0, 1, 2]
    remat.check(graph, plan)
