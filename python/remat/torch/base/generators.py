"""Generators that a step may draw from: PyTorch's default ones, Python's and numpy's."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from .devices import devices_in_use, runtime_of


def _numpy() -> Any:
    """Numpy's module of random numbers, if it is imported."""
    return sys.modules.get("numpy.random")


class GeneratorStates(NamedTuple):
    """Of the default generators of all devices in use, of Python's, and of numpy's where it is there."""

    devices: dict[torch.device, torch.Tensor]
    python: Any
    numpy: Any

    def named(self) -> Iterator[tuple[str, torch.Tensor]]:
        """As tensors, to be compared."""
        for device, state in self.devices.items():
            where = "" if device.type == "cpu" else f" of {device}"
            yield f"state of the generator{where}", state
        yield "state of Python's generator", torch.tensor(self.python[1])
        if isinstance(self.numpy, tuple):
            _, key, *numbers = self.numpy
            yield "state of numpy's generator", torch.tensor([*map(int, key), *numbers], dtype=torch.float64)


def generator_states() -> GeneratorStates:
    numpy = _numpy()
    return GeneratorStates(
        {device: runtime_of(device).generator_state() for device in devices_in_use()},
        random.getstate(),
        None if numpy is None else numpy.get_state(),
    )


def set_generator_states(states: GeneratorStates) -> None:
    for device, state in states.devices.items():
        runtime_of(device).set_generator_state(state)
    random.setstate(states.python)
    numpy = _numpy()
    if numpy is not None and states.numpy is not None:
        numpy.set_state(states.numpy)


@contextmanager
def generators_kept() -> Iterator[None]:
    """Restores all generators afterwards."""
    states = generator_states()
    try:
        yield
    finally:
        set_generator_states(states)
