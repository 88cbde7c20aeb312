"""Writes the option tables in docs/planners from the core's: `python tools/option_tables.py [--fix]`.

Every planner that has options has a page with one table; that of `plan` itself is in the index. Without
`--fix` it names the pages that differ and exits with 1. Needs the built package.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import remat
from remat import _core

PAGES = Path(__file__).resolve().parent.parent / "docs/planners"
BEGIN = "<!-- tools/option_tables.py writes from here -->\n"
END = "<!-- to here -->"


def table(options: Sequence[remat.OptionInfo]) -> str:
    lines = ["| option | default | values | unit | what it sets |", "|---|---|---|---|---|"]
    for option in options:
        name, default = f"`{option.name}`", f"`{option.default}`"
        cells = [name, default, option.values, option.unit, option.description]
        lines.append("".join(f"| {cell} " if cell else "| " for cell in cells) + "|")
    return "\n".join(lines) + "\n"


def checked(path: Path, options: Sequence[remat.OptionInfo]) -> tuple[str, str, str]:
    """The error of a page, the page, and its correct text."""
    page = path.read_text(encoding="utf-8") if path.exists() else ""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not options:
        return (f"{path}: a table, and there are no options" if begin else "", page, page)
    if not begin or not end:
        return f"{path}: no place for a table of options:\n{BEGIN}{END}", page, page
    wanted = before + begin + table(options) + end + after
    return (
        "" if page == wanted else f"{path}: not the options of the core (--fix writes them)",
        page,
        wanted,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Tables of options in docs/planners.")
    parser.add_argument("--fix", action="store_true", help="write the tables")
    fix = parser.parse_args().fix
    failures = []
    pages = {PAGES / f"{planner.name}.md": planner.options for planner in remat.planners()}
    pages[PAGES / "index.md"] = _core.request_options()
    for path, options in pages.items():
        failure, page, wanted = checked(path, options)
        if fix and page != wanted:
            path.write_text(wanted, encoding="utf-8")
        elif failure:
            failures.append(failure)
    print("\n".join(failures), end="\n" if failures else "", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
