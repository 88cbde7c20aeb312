"""Which lines the tests run, in src/ (gcov) and in the package (coverage.py).

python tools/coverage.py [--minimum PERCENT] [cpp] [python]

Programs that tests start count too. What is below the minimum is a failure; what stays uncovered stands in
build-coverage/*.txt, line by line. docs/testing.md says why.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build-coverage"


def run(*command: str, **variables: str) -> None:
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, **variables})


def report(name: str, percent: float, uncovered: Path) -> float:
    print(
        f"coverage: {name}: {percent:.1f} % of lines; the others: {uncovered.relative_to(ROOT)}", flush=True
    )
    return percent


def measure_cpp() -> float:
    run("cmake", "--preset", "coverage", f"-DPython_EXECUTABLE={sys.executable}")
    run("ninja", "-C", str(BUILD), "--quiet")
    for old in BUILD.rglob("*.gcda"):
        old.unlink()
    run("tools/ctest.sh", str(BUILD))
    summary, uncovered = BUILD / "cpp.json", BUILD / "cpp.txt"
    run(
        *("gcovr", "--root", str(ROOT), "--object-directory", str(BUILD), "-j", "2"),
        *("--filter", "src/", "--filter", "include/"),
        # Both are how gcc 12 writes down inlined and template code, and no failure of the run.
        *("--gcov-ignore-parse-errors=all", "--merge-mode-functions=merge-use-line-0"),
        *("--json-summary", str(summary), "--txt", str(uncovered)),
    )
    return report("src", float(json.loads(summary.read_text())["line_percent"]), uncovered)


def measure_python() -> float:
    data = BUILD / "python"
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    coverage = {"COVERAGE_FILE": str(data / "data")}
    run(sys.executable, "-m", "coverage", "run", "-m", "pytest", "-q", "python/tests", **coverage)
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
    totals = json.loads(summary.read_text())["totals"]
    return report("package", float(totals["percent_covered"]), uncovered)


def main() -> int:
    parser = argparse.ArgumentParser(description="Line coverage of src and of the package.")
    parser.add_argument("--minimum", type=float, default=90.0, help="fail below this (default: 90)")
    parser.add_argument("parts", nargs="*", help="cpp, python; both without")
    arguments = parser.parse_args()
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    measures = {"cpp": measure_cpp, "python": measure_python}
    reached = [measures[part]() for part in arguments.parts or list(measures)]
    return 0 if min(reached) >= arguments.minimum else 1


if __name__ == "__main__":
    sys.exit(main())
