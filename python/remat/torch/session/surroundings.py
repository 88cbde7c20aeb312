"""What is in memory beside the graphs of a model, and what that leaves of the budget."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from ..base.nodes import dense_bytes, storage_bytes
from ..base.private import storage_id
from ..base.storages import tensor_storages
from ..base.units import exact_bytes
from ..plan.budget import auto_budget, optimizer_state_bytes
from ..plan.options import Options
from .accumulation import may_be_added
from .sharding import Sharding

log = logging.getLogger("remat.torch")


def _is_trained(arg: torch.Tensor) -> bool:
    return arg.requires_grad and arg.is_leaf


def _tensors(args: Sequence[Any]) -> list[torch.Tensor]:
    return [a for a in args if isinstance(a, torch.Tensor)]


class Existing(NamedTuple):
    """Gradients that a step will add to: their bytes, and by argument those that it adds to by itself."""

    bytes: int
    added: frozenset[int]


class Surroundings:
    """What a graph does not show. All sizes are bytes.

    model: if known, its tensors that a graph does not read are resident all the same.
    sharding: the model's parameters are split between ranks.
    unplanned: what eager code between the graphs leaves in memory for the backward.
    loss_workspace, loss_bytes: of a loss outside the model while it is computed, and to the end.
    """

    def __init__(self, options: Options, model: torch.nn.Module | None, sharding: Sharding | None) -> None:
        self.options, self.model, self.sharding = options, model, sharding
        self.unplanned = 0
        self.loss_workspace, self.loss_bytes = options.size("loss_workspace"), 0
        self._seen: dict[int, int] = {}
        self._auto_budget: int | None = None
        self._reserve: int | None = None
        self._accumulates = options.accumulate

    def count_loss(self, workspace: int, held: int) -> None:
        self.loss_workspace, self.loss_bytes = workspace, held

    def count_unplanned(self, excess: int) -> None:
        self.unplanned = excess

    def outside(self, args: Sequence[Any]) -> int:
        """Of parameters and their gradients that a graph with these inputs does not read."""
        inside = tensor_storages(_tensors(args))
        if self.sharding is not None:
            return self.unplanned + self.sharding.outside(inside)
        if self.model is not None:
            known = tensor_storages(self.model)
        else:
            self._seen.update(tensor_storages([a for a in args if isinstance(a, torch.nn.Parameter)]))
            known = self._seen
        return self.unplanned + sum(size for address, size in known.items() if address not in inside)

    def rise(self, args: Sequence[Any]) -> int:
        """Of all this, what comes only while the step runs. (What eager code leaves counts as resident in
        the plan.)
        """
        if self.sharding is None:
            return self.unplanned
        return self.unplanned + self.sharding.rise(tensor_storages(_tensors(args)))

    @contextmanager
    def accumulating(self) -> Iterator[None]:
        """Steps that are planned while it lasts add to gradients, whether those exist or not."""
        before, self._accumulates = self._accumulates, True
        try:
            yield
        finally:
            self._accumulates = before

    def existing_gradients(self, args: Sequence[Any], graded: Container[int] | None) -> Existing:
        """Of a step with these inputs.

        graded: by argument, those that get a gradient, if that is known.
        """
        leaves = {i: a for i, a in enumerate(args) if isinstance(a, torch.Tensor) and _is_trained(a)}
        if self.sharding is not None:
            # Gradients of the others are added to shards, which are counted.
            leaves = {i: leaf for i, leaf in leaves.items() if not self.sharding.manages(leaf)}
        if self._accumulates is False:
            return Existing(0, frozenset())
        if self._accumulates is None:
            leaves = {i: leaf for i, leaf in leaves.items() if leaf.grad is not None}
            # Buckets of DDP are the storages of many.
            storages = {storage_id(leaf.grad): storage_bytes(leaf.grad) for leaf in leaves.values()}
            size = sum(storages.values())
        else:
            if self.options.accumulate is None and graded is not None:
                leaves = {i: leaf for i, leaf in leaves.items() if i in graded}
            size = sum(dense_bytes(leaf) for leaf in leaves.values())
        return Existing(size, self._added(leaves))

    def _added(self, leaves: Mapping[int, torch.Tensor]) -> frozenset[int]:
        options = self.options
        # A plan that was made for a step without such ops has none for them.
        given = options.plan is not None and options.accumulate is None
        if options.executor != "boxed" or given:
            return frozenset()
        times = Counter(map(id, leaves.values()))
        return frozenset(i for i, a in leaves.items() if times[id(a)] == 1 and may_be_added(a, a.grad))

    def settle(self, args: Sequence[Any], device: torch.device) -> Options:
        """The options with the budget in bytes where it was "auto", and all that is reserved in `reserve`."""
        if self._reserve is None:
            optimizer = self.options.optimizer
            self._reserve = self.options.size("reserve")
            self._reserve += optimizer_state_bytes(optimizer, device) if optimizer is not None else 0
        budget = self.options.budget
        if budget == "auto":
            if self._auto_budget is None:
                resident = sum(tensor_storages(_tensors(args)).values()) + self.outside(args)
                self._auto_budget = auto_budget(device, resident, self._reserve, self.options.margin)
                log.info("budget=auto: %s on %s", exact_bytes(self._auto_budget), device)
            budget = self._auto_budget
        return replace(self.options, budget=budget, reserve=self._reserve)
