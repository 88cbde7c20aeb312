"""Runs the tests that `make test` leaves out, and writes the date and the result into docs/testing.md.

python tools/test_long.py BUILD
"""

from __future__ import annotations

import datetime
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "testing.md"
LAST = re.compile(r"^The last `make test-long`: .*$", re.MULTILINE)


def run(command: list[str]) -> tuple[bool, str]:
    """Whether it passed, and its last line."""
    process = subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "REMAT_LONG": "1"}, stdout=subprocess.PIPE, text=True
    )
    last = ""
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)
        last = line.strip() or last
    return process.wait() == 0, last.strip("= ")


def commit() -> str:
    """The commit that is checked out, and whether files differ from it."""

    def said(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()

    changed = said("status", "--porcelain", "--untracked-files=no")
    return said("rev-parse", "--short=12", "HEAD") + (" with changes" if changed else "")


def main() -> int:
    start, of = time.monotonic(), commit()
    cpp, _ = run(["tools/ctest.sh", sys.argv[1]])
    python, counts = run([sys.executable, "-m", "pytest", "-q", "-n", "2", "-m", "long", "python/tests"])
    words = [f"C++ {'passed' if cpp else 'FAILED'}", f"Python {'passed' if python else 'FAILED'} ({counts})"]
    minutes = (time.monotonic() - start) / 60
    line = f"The last `make test-long`: {datetime.date.today()}, commit {of}, {minutes:.0f} minutes: "
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(LAST.sub(lambda _: line + ", ".join(words) + ".", text), encoding="utf-8")
    print(f"test-long: written into {PAGE.relative_to(ROOT)}: commit that")
    return 0 if cpp and python else 1


if __name__ == "__main__":
    sys.exit(main())
