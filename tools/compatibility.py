"""Writes the result of a run of the PyTorch tests into docs/compatibility.md.

python tools/compatibility.py JUNIT_XML [FILE...]

FILE: the test files that were run, if not all. Run it with the Python that ran the tests. Replaces the row of
this release of PyTorch. Exits with 1 if a test failed.
"""

from __future__ import annotations

import platform
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "compatibility.md"
HEADER = "| PyTorch | Python | what was run | tests | passed | failed | skipped |"


def row(report: ElementTree.Element, torch: str, run: list[str]) -> str:
    """A row of the table. run: the test files that were run; empty for all."""
    cases = list(report.iter("testcase"))
    failed = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
    reasons = Counter(
        each.get("message", "no reason given").replace("|", "/") for each in report.iter("skipped")
    )
    skipped = "; ".join(f"{count}: {reason}" for reason, count in sorted(reasons.items())) or "0"
    passed = len(cases) - failed - reasons.total()
    what = ", ".join(Path(name).stem for name in run) or "all"
    cells = [torch, platform.python_version(), what, len(cases), passed, failed, skipped]
    return f"| {' | '.join(map(str, cells))} |"


def version(line: str) -> tuple[int, ...]:
    """The release that a row is about."""
    return tuple(map(int, re.findall(r"\d+", line.split("|")[1].partition("+")[0])))


def with_row(page: str, new: str) -> str:
    """The page with this row in its table, in the order of releases, instead of the one for that release."""
    lines = page.splitlines()
    first = lines.index(HEADER) + 2
    last = next((i for i in range(first, len(lines)) if not lines[i].startswith("|")), len(lines))
    kept = [line for line in lines[first:last] if version(line) != version(new)]
    return "\n".join([*lines[:first], *sorted([*kept, new], key=version), *lines[last:], ""])


def main(report: str, run: list[str]) -> int:
    import torch

    new = row(ElementTree.parse(report).getroot(), torch.__version__, run)
    PAGE.write_text(with_row(PAGE.read_text(encoding="utf-8"), new), encoding="utf-8")
    print(new)
    return int(new.split("|")[6].strip() != "0")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
