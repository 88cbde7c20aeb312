"""Where durations and workspaces come from: measured here, from a roofline, or from a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from torch import fx

import remat

from ..base.errors import log
from ..base.step import StepGraph
from .alike import Alike
from .cost import Cost, Progress, signature
from .environment import environment
from .files import read_costs
from .profile import measure_ops, measure_workspaces
from .roofline import roofline
from .values import RealValues


class CostStore(Protocol):
    """Keeps measured costs between processes."""

    def load_costs(self, environment: Mapping[str, str]) -> dict[str, Cost]:
        """The costs measured in this environment so far."""

    def add_costs(self, environment: Mapping[str, str], found: Mapping[str, Cost]) -> dict[str, Cost]:
        """Add measurements and return the stored ones: existing entries stay."""


# Costs measured by this process, by environment and op, shared by all its plans and sweeps.
_measured: dict[str, dict[str, Cost]] = {}


def forget_measured() -> None:
    """Measure again from here on."""
    _measured.clear()


def _measured_here(
    nodes: Mapping[str, fx.Node], progress: Progress | None, values: RealValues, room: int | None
) -> tuple[dict[str, Cost], int]:
    """The costs of ops measured by this process, without those that cannot be measured, and the number of new
    ones.
    """
    known = _measured.setdefault(json.dumps(environment(), sort_keys=True), {})
    rest = {key: node for key, node in nodes.items() if key not in known}
    if rest:
        known.update(measure_ops(rest, progress, values, room))
    return {key: known[key] for key in nodes if key in known}, len(rest)


@dataclass
class Costs:
    """The costs of ops by signature, for one session.

    source: "measured", "roofline", or the path of a file that `write_costs` or a cache wrote.
    device: of the roofline.
    workspaces: measure memory even if durations come from a roofline, because the step will run here within
        its budget.
    store: its costs take precedence over measuring.
    """

    source: str = "measured"
    device: remat.Device | None = None
    store: CostStore | None = None
    workspaces: bool = False
    known: dict[str, Cost] | None = None
    _environment: Mapping[str, str] = field(default_factory=environment)
    _alike: Alike = field(default_factory=Alike)
    _unmeasured: set[str] = field(default_factory=set)

    def fill(
        self,
        step: StepGraph,
        progress: Progress | None = None,
        varies: bool = False,
        values: RealValues | None = None,
        room: int | None = None,
    ) -> int:
        """Fill in duration and workspace of every op; returns how many distinct ops were measured.

        progress: called with (measured so far, to measure).
        varies: other sizes of the step were measured; if these give durations, only workspaces are measured.
        values: of a real run of the step, for ops that refuse others or read them.
        room: bytes that measuring may take; None: any.
        """
        values = values or RealValues.none()
        if (now := environment()) != self._environment:  # settings of kernels
            self.known, self._alike, self._environment = None, Alike(), now
        nodes = {i: op.node for i, op in enumerate(step.ops) if op.node is not None}
        signatures = {i: signature(node) for i, node in nodes.items()}
        if self.known is None:
            self.known = read_costs(self.source) if self.source not in ("measured", "roofline") else {}
        missing: dict[str, fx.Node] = {}
        for index, key in signatures.items():
            if key not in self.known:
                missing.setdefault(key, nodes[index])
        measured = 0
        told = self._told(signatures, nodes, missing, values) if varies and self.source == "measured" else {}
        self.known.update(told)
        missing = {key: node for key, node in missing.items() if key not in told}
        if missing:
            found, measured = self._find(missing, progress, values, room)
            self.known.update(found)
            self._alike.add(signatures, nodes, found)
            self._estimate({key: node for key, node in missing.items() if key not in found})
        for index, key in signatures.items():
            cost = self.known[key]
            step.set_cost(index, cost.duration, cost.workspace, cost.outputs)
        return measured

    def unmeasured(self, step: StepGraph) -> list[str]:
        """Names of the ops of a filled-in step whose costs are estimates."""
        return [op.name for op in step.ops if op.node is not None and signature(op.node) in self._unmeasured]

    def _estimate(self, refused: Mapping[str, fx.Node]) -> None:
        """The costs of ops that cannot be measured: durations by flops and bytes, memory as traced."""
        if not refused:
            return
        assert self.known is not None
        device = self.device or remat.parse_device("cpu")
        self.known.update((key, roofline(node, device)) for key, node in refused.items())
        self._unmeasured.update(refused)
        log.warning(
            "%d ops cannot be measured here, with values of the step neither (the first is %s): their "
            "durations are estimates, and what memory they need beside their results is not counted",
            len(refused),
            next(iter(refused.values())).target,
        )

    def _told(
        self,
        signatures: Mapping[int, str],
        nodes: Mapping[int, fx.Node],
        missing: Mapping[str, fx.Node],
        values: RealValues,
    ) -> dict[str, Cost]:
        """The costs of ops whose durations are known from other sizes. Workspaces are measured, except for
        ops that had none at any size.
        """
        durations: dict[str, int] = {}
        rest: dict[str, fx.Node] = {}
        for index, key in signatures.items():
            if key in missing and key not in durations:
                duration = self._alike.duration(index, key, nodes[index])
                if duration is not None:
                    durations[key] = duration
                    if not self._alike.shows_all(index, key):
                        rest[key] = missing[key]
        found = measure_workspaces(rest, values)
        found.update((key, Cost(0, 0)) for key in durations.keys() - rest.keys())
        return {key: replace(cost, duration=durations[key]) for key, cost in found.items()}

    def of(self, step: StepGraph) -> dict[str, Cost]:
        """The costs of the distinct ops of a filled-in step."""
        known = self.known or {}
        return {key: known[key] for op in step.ops if op.node is not None for key in (signature(op.node),)}

    def _find(
        self,
        missing: Mapping[str, fx.Node],
        progress: Progress | None,
        values: RealValues,
        room: int | None,
    ) -> tuple[dict[str, Cost], int]:
        """The costs of ops, without those that cannot be measured, and how many were measured."""
        if self.source == "measured":
            return self._measure(missing, progress, values, room)
        if self.source != "roofline":
            raise remat.UsageError(
                f"{self.source}: {len(missing)} of the step's ops have no cost there; the first is "
                f"{next(iter(missing))}"
            )
        assert self.device is not None
        found = {key: roofline(node, self.device) for key, node in missing.items()}
        if not self.workspaces:
            return found, 0
        real, measured = self._measure(missing, progress, values, room)
        return {key: replace(cost, duration=found[key].duration) for key, cost in real.items()}, measured

    def _measure(
        self,
        missing: Mapping[str, fx.Node],
        progress: Progress | None,
        values: RealValues,
        room: int | None,
    ) -> tuple[dict[str, Cost], int]:
        """The store's costs come first, so that its processes plan with the same costs."""
        if self.store is None:
            return _measured_here(missing, progress, values, room)
        stored = self.store.load_costs(environment())
        rest = {key: node for key, node in missing.items() if key not in stored}
        measured = 0
        if rest:
            found, measured = _measured_here(rest, progress, values, room)
            stored |= self.store.add_costs(environment(), found)
        return {key: stored[key] for key in missing if key in stored}, measured
