"""The backend of one compiled model: its graphs, and what they share."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch
from torch import fx

import remat

from ..base.account import phase
from ..base.allocator import bytes_left
from ..base.devices import runtime_of
from ..base.errors import UnsupportedModelError, errors_stand_alone
from ..base.given import as_traced
from ..base.modes import TraceSettings, modes_kept
from ..base.private import (
    _dynamo,
    graph_task,
    packs_saved_tensors,
    replaced,
    traces_numpy,
    without_function_modes,
)
from ..base.units import format_bytes
from ..plan.options import Options
from ..plan.ranks import of_all_ranks
from ..run.outputs import Gradient
from ..trace.conversion import Spot, spot_of_graph, spot_of_node, watch_conversions
from ..trace.floats import FloatsMatterError
from .flight import InFlight
from .pieces import Piece, Pieces, awkward_nodes, split
from .pipeline import device_of
from .region import Region, UntraceableError
from .shapes import ShapeTable, compiled_frame, warn_at_recompile_limit
from .sharding import IN_HOOKS, Sharding
from .shared import Shared
from .stepping import hooks_out_of_order
from .surroundings import Surroundings
from .unplanned import WORTH_COUNTING, Unplanned, saved_before

# Threads of collectives free their buffers themselves, on a busy machine only after the forward has returned:
# memory left only sometimes is one of these. (Counting a gathered block permanently broke budgets under
# load.)
_SHARDED_MEASUREMENTS = 5


# Of one frame for inputs of equal shapes: a number that changes takes two or three, and as many a branch.
_MOST_TRACES = 8

# Of Dynamo's graph. Tracing, measuring and rewriting take 30 to 60 ms for each; recording in eager mode, 5.
_MOST_OPS = 1_500


class NotOneGraphError(UnsupportedModelError):
    """The model cannot be traced as one graph."""


class Session:
    """Makes a region of each graph from Dynamo, and starts its calls.

    model: the model, if known. only_capture: steps are captured (`shared.pipeline.captured`), not planned.
    graph_calls: number of calls of the model's graphs.
    """

    def __init__(
        self,
        options: Options,
        model: torch.nn.Module | None = None,
        only_capture: bool = False,
        one_graph: bool = False,
    ) -> None:
        """one_graph: raise NotOneGraphError if the model is broken into several graphs, or is too large a
        graph to trace.
        """
        options = options.traced()
        self.sharding = Sharding.of(model) if model is not None else None
        if self.sharding is not None and options.group is None:
            options = replace(options, group=self.sharding.process_group)
        if self.sharding is not None and options.host is not None:
            raise remat.UsageError("remat: host= and FSDP2 do not go together yet")
        if self.sharding is not None and options.arena:
            raise remat.UsageError("remat: arena=True and FSDP2 do not go together")
        surroundings = Surroundings(options, model, self.sharding)
        flight = InFlight(options.calls)
        self.shared = Shared(options, surroundings, flight, only_capture, self.say_breaks, self._doubt)
        self.regions: list[Region] = []
        self._numbers = itertools.count()
        self.graph_calls = 0
        self._knows_model = model is not None
        self._shapes = ShapeTable(options.max_shapes)
        # Of each frame and shapes of its tensors: graphs, and numbers that these are traced for.
        self._traced: dict[Hashable, set[Hashable]] = {}
        self._probing, self.one_graph = False, one_graph
        self._is_compiled = model is not None
        self.unplanned = Unplanned(options.strict, counted=model is not None)
        self.shared.pipeline.ask_whether_broken(lambda: not self.unplanned.is_empty)

    def __deepcopy__(self, memo: Any) -> Session:
        """Of a compiled model: its graphs take parameters as arguments."""
        return self

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        if self.one_graph and self.shared.is_preparing and self.regions:
            raise NotOneGraphError(f"Dynamo makes several graphs of it ({self.unplanned.where()})")
        if traces_numpy(gm):
            self._doubt_trace(
                "numpy inside the model is traced as functions of torch, which round otherwise and draw from "
                "PyTorch's generator",
                'executor="eager" runs numpy',
            )
        number = next(self._numbers)
        # No piece of a graph is being compiled.
        frame, times = compiled_frame(default=-1 - number)
        # Tracing chooses kernels by settings that Dynamo does not look at.
        settings = TraceSettings.now()
        of = {settings: self._region(gm, number, frame, settings)}
        if not self._knows_model:
            warn_at_recompile_limit(times)
        # Replaces it, if it cannot be traced.
        instead: list[Callable[..., Any]] = []

        @errors_stand_alone
        def run(*args: Any) -> Any:
            with phase("calls"), modes_kept(only_after_errors=True), without_function_modes():
                if not self._probing and instead:
                    self.graph_calls += 1
                    return instead[0](*args)
                args, settings = as_traced(args), TraceSettings.now()
                if settings not in of:
                    with self.shared.bookkeeping:
                        of[settings] = self._region(gm, next(self._numbers), frame, settings)
                region = of[settings]
                try:
                    return self._call(region, args)
                except FloatsMatterError:
                    return self._call(region, args)
                except UntraceableError as error:
                    if self.one_graph and self.shared.is_preparing:
                        raise NotOneGraphError(str(error)) from error
                    instead.append(self._give_up(region, error))
                return instead[0](*args)

        disable: Any = _dynamo.disable
        return disable(run, reason="remat runs its own graphs")

    def _region(self, gm: fx.GraphModule, number: int, frame: int, settings: TraceSettings) -> Region:
        with phase("capture"):
            region = Region(self.shared, gm, number, frame, settings)
            region.inherit([other for other in reversed(self.regions) if other.frame == frame])
        self.regions.append(region)
        return region

    def _call(self, region: Region, args: Sequence[Any]) -> Any:
        self.graph_calls += 1
        if self._probing:
            return region.probe(args)
        training = torch.is_grad_enabled()
        if training and region.is_reentrant and self.shared.options.executor == "boxed":
            self.shared.doubts(
                "a checkpoint in it is reentrant, and adds up gradients apart from others (with "
                "use_reentrant=False it does not)"
            )
        key = region.key(args, training)
        if training:
            self._look_at_hooks(args)
        with self.shared.bookkeeping:
            if training:
                self._start_call(region)
                if not region.knows(key):
                    self._look_before(args)
                    self._count_traces(region, args, key.shapes)
            self._shapes.use(region.frame, key.shapes, self._forget_shapes)
        only_planned = self.shared.is_preparing and not self.shared.is_proving and self.is_whole(args)
        results = region(args, key, runs=not only_planned)
        self.shared.surroundings.end_first_graph()
        return results

    def _give_up(self, region: Region, error: UntraceableError) -> Callable[..., Any]:
        """The replacement of a graph that cannot be traced: its traceable pieces, each with a plan; or the
        unchanged graph.
        """
        with self.shared.bookkeeping:
            self.regions.remove(region)
            self.shared.flight.forget(region.number)
        with modes_kept():
            awkward = awkward_nodes(error.gm)
        nodes = [node for node in region.unpacked.graph.nodes if node.name in {each.name for each in awkward}]
        pieces = split(region.unpacked, nodes) if nodes else None
        if pieces is None:
            self.left_alone(spot_of_graph(region.gm, error.cause))
            return region.gm
        for node, cause in awkward.items():
            self.broken(spot_of_node(node, cause))
        return Pieces(region.unpacked, pieces, [self._piece(region, piece) for piece in pieces])

    def _piece(self, whole: Region, piece: Piece) -> Callable[..., Any]:
        if piece.awkward:
            return piece.gm
        run = self(piece.gm, [])
        self.regions[-1].usage.take(whole.usage, piece.returned)
        return run

    def before_call(self) -> Callable[[], bool]:
        """Returns a function that forgets what Dynamo skipped or broke since, due to an error while tracing
        or to hooks now removed, and tells whether the model must be traced again.
        """
        if self.sharding is not None:  # its blocks are compiled separately, and share this
            return lambda: False
        known, regions = self.unplanned.known(), set(map(id, self.regions))

        def forget() -> bool:
            if not self.unplanned.forget_since(known):
                return False
            with self.shared.bookkeeping:
                for region in [each for each in self.regions if id(each) not in regions]:
                    self.regions.remove(region)
                    self.shared.flight.forget(region.number)
            return True

        return forget

    def note_uncompiled(self) -> None:
        """Notes that the model's own call is not compiled; parts of it may be."""
        self._is_compiled = False

    @property
    def is_one_graph(self) -> bool:
        """True if the model is one graph, with no code beside it."""
        return self._is_compiled and len(self.regions) == 1 and self.unplanned.is_empty

    def is_whole(self, args: Sequence[Any]) -> bool:
        """True if `fit` need not run the model to see its other effects: it is one graph with no code beside
        it (and no other ranks, no host, and no device that counts memory are involved).

        args: of a call, whose device is the model's.
        """
        one, options = self.is_one_graph, self.shared.options
        alone = self.sharding is None and options.group is None and options.host is None
        counted = runtime_of(device_of(args)).counts_memory
        return one and alone and not counted and options.executor == "boxed"

    def _start_call(self, region: Region) -> None:
        """Replan everything once nothing is in flight, if more graphs are in flight together than planned."""
        shared = self.shared
        if packs_saved_tensors() and graph_task() >= 0:
            return  # a checkpoint recomputes a forward, which must save the same tensors
        if not shared.flight.start(region.number, lambda: {r.number: r.in_flight() for r in self.regions}):
            return
        if not shared.is_preparing:
            self.say_breaks()
        if shared.flight.stale:
            shared.flight.planned_anew()
            shared.report.forget_all()
            for each in self.regions:
                each.forget_plans()
        shared.watch.give_up()

    def _forget_shapes(self, frame: int, shapes: Hashable) -> None:
        for region in self.regions:
            if region.frame == frame:
                region.forget_shapes(shapes)

    def in_flight(self) -> int:
        """Calls of graphs that hold tensors for a later backward."""
        return sum(region.in_flight() for region in self.regions)

    def probing(self) -> AbstractContextManager[None]:
        """Inside the block, calls run without gradients to find the outputs that the loss depends on."""
        return replaced(self, "_probing", True)

    def note_loss(self, workspace: int, held: int, gradient_of: Mapping[int, Gradient]) -> None:
        """Notes bytes of the caller's loss during its computation and to the end, and its gradients of the
        probed calls' outputs, by address.
        """
        self.shared.surroundings.count_loss(workspace, held)
        for region in self.regions:
            region.note_loss(gradient_of)

    def count_unplanned(self, forward: Callable[[], Any], device: torch.device) -> None:
        """Count unplanned memory that a forward leaves, and replan with that much less.

        Code that Dynamo runs eagerly (after a graph break from which it cannot resume) saves its own tensors.
        """
        excess = self._bytes_unplanned(forward, device)
        if self.sharding is not None:
            for _ in range(_SHARDED_MEASUREMENTS - 1):
                # All ranks measure again or none, since a forward is collective.
                if max(of_all_ranks(self.shared.options.group, excess)) <= WORTH_COUNTING:
                    break
                excess = min(excess, self._bytes_unplanned(forward, device))
        if excess > WORTH_COUNTING:
            self.unplanned.say(
                "left",
                f"code outside the planned graphs leaves {format_bytes(excess)} in memory for the backward, "
                f"not recomputed and taken from the budget ({self.unplanned.where()})",
            )
            self.shared.surroundings.count_unplanned(excess)
            self.shared.flight.plan_anew()

    def count_more(self, excess: int) -> None:
        """Notes that a step needs this many bytes more than its plans predict, and replans with that much
        less."""
        self.unplanned.say(
            "peak",
            f"code outside the planned graphs needs {format_bytes(excess)} at the peak, taken from "
            f"the budget ({self.unplanned.where()})",
        )
        around = self.shared.surroundings
        around.count_unplanned(around.unplanned + excess)
        self.shared.flight.plan_anew()

    def _bytes_unplanned(self, forward: Callable[[], Any], device: torch.device) -> int:
        for region in self.regions:
            region.take_held()
        return bytes_left(forward, device) - sum(region.take_held() for region in self.regions)

    def step_inside(self, model: torch.nn.Module) -> None:
        """Let the optimizer step in the backward. Raises UsageError if it cannot."""
        hook = self.shared.surroundings.stepping.hook
        if self.sharding is not None:
            raise remat.UsageError(
                'fit: step="backward": FSDP2 reduces gradients between ranks after the backward of each block'
            )
        if hook is None or all(hook.group(p) is None for p in model.parameters()):
            raise remat.UsageError('fit: step="backward": the optimizer has no parameter of the model')
        hook.install()

    def agree(self) -> None:
        """Ranks that share a plan agree on what they know."""
        agree(self.shared.options.group, self.shared.flight, self.shared.surroundings)

    @property
    def sees_sizes(self) -> bool:
        """In a fitted model broken into graphs, a single graph could not be run again without symbols."""
        return self._knows_model and self.unplanned.is_broken

    def left_alone(self, spot: Spot) -> None:
        if self.sharding is not None and IN_HOOKS in spot.reason:
            return
        self._refuse(spot)
        self.unplanned.left_alone(spot)

    def broken(self, spot: Spot) -> None:
        self._refuse(spot)
        self.unplanned.broken(spot)

    def compiled_inside(self, name: str) -> None:
        if self._knows_model and self.sharding is None and self.shared.is_preparing:
            raise NotOneGraphError(compiled_inside(name))

    def traced(self, ops: int) -> None:
        if ops > _MOST_OPS and self.one_graph and self.shared.is_preparing:
            raise NotOneGraphError(f"tracing its more than {_MOST_OPS:,} ops may take more than a minute")

    def _doubt(self, reason: str) -> None:
        self._doubt_trace(
            reason,
            'the last bits of gradients can differ from eager mode (executor="eager" has its bits)',
        )

    def _doubt_trace(self, reason: str, then: str) -> None:
        """A trace may have other results: `fit` takes eager mode if it may, else a warning says so."""
        if self.one_graph and self.shared.is_preparing:
            raise NotOneGraphError(reason)
        self.shared.warn_once(f"{reason}: {then}")

    def say_other_results(self, kind: str) -> None:
        """A planned step has other results of this kind than eager mode."""
        self._doubt_trace(f"its trace has other {kind} than eager mode", 'executor="eager" has the same')

    def _refuse(self, spot: Spot) -> None:
        if self.one_graph and self.shared.is_preparing:
            raise NotOneGraphError(f"Dynamo makes several graphs of it ({spot}: {spot.reason})")

    def say_breaks(self) -> None:
        """Warns of the number of graphs of the model, if it has grown."""
        together = self.shared.flight.take_news()
        if together and self.sharding is None:
            self.unplanned.say_broken(len(together), self.shared.pipeline.bytes_between(together))

    def say_no_plan(self) -> None:
        """Warns that a call of the model ran none of its graphs."""
        self.unplanned.say(
            "call",
            "a call of the model ran as in eager mode, without a plan: Dynamo compiled nothing of it "
            f"({self.unplanned.where()})",
        )

    def _look_at_hooks(self, args: Sequence[Any]) -> None:
        """Warns of hooks of parameters that run in another order."""
        if not self._knows_model or self.sharding is not None:
            return
        why = hooks_out_of_order(arg for arg in args if isinstance(arg, torch.nn.Parameter))
        if why is not None:
            self.shared.warn_once(f'{why} (executor="eager" keeps the order; fit again with the hooks)')

    def say_other_hooks(self) -> None:
        """Warns that global module hooks changed since the model was compiled."""
        self.unplanned.say(
            "hooks",
            "a call of the model ran as in eager mode, without a plan: hooks of all modules "
            "(torch.nn.modules.module.register_module_*) are not those that were there at fit; fit again "
            "with them",
        )

    def _count_traces(self, region: Region, args: Sequence[Any], shapes: Hashable) -> None:
        """Warns of a frame that is traced again and again for inputs of equal shapes."""
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        alike = tuple((t.shape, t.stride(), t.dtype, t.requires_grad) for t in tensors)
        traced = self._traced.setdefault((region.frame, alike), set())
        traced.add((region.number, shapes))
        if len(traced) == _MOST_TRACES and self._knows_model and not self.unplanned.is_broken:
            self.shared.warn_once(
                f"the model was traced and planned {len(traced)} times for inputs of equal shapes: a number, "
                "an attribute or a branch changes from call to call, and each new one costs a trace and a "
                'plan (executor="eager" does not trace)'
            )

    def _look_before(self, args: Sequence[Any]) -> None:
        """Counts tensors saved by eager code between the graphs of a model."""
        if self._knows_model or not self.unplanned.is_broken:
            return
        size = saved_before(args, (node for region in self.regions for node in region.nodes()))
        if size > WORTH_COUNTING:
            self.unplanned.say_saved(size)


def compiled_inside(name: str) -> str:
    return (
        f"{name} is compiled by torch.compile, and traced it would run as it is written, with other last "
        'bits; executor="eager" runs it compiled'
    )


watch_conversions(lambda backend: isinstance(backend, Session), lambda session, _: session, unlimited=True)


def agree(group: Any, flight: InFlight, surroundings: Surroundings) -> None:
    """Ranks that share a plan replan together: if one has to, all do, with room for the most unplanned bytes
    of any rank. A rank that planned alone would wait for the others forever.
    """
    if group is None:
        return
    said = of_all_ranks(group, (flight.stale, surroundings.unplanned))
    if any(stale for stale, _ in said):
        flight.plan_anew()
    surroundings.count_unplanned(max(unplanned for _, unplanned in said))
