"""Results of planning for `torch.utils.checkpoint`: policies to apply or export, and their cost."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakSet

import torch

import remat
from remat.files import write_atomically

from ..base.units import format_bytes
from .regions import Around, Region


@dataclass(frozen=True)
class FullPlan:
    """The plan of our own executor within the same budget: peak in bytes and overhead, None without a plan
    (`status` says what is proved); keep_all_peak: of its step without recomputation.
    """

    peak: int | None
    overhead: float | None
    keep_all_peak: int
    status: str


@dataclass(frozen=True)
class ExecutorReport:
    """The cost of checkpoints. Amounts are bytes.

    Attributes:
        budget: as requested.
        eager_peak: of the step without checkpoints.
        predicted_peak: of the step with them, by the reference simulator.
        overhead: extra time of all ops, as a fraction of the step without checkpoints.
        reserve: part of the budget for other uses.
        left_alone: by block that must not be recomputed, the reason.
        step: the step that was simulated, each recomputation an op of its own.
        tried: steps that were run to find it.
        full: the plan of our own executor within the same budget; None if not requested.
    """

    budget: int
    eager_peak: int
    predicted_peak: int
    overhead: float
    reserve: int
    left_alone: Mapping[str, str]
    step: remat.Graph = field(repr=False)
    tried: int = 0
    full: FullPlan | None = None

    def __str__(self) -> str:
        lines = [
            f"{'':24}{'peak':>12}{'overhead':>10}",
            _row("without checkpoints", self.eager_peak, 0.0),
            _row("with them", self.predicted_peak, self.overhead),
        ]
        if self.full is not None:
            if self.full.peak is None or self.full.overhead is None:
                lines.append(f"{'a full plan':24}{'none: ' + self.full.status:>22}")
            else:
                lines.append(_row("a full plan", self.full.peak, self.full.overhead))
        lines.append(f"{'budget':24}{format_bytes(self.budget):>12}")
        lines += [f"{name} is not checkpointed: {why}" for name, why in self.left_alone.items()]
        return "\n".join(lines)


def _row(name: str, peak: int, overhead: float) -> str:
    return f"{name:24}{format_bytes(peak):>12}{overhead:>10.2%}"


class CheckpointPolicies:
    """The results that each block of a model saves under `torch.utils.checkpoint`.

    Attributes:
        regions: by name of a block, its :class:`Region`; None where it is not checkpointed.
        report: predicted peak and overhead, beside those of a full plan.
    """

    def __init__(
        self, regions: Mapping[str, Region | None], report: ExecutorReport, model: torch.nn.Module
    ) -> None:
        self.regions, self.report = dict(regions), report
        self._model = model
        self._applied = WeakSet[torch.nn.Module]()

    def __repr__(self) -> str:
        wrapped = sum(region is not None for region in self.regions.values())
        return f"<CheckpointPolicies: {wrapped} of {len(self.regions)} blocks>\n{self.report}"

    def context_fn(self, name: str) -> Callable[[], tuple[Any, Any]] | None:
        """The argument `context_fn=` of `torch.utils.checkpoint.checkpoint` around that block; None if it is
        not checkpointed. Raises UsageError for a name that is no block.
        """
        if name not in self.regions:
            raise remat.UsageError(f"context_fn: no block is named {name!r}")
        region = self.regions[name]
        return None if region is None else region.context_fn()

    def apply(self, model: torch.nn.Module | None = None) -> torch.nn.Module:
        """Put the checkpoints around the blocks of a model, by default the one that was planned for, in
        place.

        Class, parameters and `state_dict` stay the same. Returns the model. Raises UsageError if checkpoints
        are applied already.
        """
        model = self._model if model is None else model
        blocks = [
            (model.get_submodule(name), region) for name, region in self.regions.items() if region is not None
        ]
        if any(isinstance(block.__dict__.get("forward"), Around) for block, _ in blocks):
            raise remat.UsageError("apply: they are around this model already; remove() takes them away")
        for block, region in blocks:
            block.__dict__["forward"] = Around(block, region)
        self._applied.add(model)
        return model

    def remove(self, model: torch.nn.Module | None = None) -> None:
        """Undo `apply` for all its models, or for this one, which may be a copy of one of them. Raises
        UsageError if a block was wrapped by something else since.
        """
        models = list(self._applied) if model is None else [model]
        names = [name for name, region in self.regions.items() if region is not None]
        blocks = [each.get_submodule(name) for each in models for name in names]
        changed = [block for block in blocks if not isinstance(vars(block).get("forward"), Around)]
        if any("forward" in vars(block) for block in changed):
            kind = type(changed[0]).__name__
            raise remat.UsageError(f"remove: the forward of a {kind} was replaced since; put it back first")
        for block in blocks:
            if block not in changed:
                block.__dict__["forward"].leave()
        self._applied.difference_update(models)

    def to_dict(self) -> dict[str, Any]:
        """The contents of `export`: checkpointed blocks, and the saved calls by name of an op."""
        blocks = {
            name: {
                "save": {op: list(calls) for op, calls in region.save.items()},
                "allow_cache_entry_mutation": region.mutation,
                "checkpoint": {"use_reentrant": False, "preserve_rng_state": region.preserve_rng_state},
            }
            for name, region in self.regions.items()
            if region is not None
        }
        return {"format": "remat.checkpoint", "version": 1, "blocks": blocks}

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the policies as JSON, which ten lines of code without Remat can apply (docs/executors.md).
        Raises RematError.
        """
        try:
            write_atomically(Path(path), json.dumps(self.to_dict(), indent=1) + "\n")
        except OSError as error:
            raise remat.RematError(f"{os.fspath(path)}: {error.strerror or error}") from error
