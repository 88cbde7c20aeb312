"""The calls that plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from remat import _core
from remat._core import Graph, Host, LayoutResult, Plan, PlanResult, SweepResult
from remat.errors import BudgetError, UsageError
from remat.signatures import keywords_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: The gap at which planning stops, as for the command line.
GAP = "0.01%"

Progress = Callable[[str, float, "int | None", "int | None", bool], object]


class Effort(TypedDict, total=False):
    """Keywords of all calls that plan: order mode, limits, seed and options; see :func:`plan`."""

    order: Literal["fixed", "free"]
    time_limit: float | str | None
    work_limit: int | None
    gap: float | str | None
    seed: int
    threads: int
    options: Mapping[str, Any] | None
    progress: Progress | None


#: Defaults of the keywords.
EFFORT_DEFAULTS = {"order": "fixed", "time_limit": 10.0, "gap": GAP, "seed": 0, "threads": 1}

_REQUESTED = frozenset(option.name for option in _core.request_options())

Asked = tuple[_core.Question, _core.Effort, "Progress | None"]


def asked(
    call: str,
    graph: Graph,
    budget: int | str | None,
    effort: Effort,
    host: Host | float | str | None = None,
    **options: object,
) -> Asked:
    """The request for the core, with defaults filled in. options: by name, as in the core's
    `request_options`. Raises TypeError for an unknown keyword, UsageError for an invalid value of an option,
    BudgetError for a number that is no amount of bytes."""
    require_graph(graph)
    refuse_share(budget)
    limits, progress = limits_of(call, effort)
    options |= {name: value for name, value in effort.items() if name in _REQUESTED}
    return _core.Question(graph, budget, host, options), limits, progress


def limits_of(call: str, effort: Effort) -> tuple[_core.Effort, Progress | None]:
    """The limits alone."""
    unknown = [name for name in effort if name not in Effort.__annotations__]
    if unknown:
        raise TypeError(f"{call}() got an unexpected keyword argument {unknown[0]!r}")
    limits = _core.Effort(
        effort.get("time_limit", 10.0),
        effort.get("work_limit"),
        gap_text(effort.get("gap", GAP)),
        effort.get("seed", 0),
        effort.get("threads", 1),
        dict(effort.get("options") or {}),
    )
    return limits, effort.get("progress")


def require_graph(graph: object) -> None:
    """Raises UsageError unless `graph` is a graph; a path to one is not."""
    if not isinstance(graph, Graph):
        kind = type(graph).__name__
        raise UsageError(
            f"the graph is of type {kind}: it has to be a remat.Graph; load_graph() reads a file"
        )


def refuse_share(budget: object) -> None:
    """Raises BudgetError for a fraction such as 0.6 in place of a percentage."""
    if isinstance(budget, float) and 0 < budget <= 1:
        raise BudgetError(
            f'budget {budget} is not a whole number of bytes: did you mean "{100 * budget:g}%"?'
        )


def name_of(planner: object) -> str:
    """The name of a planner. Raises UsageError if it is not a str."""
    if isinstance(planner, str):
        return planner
    raise UsageError(f'planner is of type {type(planner).__name__}: it has to be a name, such as "auto"')


def gap_text(gap: object) -> str | None:
    """A gap as text for the core. Raises UsageError if it is neither a str nor a number."""
    if gap is None or isinstance(gap, str):
        return gap
    if isinstance(gap, bool) or not isinstance(gap, (int, float)):
        raise UsageError(f"gap is neither a share nor a text, but {gap!r}")
    return f"{100 * gap:.10f}%"


@keywords_of(Effort, defaults=EFFORT_DEFAULTS)
def plan(
    graph: Graph,
    budget: int | str | None = None,
    planner: str = "auto",
    *,
    objective: Literal["time", "peak"] = "time",
    host: Host | float | str | None = None,
    check: bool = False,
    executor: Literal["remat", "partitioner", "checkpoint"] = "remat",
    budget_on: Literal["peak", "arena", "reserved"] = "peak",
    alignment: int = 64,
    allocator: str = "cuda",
    **effort: Unpack[Effort],
) -> PlanResult:
    """Looks for the fastest plan whose peak is within the budget.

    Args:
        graph: what to plan.
        budget: bytes, ``"6GiB"``, ``"800MB"`` or ``"75%"`` of ``graph.keep_all_peak``; graph
            inputs included. None: no budget.
        planner: name of one of :func:`remat.planners`.
        objective: ``"time"``: least duration within the budget; ``"peak"``: least peak, then least duration,
            which has to be within the budget if there is one.
        host: host memory that values may be offloaded to while ops run, or its bandwidth both ways
            (``"25GB/s"``): each value is kept, recomputed or offloaded. Only with a budget on the peak.
        check: raise an error if no plan within the budget was found, instead of returning such a result.
        executor: what runs the plan (docs/executors.md): ``"remat"``: any plan; ``"partitioner"``: PyTorch's
            partitioner, which takes a set of saved results; ``"checkpoint"``: ``torch.utils.checkpoint``
            around each numbered module. Bounds and proofs are over the executor's plans; `full` of the result
            is the best full plan. Only with order "fixed", objective "time" and a budget on the peak; with
            a host only ``"partitioner"``.
        budget_on: what the budget bounds: ``"peak"``: live bytes; ``"arena"``: one allocation that holds each
            buffer at a fixed offset, and the result has its `layout`; ``"reserved"``: memory that PyTorch's
            allocator reserves on the device (docs/allocator.md), and the result has `allocator_peaks`.
        alignment: for ``budget_on="arena"``: every offset is a multiple of it.
        allocator: for ``budget_on="reserved"``: ``"cuda"``, ``"cuda-expandable"`` or ``"exact"``, with
            options as of :class:`CachingAllocator`.

    Keyword Args:
        order: ``"fixed"`` (the default): first runs follow the graph's order; ``"free"``: any valid sequence.
        time_limit: seconds of wall clock, 10.0 by default, or None; also as a text: ``"500ms"``, ``"2m"``.
        work_limit: deterministic units of work, None by default. With a work limit, no time limit and a seed,
            the plan is the same on every machine.
        gap: stop once the plan is proved to be this close to optimal (`stopped_by` is then "gap");
            ``"0.01%"`` by default, as a number 0.0001. None or 0: stop only at the limits.
        seed: of the planner's random numbers, 0 by default.
        threads: number of threads of the planner, 1 by default.
        options: of the planner itself, by name.
        progress: called on the calling thread for every improved plan, as ``progress(planner, seconds, peak,
            duration, within_budget)``; an exception stops the planner and is re-raised.

    Within one process, more memory never gives a slower plan: planners that improve plans ("auto" and
    "search") start from plans of earlier calls for the same graph and order, unless there is a work limit.

    The planner runs without the GIL. Ctrl-C stops it and returns the best plan so far, with
    ``stopped_by == "interrupted"``; a second Ctrl-C before it has stopped raises KeyboardInterrupt.

    Raises:
        BudgetError: a budget that is not a positive amount of bytes.
        UsageError: an unknown planner, executor, allocator or option, or a value that it cannot take.
        GraphError: the graph lacks something that the executor needs.
        InfeasibleError: only with `check`: proved that no plan fits.
        NoPlanError: only with `check`: nothing found within the limits.
    """
    question, limits, progress = asked(
        "plan",
        graph,
        budget,
        effort,
        host,
        objective=objective,
        budget_on=budget_on,
        alignment=alignment,
        allocator=allocator,
        executor=executor,
    )
    result = _core.plan(question, name_of(planner), limits, progress)
    if check:
        result.raise_if_no_plan()
    return result


@keywords_of(Effort, defaults=EFFORT_DEFAULTS)
def sweep(
    graph: Graph,
    points: int = 20,
    planner: str = "auto",
    *,
    host: Host | float | str | None = None,
    **effort: Unpack[Effort],
) -> SweepResult:
    """Overhead against memory, from the keep-all peak down to the smallest peak found, in one run.

    Plans are shared between the budgets, so overhead never falls as the budget falls. The limits hold for the
    whole sweep; when they are reached, the points known so far are returned.

    Args:
        graph: what to plan.
        points: how many budgets, 2 to 1000, evenly spaced.
        host: as in :func:`plan`. Budgets then go down to the floor of the ops, and budgets without a plan are
            left out.

    Other keywords are those of :func:`plan`.

    Raises:
        UsageError: an unknown planner or option, or a number of points outside [2, 1000].
    """
    question, limits, progress = asked("sweep", graph, None, effort, host=host)
    return _core.sweep(question, points, name_of(planner), limits, progress)


class LayoutEffort(TypedDict, total=False):
    """Keywords of layout calls; see :func:`layout`."""

    time_limit: float | str | None
    work_limit: int | None
    seed: int
    progress: Progress | None


def layout_effort(call: str, effort: LayoutEffort) -> tuple[_core.Effort, Progress | None]:
    """Limits with defaults filled in. Raises TypeError for an unknown keyword."""
    unknown = [name for name in effort if name not in LayoutEffort.__annotations__]
    if unknown:
        raise TypeError(f"{call}() got an unexpected keyword argument {unknown[0]!r}")
    limits = _core.Effort(
        effort.get("time_limit", 10.0), effort.get("work_limit"), None, effort.get("seed", 0), 1, {}
    )
    return limits, effort.get("progress")


@keywords_of(LayoutEffort, defaults=EFFORT_DEFAULTS)
def layout(
    graph: Graph,
    plan: Plan,
    capacity: int | str | None = None,
    *,
    alignment: int = 64,
    **effort: Unpack[LayoutEffort],
) -> LayoutResult:
    """Gives every instance and workspace of a plan an offset in one allocation.

    Buffers alive at the same time do not overlap. The arena is this allocation (the pool) plus the graph's
    inputs, which are not laid out.

    Args:
        graph: what the plan is for.
        plan: its steps are checked first, as a plan of free order.
        capacity: bytes that the arena must not exceed, graph inputs included: a number, ``"6GiB"`` or
            ``"75%"`` of ``graph.keep_all_peak``; any layout within it is an answer. None: the smallest arena.
        alignment: every offset is a multiple of it, and sizes are rounded up to it.

    Keyword Args:
        time_limit: seconds of wall clock, 10.0 by default, or None.
        work_limit: deterministic units of work, None by default; alone it makes the same layout on every
            machine.
        seed: of the search's random numbers, 0 by default.
        progress: called for every improved layout, as in :func:`plan`, with the pool in place of the peak.

    A first layout is found within milliseconds. Runs without the GIL; Ctrl-C returns the best layout so far.

    Raises:
        PlanError: the plan breaks a rule.
        BudgetError: a capacity that is not a positive amount of bytes.
        UsageError: an alignment below 1, or a limit that is not 0 or more.
    """
    if not isinstance(plan, Plan):
        raise UsageError(f"the plan is of type {type(plan).__name__}: it has to be a remat.Plan")
    require_graph(graph)
    limits, progress = layout_effort("layout", effort)
    return _core.layout(graph, plan, capacity, alignment, limits, progress)


@keywords_of(LayoutEffort, defaults=EFFORT_DEFAULTS)
def layout_buffers(
    lower: Iterable[int],
    upper: Iterable[int],
    size: Iterable[int],
    capacity: int | str | None = None,
    *,
    alignment: int = 1,
    **effort: Unpack[LayoutEffort],
) -> LayoutResult:
    """The same for any buffers: buffer ``i`` needs ``size[i]`` bytes during ``[lower[i], upper[i])``.

    Args:
        lower: starts of the live ranges, integers of any unit; shape (n,), as are the next two.
        upper: ends of the live ranges, exclusive, each after its start.
        size: bytes.

    Other arguments are those of :func:`layout`; `capacity` cannot be in percent.

    Raises:
        UsageError: arrays of different lengths.
        RematError: a live range that ends before it starts, or sizes whose sum does not fit into 62 bits.
    """
    limits, progress = layout_effort("layout_buffers", effort)
    return _core.layout_buffers(lower, upper, size, capacity, alignment, limits, progress)
