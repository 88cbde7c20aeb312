"""Remat plans what to keep and what to compute again, so that an op graph runs within a byte budget.

Graphs go in, plans come out; the algorithms are in the C++ core. ``remat.torch`` runs plans in PyTorch and is
the only part that imports torch.
"""

from remat._core import (
    Device,
    Graph,
    Op,
    Plan,
    PlannerInfo,
    PlanResult,
    Simulation,
    SweepPoint,
    SweepResult,
    check,
    devices,
    format_bytes,
    load_graph,
    load_plan,
    parse_bytes,
    parse_device,
    planners,
    simulate,
)
from remat.errors import (
    BudgetError,
    GraphError,
    InfeasibleError,
    NoPlanError,
    PlanError,
    RematError,
    UsageError,
)
from remat.planning import plan, sweep

__version__ = "0.1.0"

__all__ = [
    "BudgetError",
    "Device",
    "Graph",
    "GraphError",
    "InfeasibleError",
    "NoPlanError",
    "Op",
    "Plan",
    "PlanError",
    "PlanResult",
    "PlannerInfo",
    "RematError",
    "Simulation",
    "SweepPoint",
    "SweepResult",
    "UsageError",
    "check",
    "devices",
    "format_bytes",
    "load_graph",
    "load_plan",
    "parse_bytes",
    "parse_device",
    "plan",
    "planners",
    "simulate",
    "sweep",
]
