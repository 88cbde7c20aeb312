"""Random generator states: saved at the first run of a random op, restored for its recomputation."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from ..base.devices import runtime_of
from ..trace.kernels import kernel_of

# All threads share the generator: no other draw may come between saving its state and the op's draw.
_drawing = threading.Lock()


def run_and_save_rng(
    target: Callable[..., Any], device: str, /, *args: Any, **kwargs: Any
) -> tuple[torch.Tensor, Any]:
    """Run a random op; returns the generator's state before it as well."""
    with _drawing:
        return _run_and_save(target, device, *args, **kwargs)


def _run_and_save(
    target: Callable[..., Any], device: str, /, *args: Any, **kwargs: Any
) -> tuple[torch.Tensor, Any]:
    state = runtime_of(torch.device(device)).generator_state()
    return state, kernel_of(target)(*args, **kwargs)


def run_with_rng(
    state: torch.Tensor, target: Callable[..., Any], device: str, /, *args: Any, **kwargs: Any
) -> Any:
    """Run a random op from a saved state; the generator's own state does not change."""
    with _drawing:
        return _run_from(state, target, device, *args, **kwargs)


def _run_from(
    state: torch.Tensor, target: Callable[..., Any], device: str, /, *args: Any, **kwargs: Any
) -> Any:
    runtime = runtime_of(torch.device(device))
    now = runtime.generator_state()
    runtime.set_generator_state(state)
    try:
        return kernel_of(target)(*args, **kwargs)
    finally:
        runtime.set_generator_state(now)
