"""Graphs of models by name, tables of buffers, and the largest model that fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from remat import _core
from remat._core import Graph, Plan
from remat.errors import UsageError
from remat.planning import EFFORT_DEFAULTS, Effort, limits_of
from remat.signatures import keywords_of, signed
from remat.tables import frame_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

_generate = signed(_core.generate, __name__)


def generate(kind: str, **settings: Any) -> Graph:
    """Generate a graph by name, as ``remat generate`` does (docs/generate.md).

    Args:
        kind: "chain", "random_layered", "random_dag", or a model whose training step it is: "gpt", "resnet",
            "unet" and the others that ``remat generate --help`` lists.
        settings: those of the command line, with ``_`` for ``-``: ``generate("gpt", batch=4,
            optimizer="adam", durations="roofline", device="a100")``, ``generate("chain", length=8)``. Flags
            are True or False: `inference` of a chain, `random_recompute` of models.

    Raises:
        UsageError: an unknown kind, a setting that it does not have (those that it has are named), or a value
            that the setting cannot take.
    """
    return _generate(kind, settings)


def generate_buffers(**settings: Any) -> tuple[list[int], list[int], list[int]]:
    """Generate a table of buffers for :func:`layout_buffers`, as ``remat generate buffers`` does: many short
    live ranges, few long ones, in phases (docs/generate.md).

    Args:
        settings: those of the command line, with ``_`` for ``-``: ``generate_buffers(count=62_000, seed=2)``.

    Returns:
        Starts and (exclusive) ends of the live ranges, and sizes in bytes; `count` entries each, sorted by
        start.

    Raises:
        UsageError: a setting that does not exist, or a value that it cannot take.
    """
    return _core.generate_buffers(settings)


class ModelSettings(TypedDict, total=False):
    """Settings of a model; each has some of the sizes. See docs/generate.md."""

    variant: str
    batch: int
    resolution: int
    sequence: int
    depth: int
    width: int
    heads: int
    classes: int
    vocabulary: int
    dropout: float
    granularity: Literal["op", "layer", "primitive"]
    optimizer: Literal["none", "sgd", "momentum", "adam"]
    dtype: Literal["fp32", "bf16"]
    durations: Literal["unit", "roofline"]
    device: str
    random_recompute: bool


class _Keywords(ModelSettings, Effort, total=False):
    pass


@dataclass(frozen=True)
class SizeRow:
    """The result for one size. Amounts are in bytes, durations in the graph's time unit; None without a plan.

    Attributes:
        status: as in :class:`PlanResult`.
        overhead: extra duration as a fraction of running every op once.
        throughput: size by duration.
        graph: the training step of this size.
        plan: its plan within the budget.
    """

    size: int
    status: str
    peak: int | None
    keep_all_peak: int
    peak_lower_bound: int
    overhead: float | None
    duration: int | None
    throughput: float | None
    graph: Graph = field(repr=False)
    plan: Plan | None = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """All fields except graph and plan, by name."""
        return {n: getattr(self, n) for n in self.__dataclass_fields__ if n not in ("graph", "plan")}


@dataclass(frozen=True)
class LargestResult:
    """The result of :func:`largest`.

    Attributes:
        largest: the largest size that has a plan within the budget; None if none was found.
        impossible: the least size above it that is proved to have none, or None.
        proved: no size above `largest` fits.
        best: among `rows`, the size with the highest throughput.
        stopped_by: "time", "work" or "interrupted", or None if the search finished.
        seconds: wall clock of the search.
        rows: results of some sizes, ascending.
    """

    model: str
    over: str
    budget: int
    largest: int | None
    impossible: int | None
    proved: bool
    best: int | None
    stopped_by: str | None
    seconds: float
    rows: list[SizeRow] = field(repr=False)

    def __iter__(self) -> Iterator[SizeRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def to_pandas(self) -> Any:
        """A pandas DataFrame with a line for each row. Raises RematError where pandas is not installed."""
        return frame_of([row.to_dict() for row in self.rows])


@keywords_of(ModelSettings, Effort, defaults=EFFORT_DEFAULTS)
def largest(
    model: str,
    budget: int | str,
    *,
    over: Literal["batch", "sequence", "resolution", "depth", "width"] = "batch",
    least: int = 1,
    most: int = _core.MOST_SIZE,
    multiple: int = 1,
    rows: int = 8,
    planner: str = "auto",
    **keywords: Unpack[_Keywords],
) -> LargestResult:
    """Find the largest batch, or other size, of a model by name that fits into a budget, as ``remat largest``
    does. :func:`remat.torch.largest_batch` is the same for a PyTorch model.

    Args:
        model: one of the models of :func:`generate`.
        budget: bytes or ``"6GiB"``, not a percentage, which would differ for each size.
        over: the name of the size.
        least, most: range of the search, both included.
        multiple: only multiples of it.
        rows: about how many sizes get a good plan in the table.
        planner: name of one of :func:`planners`.

    Settings of the model are those of :func:`generate`, limits and other keywords those of :func:`plan`.

    Raises:
        BudgetError: a budget that is not a positive amount of bytes.
        UsageError: an unknown model, setting or planner, or a size that the model does not have.
    """
    settings = {name: value for name, value in keywords.items() if name in ModelSettings.__annotations__}
    effort: Any = {name: value for name, value in keywords.items() if name not in settings}
    limits, progress = limits_of("largest", effort)
    if isinstance(budget, str) and budget.rstrip().endswith("%"):
        raise UsageError("a budget in percent would be another one for each size")
    size = _core.parse_bytes(budget)
    order = effort.get("order", "fixed")
    found = _core.largest_of_model(
        model, settings, over, size, planner, order, (least, most), multiple, rows, limits, progress
    )
    return LargestResult(
        model=model,
        over=over,
        budget=size,
        largest=found.largest,
        impossible=found.impossible,
        proved=found.largest is not None and found.impossible == found.largest + multiple,
        best=found.best,
        stopped_by=found.stopped_by,
        seconds=found.seconds,
        rows=[_row(row) for row in found.rows],
    )


def _row(row: _core.SizeRow) -> SizeRow:
    graph = row.graphs[0]
    plan = row.plans[0] if row.plans else None
    return SizeRow(
        size=row.size,
        status=row.status,
        peak=row.peak,
        keep_all_peak=row.keep_all_peak,
        peak_lower_bound=row.peak_lower_bound,
        overhead=None if plan is None else plan.overhead,
        duration=row.duration,
        throughput=row.size / row.duration if row.duration else None,
        graph=graph,
        plan=plan,
    )
