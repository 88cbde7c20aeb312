"""The options of the front-end, checked once."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, TypedDict

import torch

import remat
from remat._core import check_request, parse_gap
from remat.planning import Effort

from ..base.optimizers import is_of_pytorch
from ..cost.source import Costs
from .checked import check_group, check_plain
from .store import Store

Patterns = str | Sequence[str]


class GraphOptions(TypedDict, total=False):
    """Keywords of :func:`remat.torch.plan_graph`: the :class:`Options` that apply to a graph alone."""

    budget_on: Literal["peak", "reserved"]
    reserve: int | str
    planner: str
    order: Literal["fixed", "free"]
    time_limit: float | None
    work_limit: int | None
    gap: str | None
    seed: int
    threads: int
    plan: remat.Plan | Sequence[int] | str | Path | None
    never_recompute: Patterns
    always_keep: Patterns
    routing: Literal["once", "recompute"]
    costs: str | Path
    device: str | None
    cache_dir: str | Path | None


class FitOptions(GraphOptions, total=False):
    """Keywords of :func:`remat.torch.fit` and of all calls that capture a step: :class:`Options` without the
    budget.
    """

    arena: bool
    optimizer: torch.optim.Optimizer | None
    step: Literal["backward"] | None
    accumulate: bool | None
    outputs: Literal["held", "dropped"] | None
    calls: int
    loss_workspace: int | str
    executor: Literal["auto", "boxed", "eager", "inductor"]
    host: remat.Host | float | str | None
    host_dir: str | Path | None
    max_shapes: int
    dynamic: bool | None
    strict: bool
    group: Any
    margin: int | str
    verify: bool


class _Budget(TypedDict):
    budget: int | str


class CompileOptions(_Budget, FitOptions):
    """The `options` of `torch.compile(model, backend="remat", options=...)`: a budget, and the options of
    `fit`.
    """


# Default gap, below the accuracy of measured durations.
_GAP = "0.1%"
# Fewer bytes than any training step needs: probably a number that lacks its percent sign or unit.
_NO_STEP = 1000


def as_host(host: remat.Host | float | str) -> remat.Host:
    """The option `host` as a Host. Raises UsageError for other values."""
    if isinstance(host, remat.Host):
        return host
    try:
        if isinstance(host, bool):
            raise TypeError("a truth value")
        return remat.Host(out=host, in_=host)
    except (remat.RematError, TypeError) as error:
        raise remat.UsageError(
            f'remat: host must be a bandwidth ("25GB/s"), a remat.Host or "auto", not {host!r} ({error})'
        ) from None


def with_budget(host: remat.Host, budget: int) -> remat.Host:
    """The same options with this budget in bytes."""
    return remat.Host(host.out, host.in_, latency=host.latency, budget=budget, shared=host.shared)


def _check_budget(budget: Any) -> None:
    """Raises BudgetError for an invalid budget, with what was probably meant."""
    if isinstance(budget, float) and 0 < budget <= 1:
        raise remat.BudgetError(
            f'remat: budget {budget} is no number of bytes: did you mean "{100 * budget:g}%"?'
        )
    size = remat.parse_bytes(budget, keep_all_peak=1 << 40)
    if size < _NO_STEP and str(budget).strip().isdigit():
        meant = f"{size}%" if size <= 100 else f"{size}MiB"
        raise remat.BudgetError(f'remat: budget {budget!r} is {size} bytes: did you mean "{meant}"?')


@dataclass(frozen=True)
class Options:
    """Options of `torch.compile(model, backend="remat", options={...})` and of :func:`remat.torch.fit`.

    Attributes:
        budget: bytes for the whole step: parameters, buffers, inputs, gradients, activations, temporaries. A
            number, "6GiB", "60%" of the keep-all peak, or "auto": the free memory of the CUDA device.
        budget_on: "peak": the budget bounds the bytes in use. "reserved": it bounds the memory that PyTorch's
            allocator reserves for them, by simulation (docs/allocator.md), including fragmentation.
        arena: on the CPU, one allocation for results of all ops that can write to given memory with equal
            bits. It stays in memory between steps, and counts towards the budget as a whole.
        reserve: bytes of the budget for other uses of the device.
        optimizer: its state on the model's device counts towards the budget, whether it exists already or its
            first step makes it.
        step: "backward": the optimizer steps inside the backward, for each parameter as soon as its gradient
            is ready, which is then freed. For `fit`, and for calls that capture a step.
        accumulate: whether gradients exist when a step starts. None: checks each call, and plans once for
            each of the two cases.
        outputs: whether the outputs and their gradients are still referenced while the backward runs: "held"
            or "dropped". None: assumes held at first, checks the first backward, and plans again if they were
            dropped.
        calls: calls of the model before the first backward. If there are more, later steps are planned for
            them.
        loss_workspace: bytes that a loss outside the model needs on top of its gradient.
        planner: as in :func:`remat.plan`, like the next five.
        order: "fixed" or "free".
        time_limit: seconds for planning. None: by the size of the graph, 3.5 s for 1000 ops, 20 s at most.
        work_limit: deterministic units of work.
        gap: planning stops once the step is proved to be within this share of the fastest. None: "0.1%", and
            0.25 % after 0.3 s for 1000 ops; with a limit of time or work, stops only at the limit.
        seed: of the planner's random numbers.
        threads: of the planner.
        plan: use this plan instead of planning: a `remat.Plan`, a list of op indices, or a file's path.
        never_recompute: patterns of module names ("layers.*.attention") or kinds of ops ("mm") that run once.
        always_keep: patterns of modules whose results are kept for the backward, or kinds of ops.
        routing: "once": ops that decide where, which or how many (topk, sort, argmax, nonzero, ...) are never
            recomputed, so that no nondeterministic kernel decides differently. "recompute": they may be.
        costs: durations of ops: "measured" on this machine, "roofline" of `device`, or the path of a file
            that :func:`remat.torch.measure_costs` wrote.
        device: for the roofline: a name of :func:`remat.devices`, or
            "flops=19.5e12,bandwidth=2e12,launch=4e-6". None: "a100".
        executor: "boxed" traces the step, and runs the ops of eager mode in the plan's order. "eager" records
            a step without tracing: any model that trains in eager mode runs unchanged, and saved tensors are
            dropped and recomputed, or offloaded to the host (docs/eager.md). "auto", the default, is "boxed"
            if `fit` can trace the whole step as one graph, else "eager"; with `torch.compile` it is "boxed".
            "inductor" compiles both halves, keeps the values that the plan keeps, plans for the peak of
            Inductor's schedule, and measures the first step.
        host: host memory to which results are offloaded while ops run: "25GB/s" both ways, a
            :class:`remat.Host`, or "auto": with the measured bandwidth. On the CPU it is a file, on CUDA
            pinned memory.
        host_dir: the folder of that file; None: the folder of temporary files, if it is on a disk.
        cache_dir: a folder that keeps measured costs and plans for later processes.
        max_shapes: combinations of input shapes that keep their plans; beyond, the least recently used is
            dropped.
        dynamic: trace once for varying shapes: True from the first call on, None from the third shape on,
            False never. For `fit`; `torch.compile` has it as an argument.
        strict: raise an error, not a warning, for code that would run without a plan.
        group: a process group whose ranks train the same model: rank 0 plans, the others use its plan. All
            ranks must have the same shapes in the same sequence, since each plan is a collective call.
        margin: memory that budget="auto" leaves free: bytes, or a share of the device's memory.
        verify: the first step of each plan runs in eager mode too, on copies of its inputs and with the same
            gradients of the outputs; outputs, gradients, buffers and generators are compared bit for bit, and
            the peak with the budget. VerificationError names the first op whose result differs. Needs the
            memory of eager mode and four times the time of a step, once for each plan.
    """

    budget: int | str
    budget_on: Literal["peak", "reserved"] = "peak"
    arena: bool = False
    reserve: int | str = 0
    optimizer: torch.optim.Optimizer | None = None
    step: Literal["backward"] | None = None
    accumulate: bool | None = None
    outputs: Literal["held", "dropped"] | None = None
    calls: int = 1
    loss_workspace: int | str = 0
    planner: str = "auto"
    order: Literal["fixed", "free"] = "fixed"
    time_limit: float | None = None
    work_limit: int | None = None
    gap: str | None = None
    seed: int = 0
    threads: int = 1
    plan: remat.Plan | Sequence[int] | str | Path | None = None
    never_recompute: Patterns = ()
    always_keep: Patterns = ()
    routing: Literal["once", "recompute"] = "once"
    costs: str | Path = "measured"
    device: str | None = None
    executor: Literal["auto", "boxed", "eager", "inductor"] = "auto"
    host: remat.Host | float | str | None = None
    host_dir: str | Path | None = None
    cache_dir: str | Path | None = None
    max_shapes: int = 16
    dynamic: bool | None = False
    strict: bool = False
    group: Any = None
    margin: int | str = "5%"
    verify: bool = False

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any] | None) -> Options:
        """Raises BudgetError without a budget, UsageError for an unknown option or an invalid value."""
        given = dict(given or {})
        known = [f.name for f in fields(cls)]
        for name in given:
            if name not in known:
                close = difflib.get_close_matches(name, known, 1)
                hint = f"; did you mean {close[0]!r}?" if close else f"; known options: {', '.join(known)}"
                raise remat.UsageError(f"remat: unknown option {name!r}{hint}")
        if given.get("budget") is None:
            raise remat.BudgetError('remat: a budget is needed, for example options={"budget": "6GiB"}')
        options = cls(**given)
        # Invalid sizes are errors now, not after minutes of profiling; any peak serves to parse a percentage.
        if options.budget != "auto":
            _check_budget(options.budget)
        if options.margin != 0:
            remat.parse_bytes(options.margin, keep_all_peak=1 << 40)
        for name in ("reserve", "loss_workspace"):
            options.size(name)
        check_plain(vars(options))
        if options.gap is not None:
            parse_gap(options.gap)
        options._check_kinds()
        options._check_budget_on()
        options._check_arena()
        if options.order not in ("fixed", "free"):
            raise remat.UsageError(f'remat: order must be "fixed" or "free", not {options.order!r}')
        if options.executor not in ("auto", "boxed", "eager", "inductor"):
            raise remat.UsageError(
                f'remat: executor must be "auto", "boxed", "eager" or "inductor", not {options.executor!r}'
            )
        if options.executor == "eager" and options.planner != "auto":
            raise remat.UsageError('remat: planner= does not go with executor="eager", which has its own')
        if options.executor == "eager" and (needed := options.needs_a_trace()):
            raise remat.UsageError(f'remat: {needed} does not go with executor="eager"')
        if options.verify and options.executor == "inductor":
            raise remat.UsageError(
                'remat: verify compares bit for bit; executor="inductor" fuses ops and makes other bits'
            )
        if options.routing not in ("once", "recompute"):
            raise remat.UsageError(f'remat: routing must be "once" or "recompute", not {options.routing!r}')
        if options.outputs not in (None, "held", "dropped"):
            raise remat.UsageError(f'remat: outputs must be "held" or "dropped", not {options.outputs!r}')
        if options.plan is not None and not isinstance(options.plan, (str, Path, remat.Plan, list, tuple)):
            raise remat.UsageError(
                f"remat: plan must be a Plan, a path or a list of ops, not {type(options.plan).__name__}"
            )
        check_group(options.group)
        return options

    def _check_budget_on(self) -> None:
        if self.budget_on not in ("peak", "reserved"):
            raise remat.UsageError(f'remat: budget_on must be "peak" or "reserved", not {self.budget_on!r}')
        check_request({"budget_on": self.budget_on}, self.host is not None)
        if self.budget_on == "reserved" and not self.in_order:
            raise remat.UsageError(
                'remat: budget_on="reserved" needs executor="boxed", which keeps to the plan'
            )

    def _check_arena(self) -> None:
        if not isinstance(self.arena, bool):
            raise remat.UsageError(f"remat: arena must be True or False, not {self.arena!r}")
        if not self.arena:
            return
        if not self.in_order:
            raise remat.UsageError('remat: arena=True needs executor="boxed", which keeps to the plan')
        for name in ("host", "group"):
            if getattr(self, name) is not None:
                raise remat.UsageError(f"remat: arena=True and {name}= do not go together")
        if self.budget_on != "peak":
            raise remat.UsageError('remat: arena=True needs budget_on="peak"')

    def _check_kinds(self) -> None:
        optional_path = (str, Path, type(None))
        for name, kinds in (
            ("costs", (str, Path)),
            ("cache_dir", optional_path),
            ("host_dir", optional_path),
        ):
            value = getattr(self, name)
            if not isinstance(value, kinds):
                raise remat.UsageError(f"remat: {name} must be a path, not {type(value).__name__}")
        if self.device is not None and self.costs != "roofline":
            raise remat.UsageError('remat: device belongs to costs="roofline"')
        if self.device is not None:
            remat.parse_device(self.device)
        if self.step is not None:
            self._check_step()
        if self.host is not None or self.host_dir is not None:
            self._check_host()
        if self.optimizer is not None and not isinstance(self.optimizer, torch.optim.Optimizer):
            raise remat.UsageError(
                f"remat: optimizer must be a torch.optim.Optimizer, not {type(self.optimizer).__name__}"
            )

    def _check_host(self) -> None:
        if self.host is None:
            raise remat.UsageError('remat: host_dir belongs to host=, for example host="auto"')
        if self.host != "auto":
            as_host(self.host)
        if self.executor == "inductor":
            raise remat.UsageError('remat: host= needs executor="boxed" or "eager", which keep to the plan')
        if self.order != "fixed":
            raise remat.UsageError('remat: host= needs order="fixed": plans with copies keep to the order')
        if self.group is not None:
            raise remat.UsageError("remat: host= and group= do not go together: each rank has its own host")

    def _check_step(self) -> None:
        """Raises UsageError if the optimizer cannot step for one parameter after the other."""
        if self.step != "backward":
            raise remat.UsageError(f'remat: step must be "backward" or None, not {self.step!r}')
        optimizer = self.optimizer
        if optimizer is None:
            raise remat.UsageError('remat: step="backward" needs optimizer=: what is to step')
        kind = type(optimizer).__name__
        if not is_of_pytorch(optimizer):
            raise remat.UsageError(
                f'remat: step="backward": {kind} is not of torch.optim: its step may look at all parameters '
                "at once"
            )
        if isinstance(optimizer, torch.optim.LBFGS):
            raise remat.UsageError(f'remat: step="backward": {kind} looks at all parameters at once')
        if isinstance(optimizer, torch.optim.SparseAdam):
            raise remat.UsageError(f'remat: step="backward": {kind} needs sparse gradients')
        if any(group.get("differentiable") for group in optimizer.param_groups):
            raise remat.UsageError('remat: step="backward": the optimizer is differentiable')
        if not self.in_order:
            raise remat.UsageError('remat: step="backward" needs executor="boxed", which keeps to the plan')

    @property
    def in_order(self) -> bool:
        """True if the executor runs ops one by one in the plan's order."""
        return self.executor in ("auto", "boxed")

    def traced(self) -> Options:
        """The same for a traced step."""
        return replace(self, executor="boxed") if self.executor == "auto" else self

    def needs_a_trace(self) -> str:
        """The first option given that needs a traced step, as users write it; "" if there is none."""
        plain = Options(self.budget)
        names = ("budget_on", "arena", "step", "calls", "order", "plan", "costs", "group")
        for name in names:
            value = getattr(self, name)
            if value != getattr(plain, name):
                return f"{name}={value!r}" if isinstance(value, (str, int)) else f"{name}="
        return ""

    def cost_source(self, store: Store | None, runs: bool) -> Costs:
        """runs: the step will run here, not only be captured."""
        device = remat.parse_device(self.device or "a100") if self.costs == "roofline" else None
        return Costs(str(self.costs), device, store, workspaces=runs)

    @property
    def settled_host(self) -> remat.Host | None:
        """The host of settled options, in which it is no longer "auto"."""
        assert self.host != "auto"
        return None if self.host is None else as_host(self.host)

    @property
    def settled_gap(self) -> str | None:
        """The requested gap, or a default if nothing limits the search."""
        limited = self.time_limit is not None or self.work_limit is not None
        return self.gap if limited or self.gap is not None else _GAP

    def effort(self) -> Effort:
        """The effort as keywords of planning calls."""
        return {
            "order": self.order,
            "time_limit": self.time_limit,
            "work_limit": self.work_limit,
            "gap": self.settled_gap,
            "seed": self.seed,
            "threads": self.threads,
        }

    def patterns(self, name: str) -> list[str]:
        """`never_recompute` or `always_keep` as a list."""
        value = getattr(self, name)
        return [value] if isinstance(value, str) else list(value)

    def size(self, name: str) -> int:
        """`reserve` or `loss_workspace` in bytes."""
        value = getattr(self, name)
        try:
            return 0 if value == 0 else remat.parse_bytes(value)
        except remat.BudgetError as error:
            raise remat.BudgetError(f"remat: {name}: {str(error).removeprefix('budget').strip()}") from None
