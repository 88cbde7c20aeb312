"""Where durations and workspaces come from: measured here, from a roofline, or from a file."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import fx

import remat

from ..base.files import write_atomically
from ..base.step import StepGraph
from .profile import Cost, Progress, measure_ops, signature
from .roofline import roofline

COSTS_FORMAT, COSTS_VERSION = "remat.costs", 1


@dataclass
class Costs:
    """The costs of ops by signature, for one session.

    source: "measured", "roofline", or the path of a file that `write_costs` or a cache wrote.
    device: of the roofline.
    workspaces: measure memory even where durations come from a roofline, because the step is to run here and
        the budget to hold.
    store: keeps measured costs between processes; what it holds already takes precedence.
    """

    source: str = "measured"
    device: remat.Device | None = None
    store: Any = None
    workspaces: bool = False
    known: dict[str, Cost] | None = None

    def fill(self, step: StepGraph, progress: Progress | None = None) -> int:
        """Fill in duration and workspace of every op; returns how many distinct ops were measured.

        progress: called with (measured so far, to measure).
        """
        nodes = {i: op.node for i, op in enumerate(step.ops) if op.node is not None}
        signatures = {i: signature(node) for i, node in nodes.items()}
        if self.known is None:
            self.known = read_costs(self.source) if self.source not in ("measured", "roofline") else {}
        missing: dict[str, fx.Node] = {}
        for index, key in signatures.items():
            if key not in self.known:
                missing.setdefault(key, nodes[index])
        measured = 0
        if missing:
            found, measured = self._find(missing, progress)
            self.known.update(found)
        for index, key in signatures.items():
            cost = self.known[key]
            step.set_cost(index, cost.duration, cost.workspace, cost.outputs)
        return measured

    def of(self, step: StepGraph) -> dict[str, Cost]:
        """The costs of the distinct ops of a step that was filled in."""
        known = self.known or {}
        return {key: known[key] for op in step.ops if op.node is not None for key in (signature(op.node),)}

    def _find(self, missing: Mapping[str, fx.Node], progress: Progress | None) -> tuple[dict[str, Cost], int]:
        """The costs of ops, and how many of them were measured."""
        if self.source == "measured":
            return self._measure(missing, progress)
        if self.source != "roofline":
            raise remat.UsageError(
                f"{self.source}: {len(missing)} of the step's ops have no cost there; the first is "
                f"{next(iter(missing))}"
            )
        assert self.device is not None
        found = {key: roofline(node, self.device) for key, node in missing.items()}
        if not self.workspaces:
            return found, 0
        real, measured = self._measure(missing, progress)
        return {key: replace(real[key], duration=cost.duration) for key, cost in found.items()}, measured

    def _measure(
        self, missing: Mapping[str, fx.Node], progress: Progress | None
    ) -> tuple[dict[str, Cost], int]:
        if self.store is None:
            return measure_ops(missing, progress), len(missing)
        stored = self.store.load_costs(environment())
        rest = {key: node for key, node in missing.items() if key not in stored}
        if rest:
            stored |= self.store.add_costs(environment(), measure_ops(rest, progress))
        return {key: stored[key] for key in missing}, len(rest)


@lru_cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def environment() -> dict[str, str]:
    """What measured times hold for: devices, threads, PyTorch, and the settings that choose kernels."""
    cuda: Any = torch.cuda
    found = {
        "torch": torch.__version__,
        "processor": _processor(),
        "threads": str(torch.get_num_threads()),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic": str(torch.are_deterministic_algorithms_enabled()),
        "mkldnn": str(torch.backends.mkldnn.enabled),
    }
    if cuda.is_available() and cuda.is_initialized():
        found["cuda"] = f"{torch.version.cuda} {torch.backends.cudnn.version()}"
        found["devices"] = ", ".join(sorted({cuda.get_device_name(i) for i in range(cuda.device_count())}))
        found["cudnn_benchmark"] = str(torch.backends.cudnn.benchmark)
    return found


def costs_to_json(where: Mapping[str, str], costs: Mapping[str, Cost]) -> str:
    """A `remat.costs` file, version 1: [duration in ns, workspace, bytes of each output] by signature."""
    entries = {key: [c.duration, c.workspace, *c.outputs] for key, c in costs.items()}
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
    if (
        not isinstance(entry, list)
        or len(entry) < 2
        or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in entry)
    ):
        raise ValueError(f"costs of {key}: found {entry!r} instead of [duration, workspace, outputs ...]")
    return Cost(entry[0], entry[1], tuple(entry[2:]))


def read_costs(path: str | os.PathLike[str]) -> dict[str, Cost]:
    """The costs in a file. Raises UsageError naming the file."""
    try:
        return costs_from_json(Path(path).read_text(encoding="utf-8"))[1]
    except (OSError, ValueError) as error:
        raise remat.UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def write_costs(path: str | os.PathLike[str], costs: Mapping[str, Cost]) -> None:
    """Write costs that were measured here: the whole file, or nothing."""
    write_atomically(Path(path), costs_to_json(environment(), costs))
