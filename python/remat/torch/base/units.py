"""Amounts of memory for people; objects and files hold bytes."""

from __future__ import annotations

from remat import _core
from remat._core import format_bytes

__all__ = ["exact_bytes", "format_bytes"]


def exact_bytes(size: int, share: str = "") -> str:
    """For people who pass it on: "3.56 GiB (3825205248 bytes)", or beside the share that was asked for."""
    return _core.describe_budget(share, size)
