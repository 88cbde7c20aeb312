"""Users' planners in `remat bench`: a Python file that calls `remat.register_planner`."""

from __future__ import annotations

import runpy
from pathlib import Path

import remat
from remat.registering import registered


def register_planners(path: Path) -> list[str]:
    """Runs the file and returns the names that it registered. Raises RematError if it fails, or registers
    none."""
    before = registered()
    try:
        runpy.run_path(str(path))
    except Exception as error:
        raise remat.RematError(f"{path}: {type(error).__name__}: {error}") from error
    names = [name for name, planner in registered().items() if planner is not before.get(name)]
    if not names:
        raise remat.RematError(f"{path}: it registers no planner (remat.register_planner)")
    return names
