"""python -m remat.torch.doctor MODULE:FUNCTION... [--budget 60%]: are planned steps those of eager mode?

FUNCTION takes nothing and returns (model, sample_inputs), or (model, sample_inputs, loss). Prints what
:func:`remat.torch.verify` finds for each. Exit code 1 if anything differs or a budget is exceeded, 64 if a
name does not exist.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

import remat

from .verify import verify


def _function(name: str) -> Callable[[], Any]:
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise remat.UsageError(f"'{name}' is not MODULE:FUNCTION")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise remat.UsageError(f"'{name}': {error}") from None
    if not callable(found):
        raise remat.UsageError(f"'{name}' is no function")
    return found  # type: ignore[no-any-return]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m remat.torch.doctor", description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", metavar="MODULE:FUNCTION", help="returns (model, sample_inputs)")
    parser.add_argument("--budget", default="60%", help="as for fit (default: 60%%)")
    parser.add_argument("--steps", type=int, default=2, help="training steps to compare (default: 2)")
    asked = parser.parse_args(arguments)
    sys.path.insert(0, os.getcwd())
    wrong = 0
    for name in asked.models:
        try:
            made = _function(name)()
            model, inputs, *loss = made
            found = verify(model, inputs, asked.budget, loss=loss[0] if loss else None, steps=asked.steps)
        except remat.UsageError as error:
            print(f"doctor: {error}", file=sys.stderr)
            return 64
        except remat.RematError as error:
            print(f"{name}: {error}", file=sys.stderr)
            wrong += 1
            continue
        print(f"{name}\n{found}")
        wrong += not (found.equal and found.within)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
