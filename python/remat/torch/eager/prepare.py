"""From a call of a model to its plans: records, plans, compares and measures steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

import remat

from ..base.account import phase
from ..base.devices import runtime_of
from ..base.errors import NothingToPlanError, UnsupportedModelError, log
from ..base.held import tensors_held
from ..base.leaves import as_result
from ..base.origins import EXISTING_GRADIENTS, OUTSIDE
from ..base.private import compiled_part, eager_call, leave_to_python
from ..base.reasons import in_a_line
from ..base.saved import NotSavedError, digests_without_saving
from ..base.storages import shown_bytes, tensor_storages
from ..base.units import exact_bytes
from ..plan.budget import amount_of, auto_budget, optimizer_state_bytes
from ..plan.options import Options, as_host
from ..run.bandwidth import measured_host
from ..run.channels import channels_of
from ..run.copies import HostPool
from ..session.loss import value_of
from ..session.measure import measure_peak
from ..session.pipeline import device_of
from ..session.untouched import Snapshot
from .calls import Call, apart
from .ledger import Ledger
from .meter import meter_of
from .once import chosen_once, named_ops, runs_once
from .online import Evictor
from .planning import EagerPlan, Missed, kept_by_each, least_plan, plan_record
from .recorded import Around, Record, count_hidden, count_unseen
from .results import NotMadeAgainError
from .step import TrainingStep

Loss = Callable[[Any], torch.Tensor]
# Most plans that are compared and measured until one is right and within the budget.
_TRIES = 4
# Numbers drawn before further steps, to see whether those run other ops.
_DRAWS = 5, 13
# Margin of a budget named in an error, as a share: peaks vary a little from run to run.
_SPARE = 0.005
# As a share of the budget: steps without recomputation are measured if less is left.
_NEAR = 0.05


@dataclass(frozen=True)
class Kind:
    """A kind of steps. adds: to existing gradients. dropped: positions of outputs that the program does not
    hold in the backward."""

    adds: bool = False
    dropped: frozenset[int] = frozenset()


@dataclass
class Recorded:
    """A recorded sequence of ops, with its plans.

    chosen: ops that must run once, by the options. once: these and ops found to differ. compared: ops whose
    recomputed bits are equal. around: surroundings of steps, by whether they add to gradients. above:
    measured bytes above the prediction. beyond: bytes that a forward leaves in use by the allocator, less the
    plan's. whole: True if a step without recomputation was measured. draws: True if Python draws random
    numbers in the forward. drawn: True if ops or sizes depend on random numbers. followed: a call had its
    ops. calls: before a backward; others: bytes that the others of these keep meanwhile. inputs: bytes of
    the storages of arguments, which may be views of larger ones.
    """

    record: Record
    plans: dict[Kind, EagerPlan] = field(default_factory=dict)
    chosen: frozenset[int] = frozenset()
    once: set[int] = field(default_factory=set)
    compared: set[int] = field(default_factory=set)
    around: dict[bool, Around] = field(default_factory=dict)
    above: dict[bool, int] = field(default_factory=dict)
    beyond: dict[bool, int] = field(default_factory=dict)
    whole: bool = False
    draws: bool = False
    drawn: bool = False
    followed: bool = False
    calls: int = 1
    others: int = 0
    inputs: int = 0

    def follow(self) -> None:
        self.followed = True

    def for_calls(self, calls: int) -> None:
        """So many calls before a backward were planned for, as far as that is possible."""
        self.calls = calls

    def count_inputs(self, inputs: int) -> None:
        self.inputs = max(self.inputs, inputs)

    def with_inputs(self, inputs: int) -> Recorded:
        """The record, without plans, for steps whose arguments take this."""
        more = inputs - self.inputs
        around = {adds: each.with_more(more) for adds, each in self.around.items()}
        return replace(self, plans={}, around=around, beyond={}, inputs=inputs)

    def has_room_for(self, inputs: int) -> bool:
        """True if its plans keep the budget with arguments that take this."""
        more = inputs - self.inputs
        fits = (self.needs(kind) + more <= plan.report.budget for kind, plan in self.plans.items())
        return more <= 0 or (bool(self.plans) and all(fits))

    def beside(self, others: int) -> Recorded:
        """The record, without plans, for steps beside which other calls keep this for their backwards."""
        around = {adds: each.beside(others) for adds, each in self.around.items()}
        return replace(self, plans={}, around=around, beyond={}, others=others)

    def is_tight(self, plan: EagerPlan) -> bool:
        """True if no step without recomputation was measured, and little room is left."""
        return not self.whole and plan.report.predicted_peak > (1 - _NEAR) * plan.report.budget

    def note_whole(self, around: Around, above: int) -> None:
        """Notes that a step without recomputation needed this many bytes more than predicted."""
        self.whole, self.above = True, {}
        if above > 0:
            count_unseen(self.record, around, above)

    def grows(self, kind: Kind, plan: EagerPlan) -> int | None:
        """Bytes that a forward with this plan leaves in use, by the allocator."""
        beyond = self.beyond.get(kind.adds, self.beyond.get(not kind.adds))
        return None if beyond is None else plan.after_forward() + beyond

    def smaller(self, plan: EagerPlan, made: Sequence[int]) -> Recorded:
        """The record for steps whose ops make these bytes in the forward. plan: one that such a step
        followed, with compared recomputations.
        """
        return Recorded(
            self.record.smaller(made),
            chosen=self.chosen,
            once=set(self.once),
            compared=set(plan.away),
            around=dict(self.around),
            above=dict(self.above),
            whole=True,
            draws=self.draws,
            drawn=self.drawn,
            calls=self.calls,
            others=self.others,
            inputs=self.inputs,
        )

    def keep(self, kind: Kind, plan: EagerPlan) -> None:
        self.plans[kind] = plan

    def never_again(self, number: int) -> None:
        """This op runs once in later plans."""
        self.once.add(number)
        self.plans.clear()

    def needs(self, kind: Kind) -> int:
        """Bytes of a step of this kind by its plan: the larger of predicted and measured."""
        predicted = self.plans[kind].report.predicted_peak
        above = self.above.get(kind.adds, 0)
        return with_spare(predicted + above) if above else predicted

    def all_outputs(self) -> frozenset[int]:
        return frozenset(range(len(self.record.outputs)))


@contextmanager
def _said_if_unrecordable(step: TrainingStep, snapshot: Snapshot) -> Iterator[None]:
    """Raises UnsupportedModelError for errors that come with recording, not of the model (`torch.while_loop`
    refuses dispatch modes, for instance)."""
    try:
        yield
    except (remat.RematError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        snapshot.restore()
        try:
            with step.without_traces():
                step.run_unplanned()
        except Exception:
            raise error from None
        raise UnsupportedModelError(
            f'executor="eager" cannot record this step, although it runs ({in_a_line(error)})'
        ) from error


class Preparation:
    """Of one model.

    loss: from outputs to what is differentiated, if that is outside the model.
    say: a warning, once for each matter.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        options: Options,
        loss: Loss | None,
        say: Callable[[str, str], object],
    ) -> None:
        self.model, self._options, self._loss, self._say = model, options, loss, say
        self._call = eager_call(model)
        self._settled: Options | None = None
        self._pool: HostPool | None = None
        self._waiting: Call | None = None
        self._writes_parameters = self._in_training = False
        self._compiles = compiled_part(model) is not None

    def begin_training(self) -> None:
        """From now on, steps run to make plans are interleaved with the user's."""
        self._in_training = True

    def recorded(self, call: Call, adds: bool = False) -> Recorded:
        """Records a step with these arguments, without plans, and undoes it. adds: to existing gradients."""
        snapshot = self._snapshot(call)
        step = self._step(call, snapshot, adds)

        def before_write(tensor: torch.Tensor) -> None:
            self._writes_parameters |= snapshot.keep_before_write(tensor)

        start = sum(step.resident_bytes().values()) + copies_beside(step, (call, self._waiting), snapshot)
        start += runtime_of(step.device).taken_by_libraries()
        with phase("capture"), torch.enable_grad():
            if self._compiles:
                # Dynamo compiles nothing while ops are recorded, and would leave it so.
                self._compiles = False
                for package in ("remat.torch.base", "remat.torch.eager"):
                    leave_to_python(package)
                snapshot.keep_values()
                with step.without_traces():
                    step.run_unplanned()
            with step.without_traces(), _said_if_unrecordable(step, snapshot):
                timed = step.record(False, self._evictor(step, start), before_write)
            with step.without_traces():
                record = step.record(True, self._evictor(step, start), before_write)
                draws = snapshot.drew_in_python()
            varies = draws or bool(record.readings)
            drawn = varies and self._depends_on_draws(step, record, snapshot, start)
            if record.made_in_autocast == timed.made_in_autocast != []:
                self._check_in_autocast(step, record)
            record.time_again(timed)
            count_hidden(record)
        chosen = chosen_once(record, self._options)
        inputs = max(self.input_bytes(call), step.input_bytes())
        return Recorded(
            record, chosen=frozenset(chosen), once=chosen, draws=draws, drawn=drawn, inputs=inputs
        )

    def input_bytes(self, call: Call) -> int:
        """Bytes of the storages of a call's arguments."""
        first = next(self.model.parameters(), None)
        return shown_bytes(tree_leaves(call), "cpu" if first is None else first.device.type)

    def _depends_on_draws(self, step: TrainingStep, record: Record, snapshot: Snapshot, start: int) -> bool:
        """True if steps with other random numbers run other ops, or make other sizes."""
        for times in _DRAWS:
            with step.without_traces():
                for _ in range(times):
                    snapshot.draw_from_all()
                other = step.record(False, self._evictor(step, start))
                if not other.has_ops_of(record) or other.modules != record.modules:
                    return True
        return False

    def _check_in_autocast(self, step: TrainingStep, record: Record) -> None:
        """Raises UnsupportedModelError if outputs differ under a dispatch mode: kernels that call ops cast by
        autocast are outside autocast there.
        """
        try:
            with step.without_traces():
                once = digests_without_saving(step.forward)
            if once == record.made_in_autocast:
                return
            with step.without_traces():
                again = digests_without_saving(step.forward)
        except NotSavedError:
            return
        if once == again:
            raise UnsupportedModelError(
                "inside autocast an op of this model makes other bits while its ops are looked at, as "
                "bilinear and linalg.pinv do: call it with autocast off and its arguments cast"
            )

    def device(self) -> torch.device:
        """Where the model is."""
        return device_of(list(self.model.parameters()))

    def _snapshot(self, call: Call) -> Snapshot:
        """A snapshot of all that a step may change, without the values of parameters if no op writes them."""
        return Snapshot(self.model, call, self._loss, runs=self._writes_parameters)

    def _evictor(self, step: TrainingStep, start: int) -> Evictor | None:
        """Keeps a recorded step within a budget in bytes. A share of the step's need is not known before it
        is recorded.
        """
        options = self._options_on(step.device)
        budget = amount_of(options.budget)
        if budget is None:
            return None
        limit = budget - options.size("reserve")

        def over(needed: int) -> None:
            self._say(
                "recording",
                f"a step that is recorded may exceed the budget of {exact_bytes(limit)}: it needs about "
                f"{exact_bytes(needed)} although all is evicted that can be",
            )

        def differs(func: Any) -> None:
            self._say("differing", runs_once(str(func)))

        meter = meter_of(step.device, start, step.resident_bytes())
        return Evictor(meter, limit, step.device, over, differs)

    def plan(self, sequence: Recorded, kind: Kind, call: Call, known: int = 0) -> EagerPlan:
        """Plans such steps, and stores the plan with the sequence. known: the budget that another kind of
        step needs if ours is too small; errors do not name less.

        Raises InfeasibleError, NoPlanError.
        """
        snapshot = self._snapshot(call)
        step = self._step(call, snapshot, kind.adds)
        if self._in_training:
            copies = copies_beside(step, (call, self._waiting), snapshot)
            step = replace(step, copies=max(0, copies - _surplus(step, sequence)))
        with phase("plan"), torch.enable_grad():
            plan = self._plan(step, sequence, kind, without_spare(known))
            with step.without_traces():
                grown = step.grown(Ledger([plan]) if plan.away else None)
        if grown is not None:
            # Other garbage may be freed meanwhile: not below the plan's prediction.
            resident = sum(sequence.around[kind.adds].resident.values())
            sequence.beyond[kind.adds] = max(grown - plan.after_forward(), -resident)
        sequence.keep(kind, plan)
        if sequence.drawn:
            plan.report.leave()
        log.info("%s", plan.report.summary())
        return plan

    def planned_again(self, sequence: Recorded, kind: Kind) -> EagerPlan | None:
        """A plan for such steps from existing knowledge, without running a step. None if there is none.

        Only compared ops are recomputed, and measured excesses over predictions count.
        """
        if kind.adds not in sequence.around:
            return None
        options, around = self._settled or self._options, sequence.around[kind.adds]
        above = max(sequence.above.values(), default=0)
        never = sequence.once | (set(range(len(sequence.record.ops))) - sequence.compared)
        with phase("plan"):
            plan = plan_record(
                sequence.record,
                replace(around, dropped=sequence.record.dropped(kind.dropped)),
                options,
                never,
                sequence.above.get(kind.adds, above),
                self._pool,
            )
        return None if isinstance(plan, Missed) else plan

    def kept_by_others(self, sequence: Recorded, kind: Kind, others: int) -> int | None:
        """Bytes that so many other calls may keep for their backwards beside such a step, all within the
        budget; None if no plans for that are found. Runs no step."""
        around = replace(sequence.around[kind.adds], dropped=sequence.record.dropped(kind.dropped))
        options = self._settled or self._options
        each = kept_by_each(sequence.record, around, options, sequence.once, others)
        return None if each is None else others * each

    def around(self, sequence: Recorded, kind: Kind, call: Call) -> Around:
        """The surroundings of such a step."""
        return self._around(self._step(call), sequence, kind)

    def least(self, sequence: Recorded, kind: Kind, call: Call) -> EagerPlan:
        """The known plan of least peak, whatever the budget. Finds ops whose recomputed bits differ."""
        step = self._step(call, self._snapshot(call), kind.adds)
        with phase("plan"), torch.enable_grad(), step.without_traces():
            around = self._around(step, sequence, kind)
        with phase("plan"), torch.enable_grad():
            while True:
                plan = least_plan(
                    sequence.record, around, self._options_on(step.device), sequence.once, pool=self._pool
                )
                with step.without_traces():
                    if not self._differs(step, sequence, plan, kind):
                        return plan

    def exceeding(self, sequence: Recorded, kind: Kind, call: Call, largest: int) -> EagerPlan:
        """The same for steps that no plan keeps within the budget, stored with the sequence. largest: the
        budget of other steps, if theirs is more."""
        plan = self.least(sequence, kind, call)
        report, options = plan.report, self._options_on(self.device())
        budget = remat.parse_bytes(options.budget, report.keep_all_peak, floor=report.peak_lower_bound)
        plan = replace(plan, report=replace(report, budget=max(budget, largest)))
        sequence.keep(kind, plan)
        return plan

    def settled(self, call: Call) -> Options:
        """The options with the budget in bytes if it was "auto", and `reserve` with all reserved bytes."""
        return self._options_on(self._step(call).device)

    def _plan(
        self,
        step: TrainingStep,
        sequence: Recorded,
        kind: Kind,
        enough: int,
    ) -> EagerPlan:
        options = self._options_on(step.device)
        with step.without_traces():
            if (not kind.adds) not in sequence.around:
                other = replace(kind, adds=not kind.adds)
                sequence.around[other.adds] = self._around(step, sequence, other)
            around = sequence.around[kind.adds] = self._around(step, sequence, kind)
        less, asked = step.copies, None
        for _ in range(_TRIES):
            plan = plan_record(sequence.record, around, options, sequence.once, less, self._pool)
            asked = asked if less else plan
            if isinstance(plan, Missed):
                break
            if not (plan.away or sequence.is_tight(plan)):
                return plan
            peak = self._measured(step, sequence, plan, kind)
            if peak is None:
                continue
            if not plan.away:
                sequence.note_whole(around, peak - plan.report.predicted_peak)
            if peak <= plan.report.budget:
                plan.report.measure(peak)
                return plan
            if not plan.away:
                continue
            # Peaks vary a little from run to run.
            less += peak - plan.report.budget + plan.report.budget // 1000
        if asked is None:
            asked = plan_record(sequence.record, around, options, sequence.once)
        return self._least(step, sequence, kind, around, asked, enough)

    def _least(
        self,
        step: TrainingStep,
        sequence: Recorded,
        kind: Kind,
        around: Around,
        asked: EagerPlan | Missed,
        enough: int,
    ) -> EagerPlan:
        """The known plan of least peak, if it is within the budget; else an error with the budget that it
        needs. asked: the failed result for the budget. enough: see `least_plan`.
        """
        options = self._options_on(step.device)
        budget = asked.budget if isinstance(asked, Missed) else asked.report.budget

        def compared(enough: int) -> tuple[EagerPlan, int]:
            # Only ops that the plans of this search show to differ are left out, not all that earlier plans
            # did. So the search for a budget that an error named finds the same plan again.
            once = set(sequence.chosen)
            while True:
                plan = least_plan(sequence.record, around, options, once, enough, self._pool)
                plan = replace(plan, report=replace(plan.report, budget=budget))
                if plan.away.isdisjoint(sequence.once):
                    if self._in_training and plan.report.predicted_peak > budget:
                        return plan, plan.report.predicted_peak  # not exceeded only to name a number
                    needs = self._measured(step, sequence, plan, kind)
                    if needs is not None:
                        return plan, needs
                once |= plan.away & sequence.once

        impossible = isinstance(asked, Missed) and asked.proved
        least: list[int] = []
        for each in dict.fromkeys((enough, enough if impossible else max(enough, budget))):
            plan, needs = compared(each)
            if needs <= budget:
                # The prediction may be larger, since more was in memory when the step was recorded.
                predicted = min(plan.report.predicted_peak, budget)
                report = replace(plan.report, predicted_peak=predicted, measured_peak=needs)
                return replace(plan, report=report)
            least.append(needs)
        known = with_spare(min(least))
        if isinstance(asked, Missed):
            raise asked.error(known)
        raise remat.NoPlanError(
            f"no plan whose step is measured to be within the budget of {exact_bytes(budget)} was found; "
            f"smallest budget known to work: {exact_bytes(known)}",
            floor=asked.report.peak_lower_bound,
            smallest_known=known,
        )

    def _differs(
        self,
        step: TrainingStep,
        sequence: Recorded,
        plan: EagerPlan,
        kind: Kind,
    ) -> bool:
        """True if the recomputed bits of an op differ; such ops run once from now on."""
        if not plan.away:
            return False
        differing = self._compared(step, plan, kind, causes=False)
        if differing:
            step.restore_beside_gradients()
            differing = self._compared(step, plan, kind, causes=True) or differing
        sequence.compared.update(() if differing else plan.away)
        if differing:
            self._say_differing(sequence.record, differing)
            sequence.once.update(differing)
        return bool(differing)

    def _compared(self, step: TrainingStep, plan: EagerPlan, kind: Kind, causes: bool) -> set[int]:
        """Ops whose recomputed bits differ in a planned step. causes: without those that only read such bits,
        which takes longer."""
        found: set[int] = set()
        try:
            step.run_planned(Ledger([plan], verify=True, told=found.add, causes=causes), kind.dropped)
        except NotMadeAgainError as error:
            found.add(error.number)
        return found

    def _around(self, step: TrainingStep, sequence: Recorded, kind: Kind) -> Around:
        record = sequence.record
        libraries = runtime_of(step.device).taken_by_libraries()
        outside = record.beside + libraries + _surplus(step, sequence)
        resident = {**step.resident_by_name(), OUTSIDE: outside}
        if kind.adds:
            existing = sum(record.values[value].bytes for value in record.gradients)
            # Parameters that this step does not reach may have gradients of other steps.
            existing = max(existing, step.existing)
            # Of sparse ones the sum is made beside them, and holds the entries of both.
            resident[EXISTING_GRADIENTS] = existing + 3 * record.sparse
        around = Around(resident, kind.adds, record.dropped(kind.dropped))
        return around.beside(sequence.others) if sequence.others else around

    def _measured(
        self,
        step: TrainingStep,
        sequence: Recorded,
        plan: EagerPlan,
        kind: Kind,
    ) -> int | None:
        """The peak of a planned step in bytes, reserve included. None: recomputed bits of an op differed, and
        it runs once from now on.
        """
        with step.without_traces():
            if self._differs(step, sequence, plan, kind):
                return None
            if kind.adds and not step.existing:
                if not plan.away:  # no earlier step made the gradients that this one adds to
                    step.run_planned(Ledger([plan]), kind.dropped)
                step.restore_beside_gradients()
                return self._peak(step, sequence, plan, kind)
        with step.without_traces():
            return self._peak(step, sequence, plan, kind)

    def _peak(self, step: TrainingStep, sequence: Recorded, plan: EagerPlan, kind: Kind) -> int:
        measured = measure_peak(
            lambda: step.run_planned(Ledger([plan]), kind.dropped),
            device=step.device,
            resident=step.resident,
        )
        peak = plan.report.reserve + step.existing + _surplus(step, sequence) + measured
        known = sequence.above.get(kind.adds, 0)
        sequence.above[kind.adds] = max(known, peak - plan.report.predicted_peak)
        if self._in_training and peak + step.copies > plan.report.budget:
            self._say("measured", measured_above(peak + step.copies, plan.report.budget))
        return peak

    def _step(self, call: Call, snapshot: Snapshot | None = None, adds: bool = False) -> TrainingStep:
        """snapshot: restored after the step, which is needed to run it. adds: to existing gradients."""
        args, kwargs = apart(call)
        inputs = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        parameters = list(self.model.parameters())
        graded = [t for t in (*parameters, *inputs) if t.requires_grad]
        given = zip(tree_leaves(call), tree_leaves((args, kwargs)), strict=True)
        results = {id(own) for item, own in given if isinstance(item, torch.Tensor) and not item.is_leaf}

        def shown(item: Any) -> Any:
            return as_result(item) if id(item) in results else item

        def forward() -> Any:
            own = tree_map(shown, (args, kwargs))
            return self._call(*own[0], **own[1])

        step = TrainingStep(
            forward=forward,
            loss=self._losses,
            parameters=list({id(t): t for t in graded}.values()),
            resident=[self.model, args, kwargs],
            device=device_of([*parameters, *inputs]),
            restore=tuple if snapshot is None else snapshot.restore,
        )
        return step.adding() if adds else step

    def _losses(self, outputs: Any) -> list[torch.Tensor]:
        if self._loss is not None:
            return [value_of(self._loss, outputs)]
        named = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
        items = [named] if isinstance(named, torch.Tensor) else tree_leaves(outputs)
        found = [t for t in items if isinstance(t, torch.Tensor) and t.requires_grad]
        found = found or [t for t in tensors_held(outputs) if t.requires_grad]
        if not found:
            raise NothingToPlanError(
                "nothing that this model returns requires a gradient, so there is nothing to plan"
            )
        if any(t.layout is not torch.strided for t in found):
            raise UnsupportedModelError(
                "an output of this model is a sparse tensor, whose gradient is not known here: pass loss="
            )
        return found

    @contextmanager
    def beside(self, call: Call) -> Iterator[None]:
        """The arguments of this call are in memory too while steps of others run inside the block."""
        self._waiting = call
        try:
            yield
        finally:
            self._waiting = None

    @contextmanager
    def within(self, budget: int) -> Iterator[None]:
        """Plans steps for this many bytes inside the block."""
        before = self._settled
        assert before is not None  # something was planned for
        self._settled = replace(before, budget=budget)
        try:
            yield
        finally:
            self._settled = before

    def _options_on(self, device: torch.device) -> Options:
        """With the budget in bytes where it was "auto", and all that is reserved in `reserve`."""
        if self._settled is None:
            options, budget = self._options, self._options.budget
            reserve = reserved(options, device)
            if budget == "auto":
                resident = sum(TrainingStep(list, list, [], self.model, device).resident_bytes().values())
                resident += runtime_of(device).taken_by_libraries()
                budget = auto_budget(device, resident, reserve, options.margin)
            options, self._pool = with_host(options, device)
            self._settled = replace(options, budget=budget, reserve=reserve)
        return self._settled

    def _say_differing(self, record: Record, differing: set[int]) -> None:
        self._say("differing", runs_once(named_ops(record, differing)))


def reserved(options: Options, device: torch.device) -> int:
    """Bytes of the budget reserved for other uses."""
    # The time of the caller's loss is unknown.
    reserve = options.size("reserve") + options.size("loss_workspace")
    if options.optimizer is not None:
        reserve += optimizer_state_bytes(options.optimizer, device)
    return reserve


def with_host(options: Options, device: torch.device) -> tuple[Options, HostPool | None]:
    """The options with the measured host in place of "auto", and the host's pool, if any."""
    if options.host is None:
        return options, None
    channels = channels_of(device, options.host_dir)
    host = measured_host(channels, device) if options.host == "auto" else as_host(options.host)
    return replace(options, host=host), HostPool(channels, host.budget)


def _surplus(step: TrainingStep, sequence: Recorded) -> int:
    """Bytes that the user's arguments take beyond the step's copies of them."""
    return max(0, sequence.inputs - step.input_bytes())


def copies_beside(step: TrainingStep, calls: Any, snapshot: Snapshot) -> int:
    """Bytes that are there beside a step: the arguments of calls, of which it has copies, and what is kept to
    be put back after it, which are the snapshot and the generator's state, which both the snapshot and
    `without_traces` have.
    """
    device, own = step.device, step.resident_bytes()
    given = tensor_storages(calls, device.type)
    states = 2 * runtime_of(device).generator_state().nbytes if device.type == "cpu" else 0
    copied = sum(size for address, size in given.items() if address not in own)
    return copied + snapshot.bytes_on(device.type) + states


def measured_above(peak: int, budget: int) -> str:
    return (
        f"a new plan for calls in the middle of training was measured to need {exact_bytes(peak)}, above the "
        f"budget of {exact_bytes(budget)}: that once it was exceeded, the plan is made with less"
    )


def with_spare(needs: int) -> int:
    """The budget to name for a step that needed this many bytes."""
    return needs + int(needs * _SPARE)


def without_spare(budget: int) -> int:
    """The bytes that a step needed, from the budget named."""
    return int(budget / (1 + _SPARE))
