"""Rows as pandas data frames, if pandas is installed."""

from __future__ import annotations

import importlib
from typing import Any

from remat.errors import RematError


def require(module: str, package: str, what: str) -> Any:
    """Import a module of an optional package. Raises RematError that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and (error.name or "") == module.split(".")[0]:
            raise RematError(f"{what} needs {package}: pip install {package}") from None
        raise RematError(f"{what} needs {package}, which cannot be imported: {error}") from None


def frame_of(rows: list[dict[str, Any]]) -> Any:
    """A pandas DataFrame. Raises RematError where pandas is not installed."""
    return require("pandas", "pandas", "to_pandas()").DataFrame(rows)
