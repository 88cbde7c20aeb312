"""What the graphs of one compiled model share."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from ..base.allocator import bytes_left
from ..base.step import StepGraph
from ..base.storages import tensor_storages
from ..plan.budget import auto_budget, optimizer_state_bytes
from ..plan.options import Options
from ..plan.parts import Memo, Part
from ..plan.report import ModelReport
from ..plan.store import Store
from .region import Region
from .shapes import ShapeTable, compiled_frame, warn_at_recompile_limit
from .sharding import Sharding
from .watch import StepWatch

log = logging.getLogger("remat.torch")


class Session:
    """What the graphs of one compiled model share: options, measured costs, reports, what is in flight
    together.

    captured: where steps go instead of being planned, if they are only to be captured.
    calls: how many calls of the model are in flight before the first backward, as far as was seen.
    unplanned: bytes that eager code between the graphs leaves in memory for the backward.
    model: the model, if known: its tensors that a graph does not read are resident all the same.
    loss_workspace, loss_bytes: bytes of a loss outside the model while it is computed, and to the end.
    stale: the plans were made before it was known what is in flight together, or what becomes of the outputs.
    graph_calls: how often a graph of the model was called.
    preparing: calls are those of `fit` itself.
    probing: calls only look for what the loss depends on, without gradients.
    sharding: the model's parameters are split between ranks.
    """

    def __init__(
        self,
        options: Options,
        model: torch.nn.Module | None = None,
        captured: list[StepGraph] | None = None,
    ) -> None:
        self.sharding = Sharding.of(model) if model is not None else None
        if self.sharding is not None and options.group is None:
            options = replace(options, group=self.sharding.process_group)
        self.options = options
        self.model = model
        self.captured = captured
        self.given: Any = None
        self.store = Store(options.cache_dir) if options.cache_dir is not None else None
        self.costs = options.cost_source(self.store, runs=captured is None)
        self.shapes = ShapeTable(options.max_shapes)
        self.watch = StepWatch()
        self.report = ModelReport()
        self.regions: list[Region] = []
        self.parts: dict[int, Part] = {}
        self.memo: Memo = {}
        self.calls = options.calls
        self.unplanned = 0
        self.loss_workspace = options.size("loss_workspace")
        self.loss_bytes = 0
        self.stale = False
        self.probing = False
        self.preparing = False
        self.graph_calls = 0
        self._warned_of_no_plan = False
        self._seen: dict[int, int] = {}
        self._auto_budget: int | None = None
        self._reserve: int | None = None

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        region = Region(self, gm, len(self.regions))
        region.frame, times = compiled_frame(default=-1 - region.number)
        region.inherit(other for other in reversed(self.regions) if other.frame == region.frame)
        if self.model is None:
            warn_at_recompile_limit(times)
        self.regions.append(region)
        disable: Any = torch._dynamo.disable
        run: Callable[..., Any] = disable(region, reason="remat runs its own graphs")
        return run

    def outside(self, args: Sequence[Any]) -> int:
        """Bytes of parameters and their gradients that a graph with these inputs does not read."""
        inside = tensor_storages([a for a in args if isinstance(a, torch.Tensor)])
        if self.sharding is not None:
            return self.unplanned + self.sharding.outside(inside)
        if self.model is not None:
            known = tensor_storages(self.model)
        else:
            self._seen.update(tensor_storages([a for a in args if isinstance(a, torch.nn.Parameter)]))
            known = self._seen
        return self.unplanned + sum(size for address, size in known.items() if address not in inside)

    def settle(self, args: Sequence[Any], device: torch.device) -> Options:
        """The options with the budget in bytes where it was "auto", and all that is reserved in `reserve`."""
        if self._reserve is None:
            optimizer = self.options.optimizer
            self._reserve = self.options.size("reserve")
            self._reserve += optimizer_state_bytes(optimizer, device) if optimizer is not None else 0
        budget = self.options.budget
        if budget == "auto":
            if self._auto_budget is None:
                inside = sum(tensor_storages([a for a in args if isinstance(a, torch.Tensor)]).values())
                resident = inside + self.outside(args)
                self._auto_budget = auto_budget(device, resident, self._reserve, self.options.margin)
                log.info("budget=auto: %d bytes on %s", self._auto_budget, device)
            budget = self._auto_budget
        return replace(self.options, budget=budget, reserve=self._reserve)

    def forget_shapes(self, frame: int, shapes: Hashable) -> None:
        for region in self.regions:
            if region.frame == frame:
                region.forget_shapes(shapes)

    def warn_of_no_plan(self) -> None:
        """A call of the model ran none of its graphs."""
        if torch.is_grad_enabled() and not self._warned_of_no_plan:
            self._warned_of_no_plan = True
            log.warning(
                "a call of the model ran as in eager mode, without a plan: Dynamo compiled nothing of it, as "
                "with backward hooks of modules (TORCH_LOGS=graph_breaks says why)"
            )

    def start_call(self, region: Region) -> None:
        """Notice what is in flight together; plan all anew, once nothing is, if that is more than was
        planned for.
        """
        own, mates = self._in_flight(region)
        if own >= self.calls or not mates <= region.mates or not (own or mates <= region.before):
            gc.collect()  # what only waits to be collected will see no backward
            own, mates = self._in_flight(region)
        if own >= self.calls:
            log.warning(
                "the model was called %d times before the first backward; the budget is kept for that from "
                "the next step on (option calls=%d keeps it from the first)",
                own + 1,
                own + 1,
            )
            self.calls = own + 1
            self.stale = True
        if not mates <= region.mates:
            log.log(
                logging.WARNING if self.sharding is None else logging.DEBUG,
                "a graph break: graphs %s of the model are in flight together, each planned by itself within "
                "the common budget, nothing recomputed across the break (TORCH_LOGS=graph_breaks says where)",
                ", ".join(str(n) for n in sorted({region.number, *mates, *region.mates})),
            )
            region.mates |= mates
            for number in mates:
                self.regions[number].mates.add(region.number)
            self.stale = True
        if not own and not mates <= region.before:
            region.before |= mates
            self.stale = True
        if self.stale and not own and not mates:
            self.stale = False
            self.report.parts.clear()
            for other in self.regions:
                other.forget_plans()
        if not own and not mates:
            self.watch.open = None

    def count_unplanned(self, forward: Callable[[], Any], device: torch.device) -> None:
        """Notice what a forward leaves in memory that no plan accounts for, and plan anew with that much
        less.

        Code that Dynamo runs eagerly (after a graph break it cannot resume from) saves tensors of its own.
        """
        for region in self.regions:
            region.held = 0
        excess = bytes_left(forward, device) - sum(region.held for region in self.regions)
        if excess > (1 << 16):
            log.warning(
                "code outside the planned graphs leaves %d bytes in memory for the backward, not recomputed "
                "and taken from the budget (TORCH_LOGS=graph_breaks says where the graphs break)",
                excess,
            )
            self.unplanned = excess
            self.stale = True

    def agree(self) -> None:
        """Ranks that share a plan plan anew together: where one has to, and with room for what the one with
        the most leaves unplanned. A rank that planned by itself would wait for the others for ever.
        """
        if self.options.group is None:
            return
        distributed: Any = torch.distributed
        said: list[Any] = [None] * distributed.get_world_size(self.options.group)
        distributed.all_gather_object(said, (self.stale, self.unplanned), group=self.options.group)
        self.stale = any(stale for stale, _ in said)
        self.unplanned = max(unplanned for _, unplanned in said)

    def _in_flight(self, region: Region) -> tuple[int, set[int]]:
        """Calls of this region and numbers of the others that hold tensors for a backward to come."""
        mates = {r.number for r in self.regions if r is not region and r.in_flight()}
        return region.in_flight(), mates
