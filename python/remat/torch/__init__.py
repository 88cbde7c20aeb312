"""Train PyTorch models within a byte budget.

- train: `fit` returns a `FittedModel`, whose attribute `remat` is a `ModelReport` of `PlanReport`;
  ``torch.compile(model, backend="remat", options={"budget": "6GiB"})`` does the same in one line
- `planned` (`PlannedSteps`): a context for loops that call several models before one backward
- `plan_graph` (`PlannedGraph`, `GraphOptions`): plans a graph of ATen ops that `make_fx` traced
- options of both: `Options`; for annotations `FitOptions` and `CompileOptions`
- activations offloaded to a host (`host=`): `Traffic` of a `PlanReport`, `HostMemoryError`
- ask before training: `sweep` (`Sweep`, `SweepRow`), `report` (`PeakReport`, `PeakRow`), `largest_batch`
  (`LargestBatch`, `BatchRow`)
- measure: `measure_peak`, `measure_costs`; `record` (`Recording`), a real step beside its plan
- for `torch.utils.checkpoint`: `checkpoint_policy` (`CheckpointPolicies`, `ExecutorReport`); for PyTorch's
  partitioner: `memory_budget_solver` (`MemoryBudgetSolver`); docs/executors.md
- check: `verify` (`Verification`), which compares planned steps with eager mode; `python -m
remat.torch.doctor`
- plan elsewhere: `capture`
- errors: those of `remat`, `UnsupportedModelError`, `VerificationError`

help(remat.torch.fit) and the like say more; so does docs/torch.md.
"""

from inspect import ismodule as _ismodule

# First: the imports below may fail with an untested release of PyTorch.
from .base import version as _version  # noqa: F401

# isort: split
# Names that are imported as themselves are public. There is no `__all__`: help() would print all classes.
from .api import (
    FittedModel as FittedModel,
    capture as capture,
    fit as fit,
)
from .base.errors import (
    HostMemoryError as HostMemoryError,
    UnsupportedModelError as UnsupportedModelError,
    VerificationError as VerificationError,
)
from .eager.together import (
    PlannedSteps as PlannedSteps,
)
from .executors.checkpoint import (
    checkpoint_policy as checkpoint_policy,
)
from .executors.partitioner import (
    MemoryBudgetSolver as MemoryBudgetSolver,
    memory_budget_solver as memory_budget_solver,
)
from .executors.policies import (
    CheckpointPolicies as CheckpointPolicies,
    ExecutorReport as ExecutorReport,
)
from .explore import (
    Sweep as Sweep,
    SweepRow as SweepRow,
    measure_costs as measure_costs,
    report as report,
    sweep as sweep,
)
from .graphs import (
    PlannedGraph as PlannedGraph,
    plan_graph as plan_graph,
)
from .largest import (
    largest_batch as largest_batch,
)
from .plan.batches import (
    BatchRow as BatchRow,
    LargestBatch as LargestBatch,
)
from .plan.model_report import (
    ModelReport as ModelReport,
)
from .plan.options import (
    CompileOptions as CompileOptions,
    FitOptions as FitOptions,
    GraphOptions as GraphOptions,
    Options as Options,
)
from .plan.peak import (
    PeakReport as PeakReport,
    PeakRow as PeakRow,
)
from .plan.report import (
    PlanReport as PlanReport,
    Traffic as Traffic,
)
from .planned import (
    planned as planned,
)
from .record import (
    Recording as Recording,
    record as record,
)
from .session.measure import (
    measure_peak as measure_peak,
)
from .verify import (
    Verification as Verification,
    verify as verify,
)

_PUBLIC = [n for n, value in globals().items() if not n.startswith("_") and not _ismodule(value)]


def __dir__() -> list[str]:
    return sorted(_PUBLIC)
