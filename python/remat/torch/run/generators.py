"""States of the random generators: saved where a random op runs first, set again where it runs once more."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from ..base.nodes import cuda_devices
from ..trace.kernels import kernel_of

# The generator is one for all threads: between its state and the draw that belongs to it none may come.
_drawing = threading.Lock()


def run_and_save_rng(
    target: Callable[..., Any], device: str, *args: Any, **kwargs: Any
) -> tuple[torch.Tensor, Any]:
    """Run a random op; also the generator's state from before it."""
    with _drawing:
        return _run_and_save(target, device, *args, **kwargs)


def _run_and_save(
    target: Callable[..., Any], device: str, *args: Any, **kwargs: Any
) -> tuple[torch.Tensor, Any]:
    state = torch.cuda.get_rng_state(device) if device.startswith("cuda") else torch.get_rng_state()
    return state, kernel_of(target)(*args, **kwargs)


def run_with_rng(
    state: torch.Tensor, target: Callable[..., Any], device: str, *args: Any, **kwargs: Any
) -> Any:
    """Run a random op from a saved state; the generator goes on as if nothing had happened."""
    with _drawing:
        return _run_from(state, target, device, *args, **kwargs)


def _run_from(state: torch.Tensor, target: Callable[..., Any], device: str, *args: Any, **kwargs: Any) -> Any:
    if device.startswith("cuda"):
        now = torch.cuda.get_rng_state(device)
        torch.cuda.set_rng_state(state, device)
        try:
            return kernel_of(target)(*args, **kwargs)
        finally:
            torch.cuda.set_rng_state(now, device)
    now = torch.get_rng_state()
    torch.set_rng_state(state)
    try:
        return kernel_of(target)(*args, **kwargs)
    finally:
        torch.set_rng_state(now)


def generator_states() -> tuple[torch.Tensor, list[torch.Tensor]]:
    return torch.get_rng_state(), [torch.cuda.get_rng_state(device) for device in cuda_devices()]


def set_generator_states(states: tuple[torch.Tensor, list[torch.Tensor]]) -> None:
    torch.set_rng_state(states[0])
    for device, state in zip(cuda_devices(), states[1], strict=False):
        torch.cuda.set_rng_state(state, device)
