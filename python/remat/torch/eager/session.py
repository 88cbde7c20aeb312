"""A model whose calls run by a plan in eager mode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_structure

import remat

from ..base.allocator import is_traced
from ..base.devices import default_device, runtime_of
from ..base.errors import VerificationError, errors_stand_alone, log
from ..base.fitted_module import fitted_module
from ..base.given import arguments_in
from ..base.held import Holder, tensors_held
from ..base.in_use import in_use_on
from ..base.nodes import SMALL, storage_bytes
from ..base.private import eager_call, foreign_modes, is_transformed, packs_saved_tensors
from ..base.reasons import in_a_line
from ..base.storages import tensor_storages
from ..base.units import exact_bytes
from ..plan.budget import is_amount
from ..plan.model_report import ModelReport
from ..plan.options import Options
from ..plan.report import PlanReport
from ..session.unplanned import KEPT, SEVERAL, TRANSFORMED, larger_inputs
from ..session.watch import note_eager_step
from .calls import Call, shapes_of
from .fetching import Copying
from .flight import Flight
from .following import is_followed, through
from .leaving import Gradients, evictor_from, rest_of, rest_of_others
from .ledger import Ledger
from .meter import meter_of
from .once import runs_once
from .online import Evictor
from .planning import EagerPlan, seconds_for
from .prepare import Kind, Loss, Preparation, Recorded
from .proving import prove
from .shapes import Borrowed, Key, Shape, Shapes
from .together_active import is_active

# Most sequences of ops at one combination of shapes, or at one place of a context.
MOST_SEQUENCES = 8
# Of these, such that no call followed since: ops that differ from call to call are never those of a plan.
_MOST_UNFOLLOWED = 3
# Least share of the outputs in the peak for which a new plan is worth it when they are not held.
_WORTH = 0.001


class _Nothing:
    """An empty plan, which a ledger leaves at once."""

    functions: Sequence[Any] = ()
    again: frozenset[int] = frozenset()
    passing: Any = None
    made: Sequence[int] = ()
    copying: Copying | None = None
    readings: Mapping[int, Any] = {}
    products = True


class EagerSession:
    """Plans and calls of one model. loss: from its outputs to the differentiated value, if outside the
    model."""

    def __init__(self, model: torch.nn.Module, options: Options, loss: Loss | None) -> None:
        self.model, self.options = model, options
        self.report = ModelReport()
        self._preparation = Preparation(model, options, loss, self._say)
        self._shapes = Shapes(options.max_shapes, borrows=is_amount(options.budget))
        self._call, self._modes = eager_call(model), foreign_modes()
        self._said: set[str] = set()
        # Calls of which no step could be recorded.
        self._unrecorded: set[Key] = set()
        # The last report, until a call has other plans.
        self._outdated: list[PlanReport] = []
        self._in_use: Callable[[], int] | None = None
        # Most calls before a backward.
        self._flight, self._calls = Flight(), 1

    def prepare(self, call: Call, adds: bool | None = None, may_exceed: bool = False) -> None:
        """Plan for calls with such arguments. adds: during training, only such steps are measured, which need
        no more memory than training does; others are planned at their first call. may_exceed: where the
        budget is too small, the plan of least peak is taken.

        Raises InfeasibleError, NoPlanError if the budget is too small for a kind of step.
        """
        shape = self._shapes.own(self._key(call))
        recorded = self._preparation.recorded(call, bool(adds))
        shape.count_inputs(recorded.inputs)
        recorded.count_inputs(shape.inputs)
        self._note_what_varies(shape, recorded)
        if any(each.record.has_ops_of(recorded.record) for each in shape.recorded):
            shape.complete()  # what other calls have more of depends on something else than the arguments
            return
        self._in_use = in_use_on(self._preparation.device())
        if self.options.outputs is not None:
            shape.drop(recorded.all_outputs() if self.options.outputs == "dropped" else frozenset(), 0)
        met = self._adds() if adds is None else (self._nearest(adds),)
        kinds = [Kind(each, shape.dropped or frozenset()) for each in met]
        missed: list[remat.NoPlanError] = []
        for kind in kinds:
            try:
                known = max((error.smallest_known for error in missed), default=0)
                self._plan(recorded, kind, call, known)
            except remat.NoPlanError as error:
                if may_exceed:
                    self._exceed(recorded, kind, call, error)
                else:
                    missed.append(error)
        if missed:
            planned = {kind: recorded.needs(kind) for kind in kinds if kind in recorded.plans}
            raise no_plans(missed, list(planned.values()), _which(planned))
        shape.recorded.insert(0, recorded)

    def _note_what_varies(self, shape: Shape, recorded: Recorded) -> None:
        """How closely calls are looked at, and whether they follow plans."""
        if recorded.draws:
            shape.compare_sizes()
        elif recorded.record.readings:
            shape.follow_calls()
        if recorded.drawn:
            shape.drop_plans()
            self._say(
                "drawn",
                "ops of this model depend on random numbers: its calls stay within the budget without a "
                "plan, and what runs again is chosen as they run",
            )

    def _adds(self) -> tuple[bool, ...]:
        accumulate = self.options.accumulate
        return (False, True) if accumulate is None else (accumulate,)

    def _nearest(self, adds: bool) -> bool:
        """The planned steps nearest to these."""
        return adds if adds in self._adds() else self._adds()[0]

    def _plan(self, recorded: Recorded, kind: Kind, call: Call, known: int = 0) -> EagerPlan:
        try:
            plan = self._preparation.plan(recorded, kind, call, known)
        except remat.NoPlanError:
            budget = self._largest_budget()
            if not budget:
                raise
            with self._preparation.within(budget):
                plan = self._preparation.plan(recorded, kind, call, known)
        if self.options.verify:
            prove(self.model, plan, call)
        plan.report.traffic.clear()
        self.report.add(plan.report)
        return plan

    def _exceed(self, recorded: Recorded, kind: Kind, call: Call, error: remat.NoPlanError) -> None:
        """Plans such steps, which have no plan within the budget, for the least bytes."""
        plan = self._preparation.exceeding(recorded, kind, call, self._largest_budget())
        self.report.add(plan.report)
        self._warn(
            "exceeds",
            "calls of another kind than before exceed the budget by as little as a plan can, and take "
            f"{exact_bytes(plan.report.predicted_peak)} ({in_a_line(error)})",
        )

    def _largest_budget(self) -> int:
        """The largest budget of other planned steps in bytes, if budgets are shares of their needs."""
        if is_amount(self.options.budget):
            return 0
        return max((plan.report.budget for plan in self._shapes.plans()), default=0)

    def _key(self, call: Call) -> Key:
        autocast = [torch.is_autocast_enabled(kind) for kind in ("cpu", default_device().type)]
        return Key(tuple(shapes_of(call)), tree_structure(call), (self.model.training, *autocast))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled() or torch.compiler.is_compiling() or is_active():
            return self._call(*args, **kwargs)
        if packs_saved_tensors():
            self._say(
                "hooks",
                "a call inside hooks for saved tensors (torch.utils.checkpoint, save_on_cpu) runs as it is "
                "written: they decide what is kept, not a plan",
            )
            return self._call(*args, **kwargs)
        if is_transformed():
            self._say("transforms", TRANSFORMED)
            return self._call(*args, **kwargs)
        if (modes := foreign_modes()) != self._modes:
            self._say(
                "modes",
                f"a call inside dispatch modes ({', '.join(modes) or 'none'}) that are not those of `fit` "
                "runs as it is written: what they do would be missing where ops run again",
            )
            return self._call(*args, **kwargs)
        waiting = self._flight.waiting()
        if waiting >= self._calls:
            self._note_calls(waiting + 1)
        outputs = self._planned_call((args, kwargs))
        self._flight.note(outputs)
        return outputs

    def _planned_call(self, call: Call) -> Any:
        args, kwargs = call
        self._preparation.begin_training()
        while self._outdated:
            self.report.forget(self._outdated.pop())
        key, adds = self._key(call), any(p.grad is not None for p in self.model.parameters())
        inputs = self._preparation.input_bytes(call)
        borrowed, plans = self._borrowed(key, adds, inputs)
        if borrowed is not None:
            shape = borrowed.shape
        elif key not in self._unrecorded and (self._shapes.is_known(key) or self._shapes.has_room()):
            try:
                shape = self._shape_of(key, call, adds)
            except (remat.NoPlanError, VerificationError):
                raise
            except Exception as error:
                if self.options.strict or not self._shapes.forget_unrecorded(key):
                    raise
                outputs = self._without_plan(call)
                self._unrecorded.add(key)
                self._warn_unrecorded(error)
                return outputs
            if self._calls > 1 and not self._flight.waiting():
                self._leave_room(shape, adds, call)
            if not shape.has_room_for(inputs):
                self._count_inputs(shape, adds, call, inputs)
            plans = self._plans(shape, adds, call)
        else:
            if key not in self._unrecorded:
                self._say(
                    "too many shapes",
                    f"calls have more than {self.options.max_shapes} combinations of shapes (max_shapes): "
                    "others stay within the budget without a plan",
                )
            return self._without_plan(call)
        if shape.planless:
            return self._without_plan(call)
        note_eager_step(plans[0].report)
        runs_again = any(plan.away for plan in plans)
        looks = self.options.outputs is None and (
            bool(shape.dropped) if borrowed is not None else shape.looks(plans[0].report, runs_again)
        )
        in_use = self._in_use
        before = in_use() if in_use is not None else 0
        first = borrowed is not None and not borrowed.shown
        looked_at = runs_again or looks or first or shape.followed or self.options.strict or is_followed()
        # Bytes in use tell nothing where the allocator is traced.
        if not looked_at and in_use is not None and not is_traced():
            outputs = self._call(*args, **kwargs)
            self._compare_growth(shape, plans, in_use() - before, followed=False)
            return outputs
        differs = partial(self._differs, shape, plans)
        leave, turn = partial(self._leave, shape), partial(self._turn, shape)
        smaller = first or shape.sized or is_traced()
        ledger = Ledger(
            plans, first, differs, leave, smaller=smaller, turn=turn, backwards=self._warn_of_backwards
        )
        outputs = through(ledger, plans[0], lambda: self._call(*args, **kwargs))
        if ledger.left_at is not None:
            if borrowed is not None:
                self._shapes.set_apart(key)
            if borrowed is None or self._shapes.has_room():
                self._note_other_ops(self._shapes.own(key), ledger, call)
            return outputs
        known = next((plan for plan in plans if plan is ledger.plan), None)
        shape.note_followed(known)
        if in_use is not None and known is not None:
            self._compare_growth(shape, [known], in_use() - before, followed=True)
        if borrowed is not None and known is not None:
            borrowed.note_step(known, ledger.made)
            self._derive(key, adds, borrowed, known)
        if looks and borrowed is not None:
            self._look_at_smaller_outputs(shape, ledger, outputs)
        elif looks:
            self._look_at_outputs(shape, ledger, outputs)
        return outputs

    def _compare_growth(self, shape: Shape, plans: Sequence[EagerPlan], grown: int, followed: bool) -> None:
        """Warn if a call left more bytes in use than planned, and the step may so exceed the budget.

        grown: by how many bytes, as the allocator says. followed: its ops were those of the plan.
        """
        if is_traced():  # that takes memory itself
            return
        above, budget = min(
            (shape.needed(plan, grown) - plan.report.budget, plan.report.budget) for plan in plans
        )
        if above <= 0:
            return
        shape.compare_sizes()
        self._warn(
            "sizes" if followed else "growth",
            f"a call left more in use than the one that was recorded: its step may need "
            f"{exact_bytes(budget + above)}, above the budget of {exact_bytes(budget)}; "
            + (
                "its ops are those that were recorded: their sizes depend on data, or another thread took it"
                if followed
                else "each op of such calls is looked at from now on"
            ),
        )

    def _borrowed(self, key: Key, adds: bool, inputs: int) -> tuple[Borrowed | None, list[EagerPlan]]:
        """The larger shape whose plans such calls follow, if any, and these plans. Runs no step."""
        borrowed = self._shapes.borrowed(key)
        if borrowed is None:
            return None, []
        shape = borrowed.shape
        if not shape.has_room_for(inputs):
            self._shapes.set_apart(key)
            return None, []
        # Plans for steps whose outputs are held are valid for others too.
        told = self.options.outputs is not None and shape.dropped
        kind = Kind(self._nearest(adds), told or frozenset())
        found = [self._plan_at_hand(each, kind) for each in shape.recorded]
        plans = [plan for plan in found if plan is not None]
        if len(plans) < len(found):
            self._shapes.set_apart(key)
            return None, []
        return borrowed, plans

    def _derive(self, key: Key, adds: bool, borrowed: Borrowed, plan: EagerPlan) -> None:
        """Makes a plan for calls that followed a larger shape's, from the sizes of their results, if that
        pays."""
        larger = borrowed.shape
        if len(larger.recorded) > 1 or borrowed.tried or not plan.away:
            return
        if not larger.worth_planning(seconds_for(plan.report.graph.num_ops)):
            return
        recorded = larger.recorded[0].smaller(plan, borrowed.try_to_plan())
        kind = Kind(self._nearest(adds), larger.dropped or frozenset())
        found = self._preparation.planned_again(recorded, kind)
        if found is not None and found.report.overhead < plan.report.overhead:
            recorded.keep(kind, found)
            if self._shapes.derive(key, recorded) is not None:
                self.report.add(found.report)

    def _shape_of(self, key: Key, call: Call, adds: bool) -> Shape:
        """The shape of a call, with at least one plan."""
        if not self._shapes.is_known(key):
            self.prepare(call, adds)
        shape = self._shapes.own(key)
        pending = shape.take_pending()
        if pending is None and not shape.recorded:
            self.prepare(call, adds)
        elif pending is not None:
            try:
                with self._preparation.beside(call):
                    self.prepare(pending, adds, may_exceed=not self.options.strict)
            except VerificationError:
                raise
            except Exception as error:
                if self.options.strict or not shape.recorded:
                    raise
                shape.complete()
                self._warn_unrecorded(error)
        return shape

    def _plans(self, shape: Shape, adds: bool, call: Call) -> list[EagerPlan]:
        """The plans of all known sequences of ops, the likeliest first."""
        kind = Kind(self._nearest(adds), shape.dropped or frozenset())
        return [self._known_plan(each, kind, call) for each in shape.recorded]

    def _note_calls(self, calls: int) -> None:
        """So many calls come before a backward."""
        self._calls = calls
        self._warn(
            f"{calls} calls",
            f"the model was called {calls} times before the first backward: from the next step on its plans "
            "leave room for that (remat.torch.planned plans such a step as a whole)",
        )

    def _leave_room(self, shape: Shape, adds: bool, call: Call) -> None:
        """Plans of a shape are made anew if more calls come before a backward than they are for."""
        kind = Kind(self._nearest(adds), shape.dropped or frozenset())
        for each in list(shape.recorded):
            if each.calls >= self._calls or kind.adds not in each.around:
                continue
            each.for_calls(self._calls)
            others = self._preparation.kept_by_others(each, kind, self._calls - 1)
            if others is not None and self._has_plan_as(shape, each, each.beside(others), kind, call):
                continue
            self._say(
                "together",
                f"no plans for {self._calls} calls before a backward were found that keep the budget "
                "together: such steps exceed it",
            )

    def _count_inputs(self, shape: Shape, adds: bool, call: Call, inputs: int) -> None:
        """Plans of a shape are made anew for arguments that are views of larger storages than before. If none
        is found, calls go on with those they have.
        """
        kind = Kind(self._nearest(adds), shape.dropped or frozenset())
        shape.count_inputs(inputs)
        for each in list(shape.recorded):
            if each.has_room_for(inputs) or self._has_plan_as(
                shape, each, each.with_inputs(inputs), kind, call
            ):
                continue
            known = max((plan.report for plan in each.plans.values()), key=lambda r: r.predicted_peak)
            self._say("inputs", larger_inputs(inputs, each.inputs, known))

    def _has_plan_as(self, shape: Shape, old: Recorded, new: Recorded, kind: Kind, call: Call) -> bool:
        """Is there a plan for the new surroundings of a record? The record with it then replaces the old."""
        try:
            self._known_plan(new, kind, call)
        except remat.NoPlanError:
            return False
        for plan in shape.exchange(old, new):
            self.report.forget(plan.report)
        return True

    def _known_plan(self, recorded: Recorded, kind: Kind, call: Call) -> EagerPlan:
        return self._plan_at_hand(recorded, kind) or self._plan(recorded, kind, call)

    def _plan_at_hand(self, recorded: Recorded, kind: Kind) -> EagerPlan | None:
        """Runs no step if outputs planned to be held are dropped: training leaves no memory for that."""
        plan = recorded.plans.get(kind)
        if plan is None:
            plan = self._preparation.planned_again(recorded, kind) or recorded.plans.get(Kind(kind.adds))
        if plan is None:
            return None
        recorded.keep(kind, plan)
        if all(part is not plan.report for part in self.report.parts):
            self.report.add(plan.report)
        return plan

    def _without_plan(self, call: Call) -> Any:
        """A call that has no record, within the largest budget of the others."""
        known = list(self._shapes.recorded())
        limit = max(plan.report.budget - plan.report.reserve for plan in self._shapes.plans())

        def start(*_: Any) -> Evictor:
            device = self._preparation.device()
            in_use = sum(tensor_storages([self.model, call], device.type).values())
            in_use += runtime_of(device).taken_by_libraries()
            meter = meter_of(device, in_use, None, Gradients(self._parameters()).bytes)
            rests = [rest_of(each.record) for each in known[-MOST_SEQUENCES:]]
            return evictor_from(meter, limit, device, self._over("has no plan", limit), rest_of_others(rests))

        args, kwargs = call
        return Ledger([_Nothing()], leave=start).through(lambda: self._call(*args, **kwargs))

    def _over(self, what: str, limit: int) -> Callable[[int], None]:
        """Warns before a call exceeds its budget."""

        def over(needed: int) -> None:
            self._say(
                "over",
                f"a call that {what} may exceed the budget of {exact_bytes(limit)}: it needs about "
                f"{exact_bytes(needed)} although all is evicted that can be",
            )

        return over

    def _leave(self, shape: Shape, plan: EagerPlan, position: int, more: int) -> Evictor:
        """The evictor that continues from an op in no plan, within the budget of the last plan. more: bytes
        in use there beside the plan's."""
        return self._evictor_at(shape, plan, position, plan, more)

    def _turn(self, shape: Shape, followed: EagerPlan, other: EagerPlan, position: int) -> Evictor | None:
        """The evictor to use when a step changes to another plan that has no room for the results kept so
        far. None if there is room.
        """
        kept = sum(other.made[op] for op in other.away - followed.away if op < position)
        if kept <= other.report.budget - other.report.predicted_peak:
            return None
        return self._evictor_at(shape, followed, position, other)

    def _evictor_at(
        self, shape: Shape, followed: EagerPlan, position: int, to_come: EagerPlan, more: int = 0
    ) -> Evictor:
        """An evictor that keeps a step within the budget from an op on. to_come: bytes for the rest of the
        step."""
        record = next(each.record for each in shape.recorded if to_come in each.plans.values())
        device = self._preparation.device()
        limit = to_come.report.budget - to_come.report.reserve
        over = self._over(f"leaves what was recorded at op {position}", limit)
        in_use = followed.levels[max(0, position - 1)] + more
        meter = meter_of(device, in_use, None, Gradients(self._parameters()).bytes)
        return evictor_from(meter, limit, device, over, rest_of(record))

    def _differs(self, shape: Shape, plans: Sequence[EagerPlan], number: int) -> None:
        """Notes an op whose recomputed bits differ for tensors smaller than those compared."""
        for each in shape.recorded:
            each.never_again(number)
        func = str(next(p.functions[number] for p in plans if number in p.away))
        raise VerificationError(f"{runs_once(func)} from now on; this step has no gradients: leave it out")

    def _parameters(self) -> list[torch.nn.Parameter]:
        return [p for p in self.model.parameters() if p.requires_grad]

    def _note_other_ops(self, shape: Shape, ledger: Ledger, call: Call) -> None:
        """A step had unplanned ops: they are recorded before the next step."""
        functions, at = ledger.plan.functions, ledger.left_at or 0
        expected = functions[at] if at < len(functions) else "the end"
        what = f"op {at} of a call is not the one that was recorded ({expected})"
        if ledger.makes_more:
            what = f"op {at - 1} of a call ({functions[at - 1]}) makes more than was recorded"
        if len(shape.recorded) >= MOST_SEQUENCES or shape.unfollowed() >= _MOST_UNFOLLOWED:
            shape.drop_plans()
            then = "and so do all calls from now on"
        elif shape.is_complete:
            then = "no more plans are made"
        else:
            shape.record_next(call)
            then = "such calls are planned for from the next one on"
        rest = "runs" if "over" in self._said else "stays within the budget"
        self._say(then, f"{what}: what comes after it {rest} without a plan; {then}")

    def _warn_of_backwards(self, unusual: str) -> None:
        self._warn(unusual, KEPT if unusual == "kept" else SEVERAL)

    def _warn_unrecorded(self, error: Exception) -> None:
        """No step of such a call could be recorded or planned, although the call itself runs."""
        self._warn(
            "not recorded",
            "a call of another kind than before runs without a plan, since a step of it could not be "
            f"recorded or planned ({in_a_line(error)})",
        )

    def _look_at_outputs(self, shape: Shape, ledger: Ledger, outputs: Any) -> None:
        """Watches which outputs are held when the backward begins."""
        held = tensors_held(outputs)
        large = {i: t for i, t in enumerate(held) if storage_bytes(t) > SMALL}
        if sum(map(storage_bytes, large.values())) < _WORTH * self.report.predicted_peak:
            shape.drop(shape.dropped or frozenset(), shape.dropped_bytes)
            return
        sizes = {i: storage_bytes(t) for i, t in large.items()}
        self._look_at_backward(shape, ledger, held, large, lambda gone: sum(sizes[i] for i in gone))

    def _look_at_smaller_outputs(self, shape: Shape, ledger: Ledger, outputs: Any) -> None:
        """Watches whether outputs that larger calls drop are held."""
        held = tensors_held(outputs)
        dropped = [i for i in shape.dropped or () if i < len(held)]
        self._look_at_backward(shape, ledger, held, dropped, lambda _: shape.dropped_bytes)

    def _look_at_backward(
        self,
        shape: Shape,
        ledger: Ledger,
        outputs: Sequence[torch.Tensor],
        places: Iterable[int],
        size: Callable[[frozenset[int]], int],
    ) -> None:
        """Watches which outputs at these positions are dropped by the backward. size: of such outputs, in
        bytes."""
        holders = {i: Holder(outputs[i], outputs) for i in places}

        def look() -> None:
            gone = frozenset(i for i, holder in holders.items() if holder.has_gone())
            known = gone if shape.dropped is None else gone & shape.dropped
            self._outdated += shape.drop(known, size(known))

        ledger.call_at_backward(look)

    def _say(self, about: str, text: str) -> None:
        """A warning, once for each matter; with strict=True an error, every time."""
        if self.options.strict:
            raise remat.UsageError(f"strict=True: {text}")
        self._warn(about, text)

    def _warn(self, about: str, text: str) -> None:
        if about not in self._said:
            self._said.add(about)
            log.warning("%s", text)


def _which(planned: Mapping[Kind, int]) -> str:
    """Says of which steps an error is, if others were planned, which need these bytes."""
    if all(kind.adds for kind in planned):
        return ""
    return (
        " (this is a step that adds to existing gradients; accumulate=False plans for those alone that make "
        f"theirs, which need {exact_bytes(max(planned.values()))})"
    )


def no_plans(missed: Sequence[remat.NoPlanError], found: Sequence[int], which: str = "") -> remat.NoPlanError:
    """One error for all kinds of steps without a plan, with a budget that works for all. found: bytes needed
    by those with a plan. which: added to the message.
    """
    known = max([*(error.smallest_known for error in missed), *found])
    worst = max(missed, key=lambda error: error.smallest_known)
    text = str(worst).rpartition("smallest budget known to work")[0]
    return type(worst)(
        f"{text}smallest budget known to work: {exact_bytes(known)}{which}",
        floor=max(error.floor for error in missed),
        smallest_known=known,
    )


def eager_fitted(
    model: torch.nn.Module, options: Options, sample_inputs: Any, loss: Loss | None
) -> torch.nn.Module:
    """A module with the model's state whose calls run by a plan in eager mode."""
    session = EagerSession(model, options, loss)
    session.prepare(arguments_in(sample_inputs))
    return fitted_module(model, errors_stand_alone(session.__call__), session.report)
