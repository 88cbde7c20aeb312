"""Remat plans which activations to keep and which to recompute, so that an op graph runs within a byte
budget.

Graphs go in, plans come out; the algorithms are in the C++ core. ``remat.torch`` runs plans in PyTorch and is
the only part that imports torch.

- to plan: `plan`, `sweep`, `planners`; they return `PlanResult` (with a log of `LogEntry`), `SweepResult`,
  `PlannerInfo`
- planners side by side: `compare`, which returns a `Comparison` of `ComparisonRow`; one of your own:
  `register_planner`, a function of a `PlannerProblem`
- graphs: `Graph`, `Op`, `Value`, `load_graph`; of models by name: `generate`; of other programs: `convert`;
  devices for rooflines: `devices`, `parse_device`, `Device`
- the largest size that fits: `largest`, which returns a `LargestResult` of `SizeRow`
- plans: `Plan`, `load_plan`, `check`, `simulate`; host memory that they copy to: `Host`;
  back into an ONNX model: `apply`
- pipelines: `pipeline`, which returns a `PipelineResult` of `PipelineStage`; `checkpoint_file`
- one arena for all buffers of a plan: `layout`, `check_layout`, `load_layout`, `Layout`, `LayoutBuffer`,
  `LayoutResult`; for any buffers: `layout_buffers`; to measure on: `generate_buffers`
- CUDA memory that plans and requests take: `simulate_allocator`, which returns `AllocatorPeaks`, and
  `CachingAllocator`
- amounts of memory: `parse_bytes`, `format_bytes`
- to view: `report`, which returns a `Report`
- errors: `RematError`, and below it `GraphError`, `PlanError`, `UsageError`, `BudgetError`, `NoPlanError`,
  `InfeasibleError`

help(remat.plan) and the like say more; so do the pages of docs/, which `make docs` builds.
"""

from inspect import isclass as _isclass, ismodule as _ismodule

# Names that are imported as themselves are public. There is no `__all__`: help() would print all classes.
from remat import _core
from remat._core import (
    AllocatorPeaks as AllocatorPeaks,
    CachingAllocator as CachingAllocator,
    Device as Device,
    Graph as Graph,
    Host as Host,
    Layout as Layout,
    LayoutBuffer as LayoutBuffer,
    LayoutResult as LayoutResult,
    LogEntry as LogEntry,
    Op as Op,
    OptionInfo as OptionInfo,
    PipelineResult as PipelineResult,
    PipelineStage as PipelineStage,
    Plan as Plan,
    PlannerInfo as PlannerInfo,
    PlannerProblem as PlannerProblem,
    PlanResult as PlanResult,
    Report as Report,
    Simulation as Simulation,
    SweepPoint as SweepPoint,
    SweepResult as SweepResult,
    Value as Value,
)
from remat.applying import apply as apply
from remat.calls import (
    check as check,
    check_layout as check_layout,
    devices as devices,
    format_bytes as format_bytes,
    load_graph as load_graph,
    load_layout as load_layout,
    load_plan as load_plan,
    parse_bytes as parse_bytes,
    parse_device as parse_device,
    planners as planners,
    simulate as simulate,
    simulate_allocator as simulate_allocator,
)
from remat.comparing import Comparison as Comparison, ComparisonRow as ComparisonRow, compare as compare
from remat.converters import convert as convert
from remat.errors import (
    BudgetError as BudgetError,
    GraphError as GraphError,
    InfeasibleError as InfeasibleError,
    NoPlanError as NoPlanError,
    PlanError as PlanError,
    RematError as RematError,
    UsageError as UsageError,
)
from remat.pipelines import checkpoint_file as checkpoint_file, pipeline as pipeline
from remat.planning import (
    layout as layout,
    layout_buffers as layout_buffers,
    plan as plan,
    sweep as sweep,
)
from remat.registering import register_planner as register_planner
from remat.reports import report as report
from remat.signatures import sign_class as _sign_class
from remat.sizes import (
    LargestResult as LargestResult,
    SizeRow as SizeRow,
    generate as generate,
    generate_buffers as generate_buffers,
    largest as largest,
)

__version__ = "0.1.0"

for _kind in [value for value in globals().values() if _isclass(value)]:
    if _kind.__module__ == _core.__name__:
        _sign_class(_kind)

_PUBLIC = [n for n, value in globals().items() if not n.startswith("_") and not _ismodule(value)]


def __dir__() -> list[str]:
    return sorted(_PUBLIC)
