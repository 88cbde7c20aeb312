"""Plans that `torch.utils.checkpoint` carries out: which results each block saves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

import torch

import remat

from ..base.errors import UnsupportedModelError, errors_stand_alone
from ..base.given import check_step
from ..base.turns import one_at_a_time
from ..base.units import exact_bytes
from ..cost.source import Costs
from ..plan.budget import optimizer_state_bytes
from ..plan.options import Options
from ..session.captured import captured_step
from ..session.fitted import call_with, loss_in
from ..session.loss import value_of
from ..session.measure import measure_peak
from ..session.proof import copies
from ..session.untouched import untouched
from .outcomes import Outcome, differing, outcome_of
from .policies import CheckpointPolicies, ExecutorReport, FullPlan
from .recording import record_step, regions_around
from .regions import Around, Region, blocks_of
from .savings import Rules, choose, rules_of
from .steps import ExecutorStep, build_step

Regions = Mapping[str, Region | None]

# Default seconds of the search, after the first two recordings.
_SEARCH_S = 10.0
# Seconds of one choice; with a work limit, units of work.
_CHOICE_S = 2.0
_CHOICE_WORK = 20_000_000
# Units of work to run and record one op.
_OP_WORK = 1_000
# Most choices from one starting point, each nearer to the budget.
_ROUNDS = 4
# Bytes of the budget for scalars that kernels store in tensors of one element, which no op shows.
_UNSEEN = 1024
# Texts in error messages of checkpoints.
_OF_CHECKPOINT = ("not found in storage", "torch.utils.checkpoint", "activation checkpoint")
_NOT_REPEATED = (
    "makes other ops when it runs again: it changes something that it reads, a cache for instance (models of "
    "transformers: config.use_cache = False), or decides by random numbers of Python's, or has autocast cast "
    "weights that another call has cast already"
)
# Unused share of the budget that is not worth another choice.
_NEAR = 0.002


@errors_stand_alone
def checkpoint_policy(
    model: torch.nn.Module,
    sample_inputs: Any,
    budget: int | str,
    *,
    loss: Callable[[Any], torch.Tensor] | None = None,
    blocks: Sequence[str] | None = None,
    outputs: str = "held",
    optimizer: torch.optim.Optimizer | None = None,
    reserve: int | str = 0,
    costs: str = "measured",
    routing: Literal["once", "recompute"] = "once",
    time_limit: float | None = None,
    work_limit: int | None = None,
    compare: bool = True,
) -> CheckpointPolicies:
    """Choose the results that each block of the model saves, so that a step under `torch.utils.checkpoint` is
    within a budget with the least overhead. No code of Remat runs during training.

    Some steps are run on the model's device and recorded, the first without checkpoints; the model, its
    gradients and the generators are restored.

    Args:
        model, sample_inputs, budget, loss, optimizer, reserve, costs: as for :func:`fit`; percentages refer
            to the step without checkpoints.
        blocks: names of the modules that are regions: each is recomputed as a whole or not at all. None: the
            children of every `nn.ModuleList` and `nn.Sequential` that have modules of their own.
        outputs: whether the model's outputs are "held" or "dropped" while the backward runs.
        routing: whether ops that decide what runs (topk, sort, argmax, ...) run "once", their results saved,
            or "recompute" with their block.
        time_limit: seconds of the search; 10 without any limit.
        work_limit: the same in deterministic units of work.
        compare: also plan for our own executor, for `report.full`; that takes as long as :func:`fit`.

    Raises:
        InfeasibleError: it is proved that no choice fits.
        NoPlanError: none was found within the budget, nothing is proved; `smallest_known` does fit.
        UnsupportedModelError: a block runs other ops when it is recomputed.
        UsageError: blocks that do not exist, or none.
    """
    check_step(model, sample_inputs, loss)
    names = blocks_of(model, blocks)
    if any(isinstance(vars(module).get("forward"), Around) for module in model.modules()):
        raise remat.UsageError("checkpoint_policy: policies are around this model: remove() takes them away")
    if outputs not in ("held", "dropped"):
        raise remat.UsageError(f'checkpoint_policy: outputs must be "held" or "dropped", not {outputs!r}')
    asked = {"reserve": reserve, "optimizer": optimizer, "costs": costs}
    limits = {"time_limit": time_limit, "work_limit": work_limit}
    options = Options.from_mapping({"budget": budget, "routing": routing, **asked, **limits})
    beside = options.size("reserve")
    if optimizer is not None:
        beside += optimizer_state_bytes(optimizer, next(model.parameters()).device)
    with one_at_a_time():
        trial = _Trial(model, sample_inputs, loss, outputs == "held", options.cost_source(None, runs=True))
        search = _Search(trial, names, _Effort(time_limit, work_limit), beside, routing)
        beside = search.beside
        keep_all = search.eager.peak + _UNSEEN + beside
        limit = remat.parse_bytes(budget, keep_all_peak=keep_all) - beside
        found = search.run(limit)
    full = None
    if compare:
        asked = {"outputs": outputs, "optimizer": optimizer, "reserve": reserve, "costs": costs}
        asked["routing"] = routing
        full = _full_plan(model, sample_inputs, loss, limit + beside, asked)
    report = _report(found, search, limit, beside, full)
    return CheckpointPolicies(found.regions, report, model)


@dataclass(frozen=True)
class _Trial:
    """Runs a step as PyTorch would, and measures it."""

    model: torch.nn.Module
    sample_inputs: Any
    loss: Callable[[Any], torch.Tensor] | None
    held: bool
    costs: Costs

    def run(self, regions: Regions) -> ExecutorStep:
        """The step op by op."""
        with self._undone(regions) as inputs:
            recorded = record_step(self.model, inputs, lambda begins: self._step(inputs, begins), regions)
        changed = next((call.name for call in recorded.calls if not call.is_repeated), None)
        if changed is not None:
            raise UnsupportedModelError(f"checkpoint_policy: block {changed!r} {_NOT_REPEATED}")
        return build_step(recorded, self.costs, type(self.model).__name__)

    def outcome(self, regions: Regions) -> tuple[Outcome, int]:
        """The results of the step without recording its ops, and its peak."""
        device = next((p.device for p in self.model.parameters()), torch.device("cpu"))
        with self._undone(regions) as inputs, regions_around(self.model, regions):
            losses: list[torch.Tensor] = []
            step = lambda: losses.append(self._step(inputs, lambda: None))  # noqa: E731
            peak = measure_peak(step, device=device, resident=[self.model, inputs])
            return outcome_of(self.model, inputs, losses[0]), peak

    @contextmanager
    def _undone(self, regions: Regions) -> Iterator[Any]:
        """Undoes a step with these inputs: the model, its gradients and the generators.

        It ran before without checkpoints, so errors with them are due to them.
        """
        parameters = list(self.model.parameters())
        gradients = [parameter.grad for parameter in parameters]
        try:
            for parameter in parameters:
                parameter.grad = None
            with untouched(self.model):
                yield copies(self.sample_inputs)
        except (RuntimeError, AssertionError) as error:
            around = any(region is not None for region in regions.values())
            if not around or isinstance(error, (remat.RematError, torch.OutOfMemoryError)):
                raise
            blocks = "a block" if len(regions) > 1 else f"block {next(iter(regions))!r}"
            what = _NOT_REPEATED if _is_of_checkpoint(error) else "cannot run again"
            raise UnsupportedModelError(
                f"checkpoint_policy: {blocks} {what}. PyTorch says: {str(error).splitlines()[0]}"
            ) from error
        finally:
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient

    def _step(self, inputs: Any, backward_begins: Callable[[], None]) -> torch.Tensor:
        outputs = call_with(self.model, inputs)
        loss = loss_in(outputs, "checkpoint_policy") if self.loss is None else value_of(self.loss, outputs)
        if not self.held:
            del outputs
        backward_begins()
        loss.backward()
        return loss.detach()

    def prove(self, regions: Regions, expected: Outcome) -> int:
        """The peak of a step with these regions. Raises UnsupportedModelError if its results differ from a
        step without them, except for results that differ between two steps without them (nondeterministic
        kernels).
        """
        plain: Regions = dict.fromkeys(regions)
        found, peak = self.outcome(regions)
        if not differing(expected, found):
            return peak
        vague = set(differing(expected, self.outcome(plain)[0]))
        wrong = set(differing(expected, found)) - vague
        if not wrong:
            return peak
        for name, region in regions.items():
            alone = (
                set()
                if region is None
                else set(differing(expected, self.outcome({**plain, name: region})[0]))
            )
            if alone - vague:
                raise UnsupportedModelError(
                    f"checkpoint_policy: block {name!r} cannot run again without changing "
                    f"{min(alone - vague)}: leave it out with blocks=[NAME, ...]"
                )
        raise UnsupportedModelError(f"checkpoint_policy: checkpoints change {min(wrong)} of this model")


def _is_of_checkpoint(error: BaseException) -> bool:
    return any(part in str(error) for part in _OF_CHECKPOINT)


@dataclass(frozen=True)
class _Found:
    """A set of saved results, and the step that it makes."""

    regions: dict[str, Region | None]
    step: ExecutorStep


class _Effort:
    """What a search may take: seconds from its begin, units of work, or both."""

    def __init__(self, seconds: float | None, work: int | None) -> None:
        self.seconds = _SEARCH_S if seconds is None and work is None else seconds
        self.work_left = work
        self.end: float | None = None

    def begin(self) -> None:
        self.end = None if self.seconds is None else time.monotonic() + self.seconds

    def spend(self, units: int) -> None:
        if self.work_left is not None:
            self.work_left -= units

    def is_over(self) -> bool:
        late = self.end is not None and time.monotonic() > self.end
        return late or (self.work_left is not None and self.work_left <= 0)

    def of_choice(self) -> dict[str, Any]:
        """Limits of one selection."""
        if self.work_left is None:
            return {"time_limit": _CHOICE_S}
        return {"work_limit": max(1, min(_CHOICE_WORK, self.work_left))}


@dataclass
class _Search:
    """beside: reserved bytes. eager: the step without checkpoints; expected: its results; unseen: its bytes
    that belong to no op; rules: by block; known: all steps tried.
    """

    trial: _Trial
    names: Sequence[str]
    effort: _Effort
    beside: int
    routing: str
    eager: ExecutorStep = field(init=False)
    rules: dict[str, Rules] = field(init=False)
    expected: Outcome = field(init=False)
    unseen: int = field(init=False)
    known: list[_Found] = field(default_factory=list)

    def __post_init__(self) -> None:
        plain: dict[str, Region | None] = dict.fromkeys(self.names)
        self.eager = self.trial.run(plain)
        self.known.append(_Found(plain, self.eager))
        self.expected, peak = self.trial.outcome(plain)
        # For instance generator states that the model's own checkpoints keep.
        self.unseen = max(0, peak - self.eager.peak - _UNSEEN)
        self.beside += self.unseen
        self.rules = rules_of(self.eager.recorded, self.eager.random, self.routing)

    def run(self, budget: int) -> _Found:
        """The fastest choice found. Raises NoPlanError."""
        budget -= _UNSEEN
        if self.eager.peak > budget:
            self._search(budget)
        fitting = [found for found in self.known if found.step.peak <= budget]
        for found in sorted(fitting, key=lambda found: (found.step.duration, found.step.peak)):
            if all(region is None for region in found.regions.values()):
                return found
            if self.trial.prove(found.regions, self.expected) - self.unseen <= budget + _UNSEEN:
                return found
        self._raise_no_plan(budget + _UNSEEN)

    def _search(self, budget: int) -> None:
        """Starts with all blocks checkpointed; then without the last ones, whose recomputation would follow
        at once, which lowers the memory of the backward there.
        """
        self.effort.begin()
        called = [call.name for call in self.eager.recorded.calls]
        order = sorted(self.rules, key=lambda name: called.index(name), reverse=True)
        best: int | None = None
        for count in range(len(order)):
            found = self._from(set(order[:count]), budget)
            if found is not None and (best is None or found < best):
                best = found
            elif best is not None or self.effort.is_over():
                return

    def _from(self, skipped: set[str], budget: int) -> int | None:
        """The least duration within the budget with these blocks not checkpointed."""
        regions = {
            name: None if name in skipped or rules.reason else rules.region(set())
            for name, rules in self.rules.items()
        }
        base = self._try(regions)
        fitting = [base.step.duration] if base.step.peak <= budget else []
        target = budget
        for _ in range(_ROUNDS):
            limits = self.effort.of_choice()
            choice = choose(base.step, self.eager, self.rules, target, skipped, **limits)
            self.effort.spend(choice.work)
            found = self._try(choice.regions)
            off = budget - found.step.peak
            if off >= 0:
                fitting.append(found.step.duration)
            if 0 <= off <= _NEAR * budget or self.effort.is_over():
                break
            target += off
        return min(fitting, default=None)

    def _try(self, regions: dict[str, Region | None]) -> _Found:
        for known in self.known:
            if known.regions == regions:
                return known
        found = _Found(regions, self.trial.run(regions))
        self.effort.spend(_OP_WORK * len(found.step.recorded.ops))
        self.known.append(found)
        return found

    def _raise_no_plan(self, budget: int) -> NoReturn:
        """Raises the error, in bytes of the whole step, reserve included."""
        least = min(found.step.peak for found in self.known) + _UNSEEN + self.beside
        # Memory at the end of the backward does not depend on the saved results.
        floor = self.eager.memory[-1] + self.beside
        asked = exact_bytes(budget + self.beside)
        numbers = f"the least that was found is {exact_bytes(least)}, nothing goes below {exact_bytes(floor)}"
        reasons = [f"{name}: {rules.reason}" for name, rules in self.rules.items() if rules.reason]
        if reasons:
            numbers += f"; {len(reasons)} of {len(self.rules)} blocks must not run again ({reasons[0]})"
        if budget + self.beside < floor:
            raise remat.InfeasibleError(
                f"the budget of {asked} is impossible for this step: {numbers}",
                floor=floor,
                smallest_known=least,
            )
        raise remat.NoPlanError(
            f"no set of saved results within the budget of {asked} was found: {numbers}",
            floor=floor,
            smallest_known=least,
        )


def _report(found: _Found, search: _Search, limit: int, beside: int, full: FullPlan | None) -> ExecutorReport:
    eager, step = search.eager, found.step
    return ExecutorReport(
        budget=limit + beside,
        eager_peak=eager.peak + beside,
        predicted_peak=step.peak + beside,
        overhead=(step.duration - eager.duration) / max(1, eager.duration),
        reserve=beside,
        left_alone={name: rules.reason for name, rules in search.rules.items() if rules.reason},
        step=step.graph,
        tried=len(search.known),
        full=full,
    )


def _full_plan(
    model: torch.nn.Module,
    sample_inputs: Any,
    loss: Callable[[Any], torch.Tensor] | None,
    budget: int,
    options: Mapping[str, Any],
) -> FullPlan:
    """The plan of our own executor within the same budget."""
    captured = captured_step(model, sample_inputs, loss, {**options, "accumulate": False})
    taken = captured.settled().size("reserve")
    result = remat.plan(captured.graph, max(1, budget - taken), gap="0.1%")
    plan, keep_all = result.plan, captured.graph.keep_all_peak + taken
    if plan is None:
        return FullPlan(None, None, keep_all, result.status)
    return FullPlan((plan.peak or 0) + taken, plan.overhead, keep_all, result.status)
