"""Build the extension that speeds up planned steps in eager mode: ``python -m remat.torch.native``.

Without it, each op of a planned forward goes through Python, which takes about 20 us. It is compiled by a
C++20 compiler (``CXX``, or ``c++``), once for each PyTorch. ``REMAT_NATIVE=0`` switches it off.
"""

from __future__ import annotations

import sys

import remat

from .eager.passing import build, path


def main() -> int:
    """The command. Returns its exit status."""
    target = path()
    if target.exists():
        print(f"native: {target} is there")
        return 0
    print(f"native: {target}: half a minute", flush=True)
    try:
        build()
    except remat.UsageError as error:
        print(f"remat.torch.native: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
