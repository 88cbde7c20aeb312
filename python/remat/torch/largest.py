"""The largest batch, or length, that fits into a budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

import remat
from remat import _core
from remat.planning import Effort, limits_of

from .base.errors import UnsupportedModelError, errors_stand_alone
from .base.given import check_call, check_callable, check_loss, check_model, has_memory
from .base.origins import category_of_input
from .base.progress import ProgressLine, progress_line
from .base.turns import one_at_a_time
from .eager.sizes import RecordedSizes
from .plan.batches import BatchRow, LargestBatch, nothing_fits
from .plan.options import FitOptions, Options
from .session.captured import captured_steps
from .session.loss import Loss
from .steps import may_be_recorded, must_be_recorded, say_recorded
from .trace.fake import with_fake_tensors
from .trace.gradients import KINDS

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Default seconds of all planning.
_PLANNING_S = 20.0
# Shares for each search for the answer, and for each table.
_SEARCH_SHARE, _TABLE_SHARE = 0.25, 0.5
# Share for each plan of a recorded step.
_RECORDED_SHARE = 0.05
# Most searches, each of which ends at sizes to trace.
_ROUNDS = 24
# Most sizes traced for their throughput: with scattered times, each trace may suggest another.
_BESTS = 3
# Seconds of the search for the least budget, for messages.
_LEAST_S = 1.0


@errors_stand_alone
def largest_batch(
    model: torch.nn.Module,
    make_inputs: Callable[[int], Any],
    budget: int | str,
    *,
    loss: Loss | None = None,
    least: int = 1,
    most: int | None = None,
    multiple: int = 1,
    **options: Unpack[FitOptions],
) -> LargestBatch:
    """Find the largest batch (or length, or resolution) whose training step has a plan within a budget, and
    the one with the best throughput.

    Args:
        make_inputs: from a size to the sample inputs of :func:`fit`; meta tensors suffice. With those, or a
            model of meta tensors, nothing runs, and `costs` defaults to a roofline.
        budget: bytes of the whole step, or "auto", not a percentage, which would differ for each size.
        least: the smallest size to try, 1 or more.
        most: the largest; None: 2**20.
        multiple: only multiples of it are tried.
        options: of :func:`fit`; `time_limit` is that of all planning, 20 s by default.

    The other arguments are those of :func:`fit`. The step is traced at a few sizes. If the graph keeps its
    structure, sizes in between are interpolated, exactly for bytes that are affine or quadratic in the size.
    The largest size, the next one and the best are traced, so the answer does not rely on interpolation: a
    plan for `largest`, confirmed by the simulator, and a bound for `impossible`. Assumes that no size above
    one that does not fit does (the next two are checked). If the step is not one graph, or with
    executor="eager", each size tried is recorded.

    Raises:
        InfeasibleError: it is proved that `least` does not fit.
        NoPlanError: no plan was found for it, nothing is proved.
        BudgetError: the budget is a percentage.
        UsageError: sizes out of range; a step whose memory does not grow with the size.
        UnsupportedModelError: as in :func:`capture`.
    """
    if isinstance(budget, str) and budget.strip().endswith("%"):
        raise remat.BudgetError(
            f"largest_batch: a budget of {budget} would be a share of each size's own peak: give bytes"
        )
    for name in ("host", "plan", "group"):
        if options.get(name) is not None:
            raise remat.UsageError(f"largest_batch: {name}= is not taken here; fit takes it")
    if options.get("budget_on", "peak") != "peak":
        raise remat.UsageError('largest_batch: budget_on="reserved" is not taken here; fit takes it')
    if options.get("arena", False):
        raise remat.UsageError("largest_batch: arena=True is not taken here; fit takes it")
    for name, value in (("least", least), ("most", most), ("multiple", multiple)):
        if not isinstance(value, int | None) or isinstance(value, bool):
            raise remat.UsageError(f"largest_batch: {name} must be an integer, not {value!r}")
    check_model(model)
    check_callable("make_inputs", make_inputs)
    with one_at_a_time(), progress_line() as progress:
        sizes = _Sizes(model, make_inputs, budget, loss, options)
        last = _core.MOST_SIZE if most is None else most
        found = _largest(sizes, (least, last), multiple, progress)
        if most is None and found.largest + multiple > last:
            raise remat.UsageError(
                f"largest_batch: a step of size {found.largest} still fits: do the inputs grow with the size?"
            )
        progress.set_result(found.summary())
    return found


def _largest(sizes: _Sizes, within: tuple[int, int], multiple: int, progress: ProgressLine) -> LargestBatch:
    """By tracing if the step is one graph, else by recording."""
    asked, (least, most) = Options.from_mapping(sizes.options), within
    inputs = sizes.make_inputs(max(1, least, multiple))
    check_call(sizes.model, inputs)
    check_loss(sizes.loss)
    recorded = must_be_recorded(sizes.model, asked, inputs)
    if not recorded:
        may_record = may_be_recorded(sizes.model, asked, inputs)
        try:
            return _Search(sizes.of_one_graph(may_record), least, most, multiple, progress).found()
        except UnsupportedModelError as error:
            if not may_record:
                raise
            # Its frames hold the step.
            why = error.with_traceback(None)
    seconds = _RECORDED_SHARE * (asked.time_limit or _PLANNING_S)
    found = RecordedSizes(sizes.model, sizes.make_inputs, sizes.loss, sizes.options, seconds)
    batch = found.largest(least, most, multiple)
    if not recorded:
        say_recorded(why)
    return batch


def _is_meta(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.is_meta


class _Sizes:
    """The step at the sizes where it was traced.

    families: one for each kind of step, first the one that makes its gradients.
    settled: the options, once something was traced.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        make_inputs: Callable[[int], Any],
        budget: int | str,
        loss: Loss | None,
        options: FitOptions,
    ) -> None:
        self.model, self.make_inputs, self.loss = model, make_inputs, loss
        self.options = {"budget": budget, **options}
        self._one_graph = False
        self.families: list[_core.GraphFamily] = []
        self.settled: Options | None = None

    def of_one_graph(self, only: bool) -> _Sizes:
        """only: give up as soon as the step is more than one graph."""
        self._one_graph = only
        return self

    def trace(self, size: int) -> None:
        model, inputs, options = self.model, self.make_inputs(size), self.options
        if has_memory(model) and any(map(_is_meta, tree_leaves(inputs))):
            model, inputs = with_fake_tensors(model, inputs)
        if not has_memory(model):
            options = {"costs": "roofline", **options}
        steps = captured_steps(model, inputs, self.loss, options, one_graph=self._one_graph)
        if not self.families:
            self.families = [_core.GraphFamily() for _ in steps]
            self.settled = steps[0].settled()
        if len(steps) != len(self.families):
            raise remat.UsageError(
                f"largest_batch: at size {size} there are {len(steps)} kinds of steps, at others "
                f"{len(self.families)}: accumulate=False or True asks for one"
            )
        for family, step in zip(self.families, steps, strict=True):
            family.add(size, step.graph)

    def knows(self, size: int) -> bool:
        return bool(self.families) and self.families[0].knows(size)

    @property
    def options_in_bytes(self) -> Options:
        assert self.settled is not None
        return self.settled


def _doubled(graph: remat.Graph) -> remat.Graph:
    """The graph with all sizes doubled that grow with the batch, judged by names and roles."""
    described = graph.to_dict()
    fixed = {v for v in graph.inputs if category_of_input(graph.value_name(v))[0] != "inputs"}
    for op in described["ops"]:
        if op.get("phase") == "backward":
            fixed |= set(graph.outputs).intersection(op["outputs"])
        if op.get("kind") in KINDS:
            fixed |= set(op["inputs"])
    for index, value in enumerate(described["values"]):
        if index not in fixed:
            value["bytes"] *= 2
    return remat.Graph.from_dict(described)


def _least_known(graph: remat.Graph) -> int:
    """The least budget that works, by a short search."""
    found = remat.plan(graph, objective="peak", time_limit=_LEAST_S).best_peak
    return min(graph.keep_all_peak, found or graph.keep_all_peak)


class _Search:
    """Searches and traces in turn, until the answer is about traced sizes."""

    def __init__(self, sizes: _Sizes, least: int, most: int, multiple: int, progress: ProgressLine) -> None:
        self.sizes, self.range, self.multiple, self.progress = sizes, (least, most), multiple, progress

    def found(self) -> LargestBatch:
        first, second = self._first_sizes()
        self.sizes.trace(first)
        if second != first:
            self.sizes.trace(self._likely(first) or second)
        ends = self._settle(rows=0, guess=None)
        if ends.largest is None:
            raise self._nothing_fits(ends)
        return self._as_batch(self._settle(rows=8, guess=ends.largest))

    def _first_sizes(self) -> tuple[int, int]:
        """Two sizes, or one twice. Avoids a batch of one, which is often traced differently."""
        (least, most), multiple = self.range, self.multiple
        first = -(-max(least, 1) // multiple) * multiple
        if first == 1 and most >= 2:
            first = 2
        return first, max(first, min(2 * first, most // multiple * multiple))

    def _likely(self, first: int) -> int | None:
        """The answer if all but parameters, buffers and gradients grew with the size: saves a trace if it is
        right.
        """
        guessed = [_core.GraphFamily() for _ in self.sizes.families]
        for family, known in zip(guessed, self.sizes.families, strict=True):
            graph = known.at(first)
            assert graph is not None
            family.add(first, graph)
            family.add(min(2 * first, _core.MOST_SIZE), _doubled(graph))
        found = self._find(0, None, guessed, seconds=1.0).largest
        is_answer = found is not None and found != first and found + self.multiple <= self.range[1]
        return found if is_answer else None

    def _settle(self, rows: int, guess: int | None) -> _core.LargestResult:
        """Search until the answer is about traced sizes, or the rounds are used up."""
        found, bests = self._find(rows, guess), set[int]()
        for _ in range(_ROUNDS):
            if found.missing is not None:
                wanted = [found.missing]
            elif found.largest is None:
                wanted = [row.size for row in found.rows]
            else:
                after = found.largest + self.multiple
                wanted = [found.largest, *([after] if after <= self.range[1] else [])]
                if rows and found.best is not None and len(bests) < _BESTS:
                    bests.add(found.best)
                    wanted.append(found.best)
                guess = found.largest
            wanted = [size for size in dict.fromkeys(wanted) if not self.sizes.knows(size)]
            if not wanted:
                break
            for size in wanted:
                self.sizes.trace(size)
            found = self._find(rows, guess)
        return found

    def _find(
        self,
        rows: int,
        guess: int | None,
        families: list[_core.GraphFamily] | None = None,
        seconds: float | None = None,
    ) -> _core.LargestResult:
        """families: in place of what was traced; seconds: in place of a share of the limit."""
        options = self.sizes.options_in_bytes
        effort: Effort = {**options.effort(), "progress": self.progress.better_plan}
        limit = options.time_limit
        if options.work_limit is None:
            share = _TABLE_SHARE if rows else _SEARCH_SHARE
            limit = seconds or share * (limit or _PLANNING_S)
            effort["time_limit"] = limit
        self.progress.planning(limit)
        limits, progress = limits_of("largest_batch", effort)
        return _core.find_largest(
            families or self.sizes.families,
            max(1, self._budget() - options.size("reserve")),
            options.planner,
            options.order,
            self.range,
            self.multiple,
            guess,
            rows,
            limits,
            progress,
        )

    def _budget(self) -> int:
        return remat.parse_bytes(self.sizes.options_in_bytes.budget)

    def _as_batch(self, found: _core.LargestResult) -> LargestBatch:
        assert found.largest is not None
        rows = [self._row(row) for row in found.rows]
        fitting = [row for row in rows if row.status == "fits"]
        return LargestBatch(
            budget=self._budget(),
            largest=found.largest,
            impossible=found.impossible,
            best=max(fitting, key=lambda row: (row.traced, row.throughput or 0.0)).size,
            rows=rows,
            multiple=self.multiple,
            most=self.range[1],
        )

    def _row(self, row: _core.SizeRow) -> BatchRow:
        reserve, graph = self.sizes.options_in_bytes.size("reserve"), row.graphs[0]
        seconds = None if row.duration is None else row.duration / 1e9
        fits = row.peak is not None
        return BatchRow(
            size=row.size,
            status="fits" if fits else "infeasible" if row.status == "infeasible" else "unknown",
            keep_all_peak=row.keep_all_peak + reserve,
            floor=row.peak_lower_bound + reserve,
            peak=None if row.peak is None else row.peak + reserve,
            overhead=None if row.duration is None else row.duration / max(1, graph.base_duration) - 1,
            seconds=seconds,
            throughput=None if seconds is None else row.size / max(seconds, 1e-9),
            traced=self.sizes.knows(row.size),
            plan=row.plans[0] if fits else None,
            graph=graph,
        )

    def _nothing_fits(self, found: _core.LargestResult) -> remat.NoPlanError:
        row, reserve = found.rows[0], self.sizes.options_in_bytes.size("reserve")
        known = max(_least_known(graph) for graph in row.graphs) + reserve
        proved = row.status == "infeasible"
        return nothing_fits(self._budget(), row.size, proved, row.peak_lower_bound + reserve, known)
