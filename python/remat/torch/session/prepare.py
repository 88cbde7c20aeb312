"""The first calls of a fitted model: compiles it for its sample inputs, and undoes all effects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch.utils._pytree import tree_leaves

import remat

from ..base.account import phase
from ..base.devices import runtime_of
from ..base.errors import NothingToPlanError, UnsupportedModelError, log
from ..base.given import can_run
from ..base.nodes import dense_bytes
from ..base.private import eager_call
from ..base.storages import tensor_storages
from ..base.units import exact_bytes
from .comparison import HostSaves, Made, differs_in, made_by
from .fitted import call_with, loss_in
from .loss import Loss, NoLossError, measured_loss, rise_of, value_of
from .pipeline import device_of
from .proof import takes_gradient, tangents_of, tensors_in
from .session import Session
from .unplanned import WORTH_COUNTING
from .untouched import Snapshot, untouched

# Most rounds of planning until all graphs in flight together are known.
_ROUNDS = 3


@dataclass(frozen=True)
class Preparation:
    """model: the user's; fitted: with its state, calls the session; loss: of its outputs, if outside."""

    session: Session
    model: torch.nn.Module
    fitted: torch.nn.Module
    sample_inputs: Any
    loss: Loss | None = None

    def capture(self, both: bool = False) -> None:
        """One call without a plan. both: also capture a step that adds to gradients, from the same trace."""
        with self.session.shared.preparing():
            self._look_at_loss()
            if both and len(self._kinds()) > 1:
                self.session.shared.pipeline.capture_both()
            self._keeping_if_it_must(self._capture)

    def _capture(self) -> None:
        captured = self.session.shared.pipeline.captured
        if captured:
            captured.clear()
        with self._untouched():
            self._forward()

    def _keeping_if_it_must(self, call: Callable[[], None]) -> None:
        """A call that keeps nothing for a backward; if needed, another one that does, for a model that calls
        `torch.autograd.grad` itself.
        """
        try:
            call()
        except (RuntimeError, NoLossError):
            with self.session.shared.keeping():
                call()

    def plan(self) -> None:
        """Call the model until its plans allow for all graphs in flight together.

        Raises UnsupportedModelError if nothing in the model needs a gradient.
        """
        shared = self.session.shared
        if shared.options.executor == "boxed":
            floats = [each for each in tree_leaves(self.sample_inputs) if isinstance(each, float)]
            shared.surroundings.count_floats(len(floats))
        with shared.preparing():
            self._look_at_loss()
            try:
                self._plan()
            except remat.NoPlanError as error:
                if self.session.one_graph and error.smallest_known:
                    self._doubt_what_was_refused(error.smallest_known)
                raise
            finally:
                self.session.say_breaks()
            self._compare_with_eager_mode()

    def _compare_with_eager_mode(self) -> None:
        """Compares a planned step with one in eager mode: a trace may be of another program, such as the
        other branch of `if torch.compiler.is_compiling()`, or add up gradients in another order."""
        session, options = self.session, self.session.shared.options
        in_order = options.executor == "boxed" and not options.verify  # which compares more
        alone = options.group is None and session.sharding is None and session.is_one_graph
        planned = in_order and alone and session.shared.report.parts
        if not (planned and can_run(self.model, self.sample_inputs)):
            return
        saves = HostSaves([*self._trained(), *self.model.buffers()])
        with phase("verify"), self._untouched() as snapshot, session.shared.proving():
            found = self._made_by(self._forward)
            session.shared.watch.give_up()
            snapshot.restore()
            try:
                with saves.watched():
                    expected = self._made_by(self._in_eager_mode)
                    kind = differs_in(found, expected)
                    if kind is None:
                        return
                    snapshot.restore()
                    if differs_in(self._made_by(self._in_eager_mode), expected) is not None:
                        return  # eager mode itself differs from run to run
            except UnsupportedModelError:
                return
        session.say_other_results(kind)

    def _doubt_what_was_refused(self, known: int) -> None:
        """Eager mode may need other bytes than a trace of another program. known: a budget that suffices."""
        with self._untouched() as snapshot:
            missed = self._missed_within(known, snapshot)
        if not missed:
            self._compare_with_eager_mode()

    def _in_eager_mode(self) -> Any:
        return call_with(eager_call(self.model), self.sample_inputs)

    def _made_by(self, call: Callable[[], Any]) -> Made:
        return made_by(call, self._results, [t for t in self._trained() if t.requires_grad])

    def _device(self) -> torch.device:
        return device_of([*self.model.parameters(), *tree_leaves(self.sample_inputs)])

    def _plan(self) -> None:
        shared = self.session.shared
        with self._untouched() as snapshot:
            with shared.pipeline.surveying():
                self._plan_steps(snapshot, 1 if shared.options.executor == "boxed" else _ROUNDS)
                if not shared.report.parts:
                    self._plan_nothing(snapshot)
                    return
                if shared.options.executor == "inductor":
                    return  # Inductor decides what its halves pass on; the first step is measured as a whole
                if not self.session.is_whole([*self.model.parameters(), *tree_leaves(self.sample_inputs)]):
                    self.session.count_unplanned(self._forward, self._device())
                    snapshot.restore()
            self.session.agree()
            if shared.flight.stale:
                self._plan_steps(snapshot, 2 * _ROUNDS)

    def _plan_steps(self, snapshot: Snapshot, rounds: int) -> None:
        """Plan the steps of training: without existing gradients, and adding to existing ones."""
        missed = self._plan_rounds(snapshot, rounds)
        if missed:
            whole = self.session.is_one_graph
            raise self._no_plans(missed) if whole else self._no_plans_in_pieces(missed, snapshot)

    def _plan_rounds(self, snapshot: Snapshot, rounds: int) -> dict[bool, remat.NoPlanError]:
        """With several graphs, all are known after one round, and planned together in the next; the peak of
        code beside them is known once a step was measured.
        """
        flight = self.session.shared.flight
        for _ in range(rounds):
            missed = self._missed(snapshot)
            if missed:
                return missed
            self.session.agree()
            if not flight.stale and not self._needs_more(snapshot):
                break
        return {}

    def _needs_more(self, snapshot: Snapshot) -> bool:
        """Measures a step of a model in pieces; if it needs more than its plans predict, lowers the budget by
        that and returns True."""
        shared = self.session.shared
        options, report = shared.options, shared.report
        measurable = options.executor == "boxed" and options.step is None and options.group is None
        if self.session.is_one_graph or self.session.sharding is not None or not measurable:
            return False
        if not report.parts:
            return False
        try:
            peak = self._measured_peak()
        except RuntimeError as error:  # of a backward that training never runs
            log.info("a step could not be measured: %s", error)
            return False
        finally:
            snapshot.restore()
        if shared.flight.stale:
            return True  # the values passed between graphs are known now
        largest = report.largest()
        excess = peak + largest.fixed - largest.predicted_peak
        if excess <= max(0, min(WORTH_COUNTING, largest.budget - largest.predicted_peak)):
            return False
        self.session.count_more(excess)
        return True

    def _missed(self, snapshot: Snapshot) -> dict[bool, remat.NoPlanError]:
        """Plans each kind of step; returns those without a plan."""
        missed: dict[bool, remat.NoPlanError] = {}
        for adds in self._kinds():
            try:
                self._forward_of(adds)
            except remat.NoPlanError as error:
                missed[adds] = error
            snapshot.restore()
        return missed

    def _no_plans_in_pieces(
        self, missed: Mapping[bool, remat.NoPlanError], snapshot: Snapshot
    ) -> remat.NoPlanError:
        """The error, with a budget that suffices for all kinds of steps; they are planned for it before it is
        named."""
        shared = self.session.shared
        first, asked = next(iter(missed.values())), shared.options.budget
        for _ in range(_ROUNDS):
            known = max(error.smallest_known for error in missed.values())
            missed = self._missed_within(known, snapshot)
            if not missed:
                break
        budget = asked if isinstance(asked, str) else exact_bytes(asked)
        return type(first)(
            f"no plans within the budget of {budget} were found for this model, which runs in pieces "
            f"({self.session.unplanned.where()}); smallest budget known to work: {exact_bytes(known)}",
            floor=first.floor,
            smallest_known=known,
        )

    def _missed_within(self, budget: int, snapshot: Snapshot) -> dict[bool, remat.NoPlanError]:
        """Plans anew, for another budget."""
        self.session.shared.surroundings.plan_for(budget)
        self.session.shared.flight.plan_anew()
        return self._plan_rounds(snapshot, _ROUNDS)

    def _plan_nothing(self, snapshot: Snapshot) -> None:
        """Nothing of the model is compiled: it runs in eager mode if the budget allows that."""
        session, where = self.session, self.session.unplanned.where()
        if session.one_graph or not any(p.requires_grad for p in self.model.parameters()):
            raise_nothing_planned(self.model, where)
        settled = session.shared.surroundings.settle(tree_leaves(self.sample_inputs), self._device())
        peak = self._measured_peak() + settled.size("reserve")
        if session.shared.options.accumulate is not False:
            peak += sum(dense_bytes(t) for t in self._trained() if t.requires_grad)
        snapshot.restore()
        budget = remat.parse_bytes(settled.budget, peak, floor=0)
        text = f"nothing of this model has a plan, it runs as in eager mode: {where}"
        if peak > budget:
            raise remat.NoPlanError(
                f"{text}; that does not fit into {exact_bytes(budget)}; smallest budget known to work: "
                f"{exact_bytes(peak)}",
                smallest_known=peak,
            )
        session.unplanned.say("nothing", f"{text}; its step takes {exact_bytes(peak)}")
        session.shared.report.nothing_planned(peak, budget)

    def _measured_peak(self) -> int:
        """The peak of a step without plan, whose gradients are dropped."""
        device, report = self._device(), self.session.shared.report
        there = sum(tensor_storages([self.model, self.sample_inputs], device.type).values())
        for _ in range(_ROUNDS):
            before = list(map(id, report.parts))
            rise = rise_of(self._step, [device])
            if list(map(id, report.parts)) == before:
                break
        return there + rise

    def _step(self) -> None:
        """Runs a step; its observations hold for training if its loss is known."""
        outputs, shared = self._forward(), self.session.shared
        graded = [t for t in self._results(outputs) if takes_gradient(t)]
        sources = [t for t in self._trained() if t.requires_grad]
        knows_loss = all(t.numel() == 1 for t in graded)
        tangents = None if knows_loss else tangents_of(graded)
        with shared.measuring() if knows_loss else shared.proving():
            if graded and sources:
                torch.autograd.grad(graded, sources, tangents, allow_unused=True)

    def _trained(self) -> list[torch.Tensor]:
        """Parameters and inputs."""
        return [*self.model.parameters(), *tensors_in(self.sample_inputs)]

    def _results(self, outputs: Any) -> list[torch.Tensor]:
        """The outputs that get gradients: the loss, if known."""
        if self.loss is not None:
            return [value_of(self.loss, outputs)]
        try:
            return [loss_in(outputs, "fit")]
        except remat.UsageError:
            return tensors_in(outputs)

    def _kinds(self) -> tuple[bool, ...]:
        """Kinds of steps, by whether they add to existing gradients."""
        options = self.session.shared.options
        both = options.accumulate is None and options.plan is None and options.executor == "boxed"
        return (False, True) if both else (False,)

    def _forward_of(self, adds: bool) -> None:
        with self.session.shared.surroundings.accumulating() if adds else nullcontext():
            self._forward()

    def _no_plans(self, missed: Mapping[bool, remat.NoPlanError]) -> remat.NoPlanError:
        """The error if the budget is too small for some kind of step."""
        if len(self._kinds()) == 1:
            return missed[False]
        named = {False: "a step that makes its gradients", True: "a step that adds to existing gradients"}
        least = {}
        for adds in self._kinds():
            if adds not in missed:
                least[adds] = max(p.least_known() for p in self.session.shared.report.parts)
            else:
                least[adds] = missed[adds].smallest_known
        worst = missed.get(False) or missed[True]
        which = named[False not in missed]
        amounts = "; ".join(f"{named[adds]}: {exact_bytes(size)}" for adds, size in least.items())
        return type(worst)(
            f"{worst} (this is {which}; smallest budget known to work for both kinds of steps: "
            f"{exact_bytes(max(least.values()))}; for {amounts}; accumulate=False or True plans for one of "
            "them alone)",
            floor=max(error.floor for error in missed.values()),
            smallest_known=max(least.values()),
        )

    def prove(self) -> None:
        """Compare a step with eager mode. Raises VerificationError."""
        with phase("verify"), self._untouched():
            self._forward()

    @contextmanager
    def _without_gradients(self) -> Iterator[None]:
        """If both kinds of steps are planned, existing gradients are removed for both. A single captured step
        is the current kind.
        """
        pipeline = self.session.shared.pipeline
        of_the_moment = pipeline.captured is not None and not pipeline.captures_both
        if of_the_moment or len(self._kinds()) == 1 or self.session.sharding is not None:
            yield
            return
        kept = [(t, t.grad) for t in self._trained() if t.is_leaf and t.grad is not None]
        for tensor, _ in kept:
            tensor.grad = None
        try:
            yield
        finally:
            for tensor, gradient in kept:
                tensor.grad = gradient

    @contextmanager
    def _untouched(self) -> Iterator[Snapshot]:
        """Restores all state; from the first code beside graphs on, including all values."""
        unplanned, sharded = self.session.unplanned, self.session.sharding is not None
        roots = (self.model, self.sample_inputs, self.loss)
        with (
            self._without_gradients(),
            untouched(*roots, only_buffers=sharded, runs=not unplanned.is_empty) as snapshot,
            unplanned.told(snapshot.keep_values),
            self.session.shared.noting_writes(snapshot.keep_before_write),
        ):
            yield snapshot

    def _forward(self) -> Any:
        try:
            return call_with(self.fitted, self.sample_inputs)
        finally:
            if self.session.sharding is not None:
                self.session.sharding.end_unfinished_step()

    def _look_at_loss(self) -> None:
        """Tell the session which outputs the loss depends on, and its memory."""
        if self.loss is None:
            return
        device = self._device()
        if device.type != "meta":
            runtime_of(device).taken_by_libraries()  # unknown after the model's first products
        with phase("loss"):
            self._keeping_if_it_must(self._probe)

    def _probe(self) -> None:
        assert self.loss is not None
        with self._untouched():
            with self.session.probing():
                outputs = call_with(self.fitted, self.sample_inputs)
            self.session.note_loss(*measured_loss(self.loss, outputs, self.sample_inputs))


def raise_nothing_planned(model: torch.nn.Module, where: str) -> NoReturn:
    """where: the places at which Dynamo gave up."""
    if any(p.requires_grad for p in model.parameters()):
        raise UnsupportedModelError(
            f"Dynamo compiled nothing of this model that needs a gradient ({where}); "
            "it would run without a plan"
        )
    raise NothingToPlanError("nothing in this model requires a gradient, so there is nothing to plan")
