"""The `remat` command: runs the C++ command line in the package."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Replaces this process by the command line."""
    program = Path(__file__).parent / "bin" / "remat"
    os.environ.setdefault("REMAT_PYTHON", sys.executable)  # for `remat bench`
    try:
        os.execv(program, ["remat", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"remat: cannot run {program}: {error.strerror}")


if __name__ == "__main__":
    main()
