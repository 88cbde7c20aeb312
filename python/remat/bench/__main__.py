"""``remat bench SUITE``: measures, writes tables, JSON and figures, and the report."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from pathlib import Path
from typing import NoReturn

import remat
from remat.bench import interrupts, plots
from remat.bench.lab import BenchError, Lab, Rehearsal
from remat.bench.own import register_planners
from remat.bench.report import Section, figures_to_json, machine, section_lines, suite_json
from remat.bench.suites import SUITES

HEAD = """# Results: the papers' tables and figures

Written by `remat bench`; do not edit. Each page measures the tables and figures of one paper again, with
`auto` and all registered planners beside those of the paper.

- Every number comes from the exact simulator, on a plan that the validator confirmed.
- Overheads are the extra duration in percent of running every op once. Peaks and budgets count everything
  in memory.
- `n/a`: the planner does not support this graph, or did not end. `over budget`: its plan does not fit.
  `infeasible`: it is proved that no plan fits.
- *auto behind* names every published planner that is faster than `auto` at the same budget within its own,
  longer limit.
- Published planners run as published, without warm starts from Remat's search. The one exception: the
  groups of `hiremate` are solved by `retention`, which makes it faster and better than the paper's setting
  (`preset=published`).
- In figures a planner has the same colour, marker and line everywhere, overheads begin at 0, and a cross at
  the upper edge is a planner that has no plan there. `figures.json` beside them has their points.
"""


class Parser(argparse.ArgumentParser):
    """Reports wrong usage in one line, with the exit code of all other subcommands."""

    def error(self, message: str) -> NoReturn:
        print(f"remat: {message} (see 'remat bench --help')", file=sys.stderr)
        sys.exit(64)


def is_instance(path: Path, folder: Path) -> bool:
    """True if a suite may read the file as a graph."""
    return path.suffix == ".json" and path.resolve().is_relative_to(folder.resolve())


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = Parser(
        prog="remat bench",
        description="Measures the tables and figures of four papers beside Remat, and plans with a host.",
    )
    parser.add_argument("suite", choices=[*SUITES, "all"], help="which paper's, offload, or all")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("bench-results"),
        help="folder of results; what it has is not measured again",
    )
    parser.add_argument("--instances", type=Path, metavar="DIR", help="published instances to use")
    parser.add_argument(
        "--limit", type=float, metavar="S", help="seconds for each published planner (default: the suite's)"
    )
    parser.add_argument(
        "--work", action="store_true", help="limits `auto` by work units in place of a second"
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="write all suites as one document")
    parser.add_argument(
        "--planners", type=Path, metavar="FILE", help="Python that registers planners, to compare them too"
    )
    parser.add_argument("--again", metavar="PLANNER", help="discard the results of this planner")
    chosen = parser.parse_args(arguments)
    if chosen.limit is not None and chosen.limit <= 0:
        parser.error("--limit takes a positive number of seconds")
    if chosen.instances is not None and not chosen.instances.is_dir():
        parser.error(f"--instances: {chosen.instances} is no folder")
    if chosen.planners is not None and not chosen.planners.is_file():
        parser.error(f"--planners: {chosen.planners} is no file")
    if chosen.report and chosen.instances and is_instance(chosen.report, chosen.instances):
        parser.error(f"--report: {chosen.report} is one of the instances")
    return chosen


def say(text: str) -> None:
    """Prints progress: a line on standard error."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


def tell(text: str) -> None:
    """Prints a result on standard output, wrapped to the width of a terminal."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        text = textwrap.fill(
            text, width, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False
        )
    print(text)


def forget(folder: Path, suites: list[str], planner: str) -> None:
    """Removes the results of one planner."""
    for suite in suites:
        for path in (folder / suite).glob(f"*-{planner}-*.json"):
            path.unlink()


def run_suite(name: str, lab: Lab, draw: bool) -> Section:
    """Measures a suite, writes NAME.md and NAME.json into the folder, and its figures."""
    suite = SUITES[name]
    rehearsal = Rehearsal(lab)
    rehearsal.begin(name, suite.limit, [])
    suite.measure(rehearsal)
    lab.begin(name, suite.limit, rehearsal.limits)
    section = suite.measure(lab)
    if draw:
        for figure in section.figures():
            plots.draw(figure, lab.folder / "figures")
    (lab.folder / f"{name}.json").write_text(suite_json(section, lab.used, lab.runs, lab.limit))
    lines = section_lines(section, "figures" if draw else None)
    (lab.folder / f"{name}.md").write_text("\n".join(lines).rstrip() + "\n")
    return section


def write_report(path: Path, lab: Lab, sections: list[Section], limits: list[float], draw: bool) -> None:
    """Writes a page that explains the tables, and a folder of the same name with a page for each suite and
    its figures as SVG.
    """
    folder = path.parent / path.stem
    folder.mkdir(parents=True, exist_ok=True)
    of_auto = "10,000,000 work units, one thread" if lab.work else "1 s, one thread"
    lines = [HEAD, f"Machine: {machine()}.", ""]
    lines += ["| tables and figures of | published planners | `auto` | what came out |", "|---|---|---|---|"]
    for section, limit in zip(sections, limits, strict=True):
        page = f"[{section.title}]({path.stem}/{section.suite}.md)"
        lines.append(f"| {page} | {limit:g} s, one thread | {of_auto} | {section.verdict} |")
        text = "\n".join(section_lines(section, "" if draw else None)).rstrip()
        (folder / f"{section.suite}.md").write_text(text + "\n")
    path.write_text("\n".join(lines).rstrip() + "\n")
    if not draw:
        return
    figures = [figure for section in sections for figure in section.figures()]
    (folder / "figures.json").write_text(figures_to_json(figures))
    for figure in figures:
        shutil.copy(lab.folder / "figures" / f"{figure.name}.svg", folder / f"{figure.name}.svg")


def main(arguments: list[str] | None = None) -> int:
    """Exit code: 0 done, 1 failure, 64 wrong usage, 130 interrupted (the next call continues)."""
    try:
        with interrupts.kept():
            return measure(parse(arguments))
    except KeyboardInterrupt:
        say("interrupted; the same command goes on from here")
        return 130
    except (BenchError, remat.RematError, OSError) as error:
        print(f"remat: {error}", file=sys.stderr)
        return 1


def measure(chosen: argparse.Namespace) -> int:
    """Runs all requested suites, one after the other."""
    names = list(SUITES) if chosen.suite == "all" else [chosen.suite]
    if chosen.again:
        forget(chosen.out, names, chosen.again)
    draw = plots.available()
    if not draw:
        say(plots.MISSING)
    if chosen.planners:
        say(f"{chosen.planners} registers {', '.join(register_planners(chosen.planners))}")
    lab = Lab(chosen.out, chosen.instances, chosen.limit, chosen.work, say, chosen.planners)
    sections, limits = [], []
    for name in names:
        section = run_suite(name, lab, draw)
        sections.append(section)
        limits.append(lab.limit)
        tell(f"{name}: {section.verdict}")
        tell(f"{name}: {lab.folder / name}.md")
    if chosen.report:
        write_report(chosen.report, lab, sections, limits, draw)
        tell(f"report: {chosen.report}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
