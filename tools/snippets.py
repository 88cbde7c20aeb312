"""Runs the fenced blocks of README.md and docs/ and compares their output with the page.

    python tools/snippets.py [--fix] [--part K/N] [FILE ...]

A block is run by its language:

- ``console``: lines that start with ``$ `` are run by bash (a trailing ``\\`` continues the command); the
  lines up to the next command are what it prints on a terminal of 80 columns, first on stdout, then on
  stderr. ``...`` stands for
  anything within a line, and alone on a line for any lines. A command must succeed unless its whole
  output is shown.
- ``sh``: run by bash as it stands; the first command that fails ends it, which is an error.
- ``python``: executed, all blocks of a page in one namespace; a block with ``>>>`` is a doctest (with
  ellipsis).
- ``output``: what the ``python`` or ``sh`` block before it printed, with ``...`` as above.
- ``json``: must be JSON; an object with ``"format": "remat.graph"`` must be a graph.
- any language with ``file=PATH`` behind it: shows that file. ``--fix`` writes it into the page.

``c``, ``cpp``, ``cmake`` and ``text`` are not run; other languages are errors, as are commands in a block
without a language. Each page runs in an empty folder of its own that shows the repository's files; what a
snippet writes stays there. An HTML comment on the line before a block changes this:
``<!-- snippet: skip WHY -->``, ``<!-- snippet: needs PATH -->`` and
``<!-- snippet: needs module NAME -->``; what is skipped is printed.
A comment that opens with ``<!-- snippet: python`` and closes with ``-->`` on a line of its own is a block
that readers do not see.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import doctest
import importlib.util
import io
import json
import linecache
import os
import re
import subprocess
import sys
import tempfile
import traceback
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 300
COLUMNS = 80


class SnippetError(Exception):
    """A snippet whose result differs from the page."""


@dataclass
class Block:
    page: Path
    line: int  # of the fence, from 1
    language: str
    attributes: dict[str, str]
    text: list[str]
    directive: str  # text of `<!-- snippet: ... -->`, or ""


@dataclass
class Command:
    line: int
    text: str
    output: list[str] = field(default_factory=list)


def read_blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    lines = page.read_text().splitlines()
    at = 0
    while at < len(lines):
        fence = re.fullmatch(r"(`{3,}|<!-- snippet: )(\w*)(.*)", lines[at])
        if not fence or fence[3].endswith("-->"):
            at += 1
            continue
        close = fence[1] if fence[1].startswith("`") else "-->"
        end = at + 1
        while end < len(lines) and lines[end].strip() != close:
            end += 1
        if end == len(lines):
            raise SnippetError(f"{page}:{at + 1}: the block does not end")
        directive = re.fullmatch(r"<!-- snippet: (.*) -->", lines[at - 1]) if at else None
        attributes = dict(re.findall(r"(\w+)=(\S+)", fence[3]))
        yield Block(
            page, at + 1, fence[2], attributes, lines[at + 1 : end], directive[1] if directive else ""
        )
        at = end + 1


def read_commands(block: Block) -> Iterator[Command]:
    """The commands of a console block with the output that belongs to each."""
    command: Command | None = None
    continues = False
    for number, line in enumerate(block.text, block.line + 1):
        if continues and command:
            command.text += "\n" + line
        elif line.startswith("$ "):
            if command:
                yield command
            command = Command(number, line[2:])
        elif command is None:
            raise SnippetError(f"{block.page}:{number}: output before the first command")
        else:
            command.output.append(line)
        continues = bool(command) and not command.output and line.endswith("\\")
    if command:
        yield command


def matches(expected: list[str], got: list[str]) -> bool:
    """Whether the output is the expected one, with ``...`` for anything."""
    pattern = ""
    for line in expected:
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*".join(re.escape(part) for part in line.rstrip().split("...")) + r"\n"
    return re.fullmatch(pattern, "".join(line.rstrip() + "\n" for line in got)) is not None


def trimmed(lines: list[str]) -> list[str]:
    """The lines without empty ones at the end."""
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return lines


def run_bash(text: str, folder: Path, columns: int = 0) -> subprocess.CompletedProcess[str]:
    """columns: of the terminal that `remat` is to write for, or 0 for a pipe."""
    # `remat` and `python` are those of the environment that runs this file.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", text],
        cwd=folder,
        env={**os.environ, "PATH": path, "REMAT_COLUMNS": str(columns)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def check_output(place: str, expected: list[str], got: list[str]) -> None:
    if not matches(expected, got):
        difference = "\n".join(difflib.unified_diff(expected, got, "page", "output", lineterm=""))
        raise SnippetError(f"{place}: other output\n{difference}")


def run_console(block: Block, folder: Path) -> None:
    for command in read_commands(block):
        is_piped = re.search(r"[|>]", command.text) is not None
        done = run_bash(command.text, folder, 0 if is_piped else COLUMNS)
        got = trimmed((done.stdout + done.stderr).splitlines())
        expected = trimmed(command.output)
        whole = bool(expected) and not any("..." in line for line in expected)
        if done.returncode != 0 and not whole:
            shown = "\n".join(got)
            raise SnippetError(f"{block.page}:{command.line}: exit code {done.returncode}\n{shown}")
        check_output(f"{block.page}:{command.line}", expected, got)


def run_sh(block: Block, folder: Path) -> str:
    """What it prints."""
    done = run_bash("set -eo pipefail\n" + "\n".join(block.text), folder)
    if done.returncode != 0:
        shown = (done.stdout + done.stderr).strip()
        raise SnippetError(f"{block.page}:{block.line}: exit code {done.returncode}\n{shown}")
    return done.stdout


def run_python(block: Block, names: dict[str, Any]) -> str:
    """What it prints, unless it is a doctest."""
    place = f"{block.page}:{block.line}"
    if any(line.startswith(">>> ") for line in block.text):
        test = doctest.DocTestParser().get_doctest(
            "\n".join(block.text) + "\n", names, place, place, block.line
        )
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        report: list[str] = []
        runner.run(test, out=report.append, clear_globs=False)
        names.update(test.globs)
        if runner.failures:
            raise SnippetError("".join(report))
        return ""
    printed = io.StringIO()
    try:
        # Blank lines before keep the line numbers of the page. No file has this name: Dynamo would read the
        # page as Python.
        source = "\n" * block.line + "\n".join(block.text) + "\n"
        name = f"{block.page}:python"
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        with contextlib.redirect_stdout(printed):
            exec(compile(source, name, "exec"), names)
    except Exception as error:
        raise SnippetError(f"{place}: {traceback.format_exc()}") from error
    return printed.getvalue()


def run_json(block: Block) -> None:
    try:
        data = json.loads("\n".join(block.text))
    except ValueError as error:
        raise SnippetError(f"{block.page}:{block.line}: {error}") from error
    if isinstance(data, dict) and data.get("format") == "remat.graph":
        import remat

        remat.Graph.from_dict(data)


def check_text(block: Block) -> None:
    """Checks that a block that is not run contains no command for readers."""
    place = f"{block.page}:{block.line}"
    if block.language not in ("", "text", "c", "cpp", "cmake"):
        raise SnippetError(f"{place}: unknown language '{block.language}'")
    for line in block.text:
        if block.language == "" and re.match(r"(\$|remat|make|cmake|pip|python3?) ", line):
            raise SnippetError(f"{place}: a command in a block without a language: '{line}'")


def shown_file(block: Block) -> list[str]:
    return (ROOT / block.attributes["file"]).read_text().splitlines()


def check_file(block: Block) -> None:
    if block.text != shown_file(block):
        raise SnippetError(
            f"{block.page}:{block.line}: is not {block.attributes['file']} as it is now: make format"
        )


def update_files(page: Path) -> None:
    """Writes the files that a page shows into it."""
    lines = page.read_text().splitlines()
    for block in reversed(list(read_blocks(page))):
        if "file" in block.attributes:
            lines[block.line : block.line + len(block.text)] = shown_file(block)
    text = "\n".join(lines) + "\n"
    if text != page.read_text():
        page.write_text(text)


def why_skipped(block: Block, folder: Path) -> str | None:
    """Why the block is skipped, or None."""
    if block.directive.startswith("skip "):
        return block.directive.removeprefix("skip ")
    if block.directive.startswith("needs module "):
        name = block.directive.removeprefix("needs module ")
        return None if importlib.util.find_spec(name) else f"{name} is not installed"
    if block.directive.startswith("needs "):
        path = block.directive.removeprefix("needs ")
        return None if (folder / path).exists() else f"there is no {path}"
    if block.directive:
        raise SnippetError(f"{block.page}:{block.line}: unknown directive '{block.directive}'")
    return None


def make_folder(parent: Path) -> Path:
    """A folder that looks like the repository and can be written to."""
    folder = parent / "remat"
    folder.mkdir()
    for entry in ROOT.iterdir():
        (folder / entry.name).symlink_to(entry)
    return folder


class Page:
    """The blocks of a page, run in order in a folder of its own."""

    def __init__(self, page: Path, folder: Path, names: dict[str, Any]) -> None:
        self.page, self.folder, self.names = page, folder, names
        self.printed: str | None = None  # by the block before
        self.count = 0

    def run(self, block: Block) -> None:
        printed, self.printed = self.printed, None
        if "file" in block.attributes:
            check_file(block)
        elif block.language == "console":
            run_console(block, self.folder)
        elif block.language == "sh":
            self.printed = run_sh(block, self.folder)
        elif block.language == "python":
            self.printed = run_python(block, self.names)
        elif block.language == "output":
            if printed is None:
                raise SnippetError(f"{block.page}:{block.line}: output of no block")
            check_output(f"{block.page}:{block.line}", trimmed(block.text), trimmed(printed.splitlines()))
        elif block.language == "json":
            run_json(block)
        else:
            check_text(block)
            return
        self.count += 1


def run_page(page: Path) -> int:
    """Runs all blocks of a page and returns how many there were."""
    # A module that can be imported: torch.compile looks up the globals of what it compiles.
    module = sys.modules["page"] = types.ModuleType("page")
    with tempfile.TemporaryDirectory() as parent:
        folder = make_folder(Path(parent))
        os.chdir(folder)
        runner = Page(page, folder, vars(module))
        skipped = False
        try:
            for block in read_blocks(page):
                if skipped and block.language == "output":
                    continue
                reason = why_skipped(block, folder)
                skipped = reason is not None
                if skipped:
                    print(f"{page.relative_to(ROOT)}:{block.line}: skipped: {reason}")
                else:
                    runner.run(block)
        finally:
            os.chdir(ROOT)
    return runner.count


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs the fenced blocks of the documentation.")
    parser.add_argument(
        "--fix", action="store_true", help="bring blocks that show a file up to date, run nothing"
    )
    parser.add_argument("--part", default="1/1", help="of so many processes that share the pages, the K-th")
    parser.add_argument("pages", nargs="*", type=Path)
    arguments = parser.parse_args()
    pages = [p.resolve() for p in arguments.pages] or [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    part, parts = map(int, arguments.part.split("/"))
    pages = pages[part - 1 :: parts]
    if arguments.fix:
        for page in pages:
            update_files(page)
        return 0
    failed = 0
    total = 0
    for page in pages:
        try:
            total += run_page(page)
        except (SnippetError, OSError, subprocess.TimeoutExpired) as error:
            print(error, file=sys.stderr)
            failed += 1
    print(f"{total} snippets of {len(pages)} pages run, {failed} pages failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
