"""Called by `remat convert` for files that are not JSON: prints the format on a line, then the graph as
JSON."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import warnings
from pathlib import Path
from typing import NoReturn

from remat.converters import convert, format_of
from remat.errors import RematError


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SystemExit(say(message))


def _one_line(text: object) -> str:
    return " ".join(str(text).split())


def say(message: object) -> int:
    print(f"remat: {_one_line(message)}", file=sys.stderr)
    return 1


def _show(message: Warning | str, *_: object, **__: object) -> None:
    print(f"remat: warning: {_one_line(message)}", file=sys.stderr)


def dims_of(texts: list[str]) -> dict[str, int]:
    dims = {}
    for text in texts:
        name, _, size = text.rpartition("=")
        if not name or not size.isdecimal() or not int(size):
            raise RematError(f"--dim '{text}' is not NAME=N with a positive integer")
        dims[name] = int(size)
    return dims


def main() -> int:
    """The exit code: 0, or 1 after one line on standard error."""
    parser = Parser(prog="remat convert", add_help=False)
    parser.add_argument("file", type=Path)
    parser.add_argument("--from", dest="format")
    parser.add_argument("--device")
    parser.add_argument("--dim", action="append", default=[])
    given = parser.parse_args()
    # Parsers print to both streams; standard output is reserved for the graph.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Warnings of other packages are not about the graph.
            warnings.filterwarnings("always", re.escape(str(given.file)), UserWarning)
            warnings.showwarning = _show
            format = given.format or format_of(given.file)
            graph = convert(given.file, format=format, device=given.device, dims=dims_of(given.dim))
    except RematError as error:
        return say(error)
    with out:
        print(format, file=out)
        json.dump(graph.to_dict(), out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
