"""Costs in files: `remat.costs`, version 1."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import remat
from remat.files import write_atomically

from .cost import Cost
from .environment import environment

COSTS_FORMAT, COSTS_VERSION = "remat.costs", 1


def costs_to_json(where: Mapping[str, str], costs: Mapping[str, Cost]) -> str:
    """A `remat.costs` file, version 1: [duration in ns, workspace, bytes of each output] by signature, and a
    list of layouts at the end if the trace has other ones.
    """
    entries = {
        key: [c.duration, c.workspace, *c.outputs, *([c.layouts] if c.layouts else [])]
        for key, c in costs.items()
    }
    lines = (f"{json.dumps(key)}: {json.dumps(entry)}" for key, entry in entries.items())
    head = f'"format": "{COSTS_FORMAT}", "version": {COSTS_VERSION}, "environment": {json.dumps(dict(where))}'
    return "{" + head + ', "costs": {\n' + ",\n".join(lines) + "\n}}\n"


def costs_from_json(text: str) -> tuple[dict[str, str], dict[str, Cost]]:
    """The environment and the costs of a file's text. Raises ValueError saying what is wrong with it."""
    content = json.loads(text)
    if not isinstance(content, dict) or content.get("format") != COSTS_FORMAT:
        raise ValueError(f"no {COSTS_FORMAT} file")
    if content.get("version") != COSTS_VERSION:
        raise ValueError(f"version {content.get('version')}, this is a reader of version {COSTS_VERSION}")
    where, costs = content.get("environment"), content.get("costs")
    if not isinstance(where, dict) or not isinstance(costs, dict):
        raise ValueError("no environment or no costs")
    return where, {key: _cost(key, entry) for key, entry in costs.items()}


def _cost(key: str, entry: Any) -> Cost:
    numbers, layouts = entry, []
    if isinstance(entry, list) and entry and isinstance(entry[-1], list):
        numbers, layouts = entry[:-1], entry[-1]
    if not _are_sizes(numbers) or len(numbers) < 2 or not all(map(_are_sizes, layouts)):
        raise ValueError(f"costs of {key}: found {entry!r} instead of [duration, workspace, outputs ...]")
    return Cost(numbers[0], numbers[1], tuple(numbers[2:]), tuple(map(tuple, layouts)))


def _are_sizes(items: Any) -> bool:
    return isinstance(items, list) and all(
        isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in items
    )


def read_costs(path: str | os.PathLike[str]) -> dict[str, Cost]:
    """The costs in a file. Raises UsageError naming the file."""
    try:
        return costs_from_json(Path(path).read_text(encoding="utf-8"))[1]
    except (OSError, ValueError) as error:
        raise remat.UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def write_costs(path: str | os.PathLike[str], costs: Mapping[str, Cost]) -> None:
    """Write measured costs, atomically."""
    write_atomically(Path(path), costs_to_json(environment(), costs))
