"""Memory beside the graphs of a model, and the rest of the budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from ..base.devices import runtime_of
from ..base.errors import log
from ..base.nodes import dense_bytes, storage_bytes
from ..base.private import replaced, storage_id
from ..base.storages import tensor_storages
from ..base.units import exact_bytes
from ..plan.budget import auto_budget, optimizer_state_bytes
from ..plan.options import Options
from ..trace.gradients import ADDED, End
from .accumulation import may_be_added
from .sharding import Sharding
from .stepping import Stepping

# Bytes of a tensor in which Dynamo passes a float.
_FLOAT = 8


def _is_trained(arg: torch.Tensor) -> bool:
    return arg.requires_grad and arg.is_leaf


def _tensors(args: Sequence[Any]) -> list[torch.Tensor]:
    return [a for a in args if isinstance(a, torch.Tensor)]


class Existing(NamedTuple):
    """Gradients that a step will add to: their bytes, and by argument those to which the step itself adds.

    stepped: by argument, the parameters that an optimizer steps inside.
    """

    bytes: int = 0
    added: frozenset[int] = frozenset()
    stepped: frozenset[int] = frozenset()

    @property
    def ended(self) -> list[int]:
        """The arguments whose gradients end in the step."""
        return sorted(self.added | self.stepped)

    def without(self, left: frozenset[int]) -> Existing:
        """The gradients of these leave it."""
        return self._replace(added=self.added - left, stepped=self.stepped - left)


class Surroundings:
    """Memory that a graph does not show. All sizes are bytes.

    model: if known, its tensors that a graph does not read are resident all the same, and so are arguments
        of the call that runs (`given`).
    sharding: the model's parameters are split between ranks.
    floats: number of Python floats in the model's arguments.
    unplanned: what eager code between the graphs leaves in memory for the backward.
    state_to_come: optimizer state that the first step will make, once the budget is settled.
    loss_workspace, loss_bytes: of a loss outside the model while it is computed, and to the end.
    loss_is_measured: that is, for the first inputs.
    """

    def __init__(self, options: Options, model: torch.nn.Module | None, sharding: Sharding | None) -> None:
        self.options, self.model, self.sharding = options, model, sharding
        self.unplanned = self.state_to_come = self.floats = 0
        self.loss_workspace, self.loss_bytes = options.size("loss_workspace"), 0
        self.given: Any = ()
        self.loss_is_measured = False
        self._seen: dict[int, int] = {}
        self._auto_budget: int | None = None
        self._reserve: int | None = None
        self._accumulates = options.accumulate
        self.stepping = Stepping(options.optimizer if options.step is not None else None)

    def count_floats(self, count: int) -> None:
        """Sets the number of Python floats in the model's arguments."""
        self.floats = count

    def floats_to_come(self, traced: int, device: torch.device) -> int:
        """Bytes of floats that are constants so far: Dynamo passes one in a tensor once it has changed.

        traced: how many a graph gets in that way now.
        """
        return _FLOAT * max(0, self.floats - traced) if device.type == "cpu" else 0

    def count_loss(self, workspace: int, held: int) -> None:
        self.loss_workspace, self.loss_bytes = workspace, held
        self.loss_is_measured = True

    def count_unplanned(self, excess: int) -> None:
        self.unplanned = excess

    def outside(self, args: Sequence[Any], device: torch.device) -> int:
        """Of parameters and their gradients that a graph with these inputs does not read, and of what
        libraries keep for themselves.
        """
        return runtime_of(device).taken_by_libraries() + self._outside(args, device)

    def _outside(self, args: Sequence[Any], device: torch.device) -> int:
        inside = tensor_storages(_tensors(args))
        if self.sharding is not None:
            return self.unplanned + self.sharding.outside(inside)
        if self.model is not None:
            known = tensor_storages([self.model, self.given], device.type)
        else:
            parameters = [a for a in args if isinstance(a, torch.nn.Parameter)]
            self._seen.update(tensor_storages(parameters, device.type))
            known = self._seen
        return self.unplanned + sum(size for address, size in known.items() if address not in inside)

    def held_throughout(self, args: Sequence[Any]) -> int:
        """Memory that surely exists while any graph of the model runs."""
        kept = (
            self.model if self.model is not None else [a for a in args if isinstance(a, torch.nn.Parameter)]
        )
        return sum(tensor_storages(kept).values())

    def plan_for(self, budget: int) -> None:
        """Replaces the requested budget from now on."""
        self.options = replace(self.options, budget=budget)

    def rise(self, args: Sequence[Any], steps: bool) -> int:
        """The part allocated only during the step. (Memory left by eager code counts as resident in the
        plan.)

        steps: True if an optimizer steps inside.
        """
        if self.sharding is None:
            return self.unplanned + (self.state_to_come if steps else 0)
        return self.unplanned + self.sharding.rise(tensor_storages(_tensors(args)))

    def called_with(self, given: Any) -> AbstractContextManager[None]:
        """While the model is called with these arguments, until its first graph has run: for later ones, what
        it holds of them is in its plan.
        """
        return replaced(self, "given", given)

    def end_first_graph(self) -> None:
        self.given = ()

    def accumulating(self) -> AbstractContextManager[None]:
        """Inside the block, steps are planned as adding to gradients, whether those exist or not."""
        return replaced(self, "_accumulates", True)

    def existing_gradients(
        self, args: Sequence[Any], graded: Container[int] | None, sizes: Mapping[int, int]
    ) -> Existing:
        """Of a step with these inputs.

        graded: by argument, those that get a gradient, if that is known.
        sizes: by argument, bytes of the gradients that were seen to be made.
        """
        leaves = {i: a for i, a in enumerate(args) if isinstance(a, torch.Tensor) and _is_trained(a)}
        if self.sharding is not None:
            # Gradients of the others are added to shards, which are counted.
            leaves = {i: leaf for i, leaf in leaves.items() if not self.sharding.manages(leaf)}
        times = Counter(map(id, leaves.values()))
        once = [i for i, leaf in leaves.items() if times[id(leaf)] == 1] if self._takes_gradients() else []
        stepped = frozenset(i for i in once if self.stepping.step_of(leaves[i]) is not None)
        if self._accumulates is None:
            leaves = {i: leaf for i, leaf in leaves.items() if leaf.grad is not None}
            # Buckets of DDP are the storages of many.
            size = sum({storage_id(a.grad): storage_bytes(a.grad) for a in leaves.values()}.values())
        elif self._accumulates:
            known = graded if graded is not None and self.options.accumulate is None else leaves
            leaves = {i: leaf for i, leaf in leaves.items() if i in known and i not in stepped}
            size = sum(max(dense_bytes(leaf), sizes.get(i, 0)) for i, leaf in leaves.items())
        else:
            leaves, size = {}, 0
        mine = leaves.keys() & set(once) - stepped if not self._is_given() else ()
        return Existing(size, frozenset(i for i in mine if may_be_added(leaves[i], leaves[i].grad)), stepped)

    def _takes_gradients(self) -> bool:
        return self.options.executor == "boxed"

    def _is_given(self) -> bool:
        """A plan that was made for a step without existing gradients has no ops that add to them."""
        return self.options.plan is not None and self.options.accumulate is None

    def ends(self, args: Sequence[Any], existing: Existing) -> dict[int, End]:
        """The use of gradients that end in a step, by argument."""
        ends = dict.fromkeys(existing.added, ADDED)
        return ends | {i: self.stepping.end_of(args[i]) for i in existing.stepped}

    def settle(self, args: Sequence[Any], device: torch.device) -> Options:
        """The options with the budget in bytes if it was "auto", and `reserve` with all reserved bytes."""
        if self._reserve is None:
            optimizer = self.options.optimizer
            self._reserve = self.options.size("reserve")
            inside = () if self.model is None else self.stepping.optimizers(self.model.parameters())
            for each in {id(o): o for o in (optimizer, *inside) if o is not None}.values():
                state = optimizer_state_bytes(each, device)
                self._reserve += state
                self.state_to_come += state - sum(tensor_storages(each, device.type).values())
        budget = self.options.budget
        if budget == "auto":
            if self._auto_budget is None:
                resident = sum(tensor_storages(_tensors(args), device.type).values())
                resident += self.outside(args, device)
                runtime_of(device).release_cached()
                to_come = max(0, self.state_to_come)
                self._auto_budget = auto_budget(
                    device, resident, self._reserve - to_come, self.options.margin
                )
                log.info("budget=auto: %s on %s", exact_bytes(self._auto_budget), device)
            budget = self._auto_budget
        return replace(self.options, budget=budget, reserve=self._reserve)
