"""The command `remat apply`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import remat
from remat.applying import apply
from remat.converters.__main__ import Parser, dims_of, say
from remat.errors import RematError


def main() -> int:
    """The exit code: 0, or 1 after one line on standard error."""
    what = "Write an ONNX model whose nodes stand in the order of a plan."
    parser = Parser(prog="remat apply", description=what)
    parser.add_argument("model", type=Path, metavar="MODEL", help="an ONNX file")
    parser.add_argument("plan", type=Path, metavar="PLAN", help="a plan for its graph (remat convert, plan)")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="OUT", help="the model to write")
    parser.add_argument(
        "--dim", action="append", default=[], metavar="NAME=N", help="the size of a dimension"
    )
    given = parser.parse_args()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    try:
        plan = apply(given.model, given.plan, given.output, dims=dims_of(given.dim))
    except RematError as error:
        return say(error)
    print(f"output = {given.output}")
    print(f"steps = {len(plan.steps)}")
    print(f"peak = {remat.format_bytes(plan.peak or 0)}")
    print(f"overhead = {plan.overhead or 0.0:.2%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
