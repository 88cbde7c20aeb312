"""A model whose calls run by a plan in eager mode: recorded, planned, compared, measured, then trained."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

import remat

from ..base.account import phase
from ..base.errors import UnsupportedModelError, errors_stand_alone
from ..base.private import COMPILED_CALL, eager_call
from ..base.units import format_bytes
from ..plan.budget import auto_budget, optimizer_state_bytes
from ..plan.options import Options
from ..plan.report import ModelReport
from ..session.fitted import call_with
from ..session.measure import measure_peak
from ..session.untouched import Snapshot
from .ledger import Ledger
from .planning import EagerPlan, plan_record
from .recorded import Record
from .step import TrainingStep

log = logging.getLogger("remat.torch")

Call = tuple[tuple[Any, ...], dict[str, Any]]
Loss = Callable[[Any], torch.Tensor]
# Of plans whose steps are measured, until one is within the budget.
_MEASURED = 3
# Of sequences of ops at one combination of shapes.
_MOST_SEQUENCES = 8


@dataclass
class _Shape:
    """What is known of one combination of shapes.

    plans: by whether gradients exist, those that were followed last first. records: how many steps were
    recorded. pending: the arguments of a call that had other ops.
    """

    plans: dict[bool, list[EagerPlan]] = field(default_factory=lambda: {False: [], True: []})
    records: int = 0
    pending: Call | None = None


class EagerSession:
    """Plans and calls of one model.

    loss: from outputs to what is differentiated, if that is outside the model.
    """

    def __init__(self, model: torch.nn.Module, options: Options, loss: Loss | None) -> None:
        self.model, self.options, self.loss = model, options, loss
        self.report = ModelReport()
        self._shapes: dict[Hashable, _Shape] = {}
        self._call = eager_call(model)
        self._settled: Options | None = None
        self._said: set[str] = set()

    # Preparation

    def prepare(self, sample_inputs: Any) -> None:
        """Plan for calls with inputs like these."""
        args, kwargs = _as_call(sample_inputs)
        with torch.enable_grad():
            self._prepare(args, kwargs)

    def _prepare(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        shape = self._shapes.setdefault(_key(self.model, args, kwargs), _Shape())
        args, kwargs = _apart((tuple(args), dict(kwargs)))
        step = self._step(args, kwargs)
        snapshot = Snapshot(self.model)
        with phase("capture"):
            record = self._record(step, snapshot.restore)
        shape.records += 1
        for adds in self._kinds():
            with phase("plan"):
                plan = self._plan(step, record, adds, snapshot.restore)
            self.report.add(plan.report)
            shape.plans[adds].insert(0, plan)
            log.info("%s", plan.report.summary())

    def _kinds(self) -> tuple[bool, ...]:
        accumulate = self.options.accumulate
        return (False, True) if accumulate is None else (accumulate,)

    def _step(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TrainingStep:
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        inputs = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        graded = [*parameters, *(t for t in inputs if t.requires_grad and t.is_leaf)]
        first = next((t for t in [*self.model.parameters(), *inputs]), None)
        device = torch.device("cpu") if first is None else first.device
        return TrainingStep(
            forward=lambda: self._call(*args, **kwargs),
            loss=self._losses,
            parameters=graded,
            resident=[self.model, args, kwargs],
            device=device,
        )

    def _losses(self, outputs: Any) -> list[torch.Tensor]:
        if self.loss is not None:
            return [self.loss(outputs)]
        named = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
        items = [named] if isinstance(named, torch.Tensor) else tree_leaves(outputs)
        found = [t for t in items if isinstance(t, torch.Tensor) and t.requires_grad]
        if not found:
            raise UnsupportedModelError(
                "nothing that this model returns requires a gradient, so there is nothing to plan"
            )
        return found

    def _record(self, step: TrainingStep, restore: Callable[[], object]) -> Record:
        with step.without_traces(restore):
            timed = step.record(traced=False)
        with step.without_traces(restore):
            record = step.record(traced=True)
        if [op.func for op in timed.ops] == [op.func for op in record.ops]:
            for op, other in zip(record.ops, timed.ops, strict=True):
                op.duration = min(op.duration, other.duration)
        return record

    def _plan(
        self, step: TrainingStep, record: Record, adds: bool, restore: Callable[[], object]
    ) -> EagerPlan:
        """A plan that was compared and measured."""
        options = self._options(step.device)
        resident = sum({**record.external, **step.resident_bytes()}.values())
        if adds:
            resident += sum(record.values[value].bytes for value in record.gradients)
        forbidden: set[int] = set()
        less = 0
        for _ in range(_MEASURED):
            plan = plan_record(record, options, resident, adds, forbidden, less)
            differing = self._compared(step, plan, restore) if plan.again else set()
            if differing:
                self._say_differing(record, differing)
                forbidden |= differing
                continue
            if not plan.again:
                return plan
            peak = self._measured(step, plan, adds, restore) + plan.report.reserve
            if peak <= plan.report.budget:
                return plan
            less += peak - plan.report.budget
        raise remat.NoPlanError(
            f"no plan was found whose step is measured to be within the budget of "
            f"{format_bytes(plan.report.budget)}; the last one took {format_bytes(peak)}",
            floor=plan.report.peak_lower_bound,
            smallest_known=plan.report.keep_all_peak,
        )

    def _compared(self, step: TrainingStep, plan: EagerPlan, restore: Callable[[], object]) -> set[int]:
        """Ops whose second run makes other bits than the first."""
        differing: set[int] = set()
        with step.without_traces(restore):
            step.run_planned(Ledger([plan], verify=True, told=differing.add))
        return differing

    def _measured(
        self, step: TrainingStep, plan: EagerPlan, adds: bool, restore: Callable[[], object]
    ) -> int:
        with step.without_traces(restore):
            if adds:
                step.run_planned(Ledger([plan]))
            return measure_peak(
                lambda: step.run_planned(Ledger([plan])), device=step.device, resident=step.resident
            )

    def _options(self, device: torch.device) -> Options:
        """With the budget in bytes where it was "auto", and all that is reserved in `reserve`."""
        if self._settled is None:
            options = self.options
            reserve = options.size("reserve")
            if options.optimizer is not None:
                reserve += optimizer_state_bytes(options.optimizer, device)
            budget = options.budget
            if budget == "auto":
                resident = sum(TrainingStep(list, list, [], self.model, device).resident_bytes().values())
                budget = auto_budget(device, resident, reserve, options.margin)
            self._settled = replace(options, budget=budget, reserve=reserve)
        return self._settled

    # Calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return self._call(*args, **kwargs)
        shape = self._shape_of(args, kwargs)
        adds = any(p.grad is not None for p in self.model.parameters())
        plans = shape.plans[adds] or shape.plans[not adds]
        ledger = Ledger(plans)
        with ledger, saved_tensors_hooks(ledger.pack, ledger.unpack):
            outputs = self._call(*args, **kwargs)
        ledger.end()
        if ledger.plan is not plans[0]:
            plans.remove(ledger.plan)
            plans.insert(0, ledger.plan)
        if ledger.left_at is not None:
            self._note_other_ops(shape, ledger, args, kwargs)
        return outputs

    def _shape_of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Shape:
        """With a plan at least."""
        key = _key(self.model, args, kwargs)
        if key not in self._shapes:
            self._prepare(args, kwargs)
        shape = self._shapes[key]
        if shape.pending is not None:
            pending, shape.pending = shape.pending, None
            self._prepare(*pending)
        return shape

    def _note_other_ops(
        self, shape: _Shape, ledger: Ledger, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        """A step had other ops than were planned for: its own are recorded, for the next time."""
        functions, at = ledger.plan.functions, ledger.left_at or 0
        expected = functions[at] if at < len(functions) else "the end"
        self._warn(
            "other ops",
            f"op {at} of a call is not {expected}, which was recorded: what follows it is kept for the "
            "backward; the budget holds again once these ops are planned for",
        )
        if shape.records < _MOST_SEQUENCES:
            shape.pending = _apart((tuple(args), dict(kwargs)))

    def _say_differing(self, record: Record, differing: set[int]) -> None:
        named = sorted({str(record.ops[number].func) for number in differing})
        self._warn(
            "differing", f"{', '.join(named)}: a second run makes other bits than the first, so it runs once"
        )

    def _warn(self, about: str, text: str) -> None:
        if about not in self._said:
            self._said.add(about)
            log.warning("%s", text)


def _as_call(sample_inputs: Any) -> Call:
    def noted(*args: Any, **kwargs: Any) -> Call:
        return args, kwargs

    found: Call = call_with(noted, sample_inputs)
    return found


def _apart(call: Call) -> Call:
    """The same arguments, with tensors that a recorded step can write to, and differentiate."""

    def own(item: Any) -> Any:
        if not isinstance(item, torch.Tensor) or isinstance(item, torch.nn.Parameter):
            return item
        return item.detach().clone().requires_grad_(item.requires_grad)

    made: Call = tree_map(own, call)
    return made


def _key(model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Hashable:
    leaves, structure = tree_flatten((tuple(args), dict(kwargs)))
    described = tuple(
        (each.shape, each.dtype, each.requires_grad) if isinstance(each, torch.Tensor) else type(each)
        for each in leaves
    )
    autocast = torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")
    return described, structure, model.training, autocast


def eager_fitted(model: torch.nn.Module, options: Options, sample_inputs: Any, loss: Loss | None) -> Any:
    """A copy of the model whose calls run by a plan in eager mode."""
    fitted = copy.copy(model)
    session = EagerSession(fitted, options, loss)
    session.prepare(sample_inputs)
    fitted.__dict__[COMPILED_CALL] = errors_stand_alone(session.__call__)
    fitted.__dict__["remat"] = session.report
    return fitted
