"""A budget in bytes for ``jax.checkpoint``: the core plans what to save, XLA says whether it fits."""

from __future__ import annotations

try:
    import jax as _jax
except ImportError as error:
    raise ImportError("remat.jax needs JAX: pip install jax") from error
if _jax.__version_info__ < (0, 4, 35):
    raise ImportError(f"remat.jax needs JAX 0.4.35 or newer, found {_jax.__version__}: pip install -U jax")

from remat.jax.aim import Report as Report
from remat.jax.api import (
    BlockPolicy as BlockPolicy,
    Checkpointed as Checkpointed,
    SavedName as SavedName,
    capture as capture,
    checkpoint as checkpoint,
    policy as policy,
    sweep as sweep,
)
from remat.jax.devices import (
    COMPILER_OPTIONS as COMPILER_OPTIONS,
    Target as Target,
    compile_for as compile_for,
)
from remat.jax.regions import apply as apply
