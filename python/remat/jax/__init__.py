"""A budget in bytes for ``jax.checkpoint``: the core plans what to save, XLA says whether it fits."""

from __future__ import annotations

try:
    import jax as _jax  # noqa: F401
except ImportError as error:
    raise ImportError("remat.jax needs JAX: pip install jax") from error

from remat.jax.api import (
    COMPILER_OPTIONS as COMPILER_OPTIONS,
    Checkpointed as Checkpointed,
    Report as Report,
    checkpoint as checkpoint,
)
