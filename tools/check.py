"""The fast checks: formats, lints, types, snippets. Runs all of them, two at a time, and prints one line
each. Exits with 1 if any fails.

python tools/check.py [--fix | --docs] [NAME ...]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON_FOLDERS = ["python", "tools", "examples", "bench", "tests"]


def tracked(*patterns: str) -> list[str]:
    """Tracked files, and new ones that git does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


def commands(fix: bool) -> list[tuple[str, str, list[str]]]:
    """(name, description, command) of every check; with `fix` only those that can write."""
    cpp = tracked("*.c", "*.cc", "*.h")
    python = [folder for folder in PYTHON_FOLDERS if (ROOT / folder).is_dir()]
    if fix:
        return [
            ("format", "C++ format", ["clang-format", "-i", *cpp]),
            (
                "format",
                "Python imports and lints",
                ["ruff", "check", "--quiet", "--fix", "--exit-zero", *python],
            ),
            ("format", "Python format", ["ruff", "format", "--quiet", *python]),
            ("format", "files shown in documentation", [sys.executable, "tools/snippets.py", "--fix"]),
            ("options", "options in docs/planners", [sys.executable, "tools/option_tables.py", "--fix"]),
        ]
    snippets = [
        (
            "snippets",
            f"snippets of README.md and docs/, {part}",
            [sys.executable, "tools/snippets.py", "--part", part],
        )
        for part in ("1/2", "2/2")
    ]
    # The slowest first.
    return [
        *snippets,
        ("format", "C++ format", ["clang-format", "--dry-run", "--Werror", *cpp]),
        ("format", "Python format", ["ruff", "format", "--quiet", "--diff", *python]),
        ("lint", "Python lints", ["ruff", "check", "--quiet", *python]),
        ("types", "Python types, stubs included", ["mypy"]),
        ("options", "options in docs/planners", [sys.executable, "tools/option_tables.py"]),
        ("page", "the page of reports is current", [sys.executable, "tools/page.py", "--check"]),
    ]


def run(what: str, command: list[str]) -> bool:
    start = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    passed = done.returncode == 0
    print(f"check: {what}: {'ok' if passed else 'FAILED'} ({time.monotonic() - start:.1f} s)", flush=True)
    skipped = [line for line in done.stdout.splitlines() if ": skipped: " in line]
    if not passed:
        print("\n".join(done.stdout.splitlines()[-200:]), file=sys.stderr, flush=True)
    elif skipped:
        print("\n".join(skipped), flush=True)
    return passed


def main() -> int:
    parser = argparse.ArgumentParser(description="The fast checks.")
    parser.add_argument(
        "--fix", action="store_true", help="put right what can be put right, instead of checking"
    )
    parser.add_argument("--docs", action="store_true", help="also build the documentation site")
    parser.add_argument("names", nargs="*", help="format, lint, types, options, page, snippets; all without")
    arguments = parser.parse_args()
    # Use the tools of the environment that runs this file.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    chosen = [c for c in commands(arguments.fix) if not arguments.names or c[0] in arguments.names]
    if arguments.docs:
        chosen.insert(0, ("docs", "the documentation site", ["tools/docs.sh"]))
    # Checks that write files run one at a time.
    with ThreadPoolExecutor(1 if arguments.fix else 2) as at_a_time:
        passed = list(at_a_time.map(lambda check: run(check[1], check[2]), chosen))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
