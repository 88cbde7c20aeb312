"""Tables of options in docs/planners, from the planners' own: `python tools/option_tables.py [--fix]`.

Every planner that has options has a page with one table. Without `--fix` it says which pages differ and exits
with 1. Needs the built package.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import remat

PAGES = Path(__file__).resolve().parent.parent / "docs/planners"
BEGIN = "<!-- tools/option_tables.py writes from here -->\n"
END = "<!-- to here -->"


def table(planner: remat.PlannerInfo) -> str:
    lines = ["| option | default | values | unit | what it sets |", "|---|---|---|---|---|"]
    for option in planner.options:
        name, default = f"`{option.name}`", f"`{option.default}`"
        cells = [name, default, option.values, option.unit, option.description]
        lines.append("".join(f"| {cell} " if cell else "| " for cell in cells) + "|")
    return "\n".join(lines) + "\n"


def checked(planner: remat.PlannerInfo) -> tuple[str, str, str]:
    """What is wrong with the planner's page, the page, and the page as it should be."""
    path = PAGES / f"{planner.name}.md"
    page = path.read_text(encoding="utf-8") if path.exists() else ""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not planner.options:
        return (f"{path}: a table, and the planner has no options" if begin else "", page, page)
    if not begin or not end:
        return f"{path}: no place for a table of options:\n{BEGIN}{END}", page, page
    wanted = before + begin + table(planner) + end + after
    return ("" if page == wanted else f"{path}: not the planner's options (--fix writes them)", page, wanted)


def main() -> int:
    parser = argparse.ArgumentParser(description="Tables of options in docs/planners.")
    parser.add_argument("--fix", action="store_true", help="write the tables")
    fix = parser.parse_args().fix
    failures = []
    for planner in remat.planners():
        failure, page, wanted = checked(planner)
        if fix and page != wanted:
            (PAGES / f"{planner.name}.md").write_text(wanted, encoding="utf-8")
        elif failure:
            failures.append(failure)
    print("\n".join(failures), end="\n" if failures else "", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
