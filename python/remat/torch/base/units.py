"""Formats amounts of memory for messages; objects and files hold bytes."""

from __future__ import annotations

from remat import _core
from remat._core import format_bytes

__all__ = ["exact_bytes", "format_bytes"]


def exact_bytes(size: int, share: str = "") -> str:
    """Rounded and exact: "3.56 GiB (3825205248 bytes)", after the share that was requested, if any."""
    return _core.describe_budget(share, size)
