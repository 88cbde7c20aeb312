"""Type checks of simple options."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

import remat


def check_plain(options: Mapping[str, Any]) -> None:
    """Raises UsageError for a value that an option cannot have."""
    for name in ("calls", "max_shapes"):
        if not _is_count(options[name]):
            raise remat.UsageError(f"remat: {name} must be 1 or more, not {options[name]!r}")
    for name in ("strict", "verify"):
        if not isinstance(options[name], bool):
            raise remat.UsageError(f"remat: {name} must be True or False, not {options[name]!r}")
    for name in ("dynamic", "accumulate"):
        if options[name] not in (None, False, True):
            raise remat.UsageError(f"remat: {name} must be True, False or None, not {options[name]!r}")
    # The planner checks their ranges.
    for name, kind in (("time_limit", Real), ("work_limit", int), ("seed", int), ("threads", int)):
        value = options[name]
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool) or value != value):
            raise remat.UsageError(f"remat: {name} must be a number, not {value!r}")
    for name in ("never_recompute", "always_keep"):
        given = options[name]
        patterns = given if isinstance(given, (list, tuple, set, frozenset)) else [given]
        if not all(isinstance(pattern, str) and pattern for pattern in patterns):
            raise remat.UsageError(f"remat: {name} must be a pattern or a list of patterns")


def check_group(group: Any) -> None:
    """Raises UsageError unless it is a process group."""
    if group is not None and not all(callable(getattr(group, name, None)) for name in ("rank", "size")):
        raise remat.UsageError(f"remat: group must be a process group, not {type(group).__name__}")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
