"""Line coverage of the tests, in src/ (gcov) and in the package (coverage.py).

python tools/coverage.py [--minimum PERCENT] [cpp] [python]

Includes programs that tests start. Fails below the minimum; the uncovered lines are listed in
build-coverage/*.txt. See docs/testing.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build-coverage"


def run(*command: str, **variables: str) -> None:
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, **variables})


def test(*command: str, **variables: str) -> bool:
    """A failing test still counts the lines that it ran."""
    passed = subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}).returncode == 0
    if not passed:
        print("coverage: tests FAILED; what they ran counts", flush=True)
    return passed


@dataclass
class Measure:
    passed: bool
    percent: float


def report(name: str, measure: Measure, uncovered: Path) -> Measure:
    where = uncovered.relative_to(ROOT)
    print(f"coverage: {name}: {measure.percent:.1f} % of lines; the others: {where}", flush=True)
    return measure


def measure_cpp() -> Measure:
    run("cmake", "--preset", "coverage", f"-DPython_EXECUTABLE={sys.executable}")
    run("ninja", "-C", str(BUILD), "--quiet")
    for old in BUILD.rglob("*.gcda"):
        old.unlink()
    passed = test("tools/ctest.sh", str(BUILD))
    summary, uncovered = BUILD / "cpp.json", BUILD / "cpp.txt"
    run(
        *("gcovr", "--root", str(ROOT), "--object-directory", str(BUILD), "-j", "2"),
        *("--filter", "src/", "--filter", "include/"),
        # Both come from inlined and template code with gcc 12 and are no failure of the run.
        *("--gcov-ignore-parse-errors=all", "--merge-mode-functions=merge-use-line-0"),
        *("--json-summary", str(summary), "--txt", str(uncovered)),
    )
    return report("src", Measure(passed, json.loads(summary.read_text())["line_percent"]), uncovered)


def measure_python() -> Measure:
    data = BUILD / "python"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    coverage = {"COVERAGE_FILE": str(data / "data")}
    passed = test(sys.executable, "-m", "coverage", "run", "-m", "pytest", "-q", "python/tests", **coverage)
    run(sys.executable, "-m", "coverage", "combine", "--quiet", **coverage)
    summary, uncovered = BUILD / "python.json", BUILD / "python.txt"
    run(sys.executable, "-m", "coverage", "json", "--quiet", "-o", str(summary), **coverage)
    with uncovered.open("w") as out:
        subprocess.run(
            [sys.executable, "-m", "coverage", "report", "--show-missing", "--skip-covered"],
            cwd=ROOT,
            check=True,
            stdout=out,
            env={**os.environ, **coverage},
        )
    percent = json.loads(summary.read_text())["totals"]["percent_covered"]
    return report("package", Measure(passed, percent), uncovered)


def main() -> int:
    parser = argparse.ArgumentParser(description="Line coverage of src and of the package.")
    parser.add_argument("--minimum", type=float, default=90.0, help="fail below this (default: 90)")
    parser.add_argument("parts", nargs="*", help="cpp, python; both without")
    arguments = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    measures = {"cpp": measure_cpp, "python": measure_python}
    reached = [measures[part]() for part in arguments.parts or list(measures)]
    return 0 if all(one.passed and one.percent >= arguments.minimum for one in reached) else 1


if __name__ == "__main__":
    sys.exit(main())
