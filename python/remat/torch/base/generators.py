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
        numpy = self._of_numpy()
        if numpy:
            yield "state of numpy's generator", torch.tensor(numpy, dtype=torch.float64)

    def _of_numpy(self) -> list[float]:
        if not isinstance(self.numpy, tuple):
            return []
        _, key, *numbers = self.numpy
        return [*map(int, key), *numbers]

    def drew_outside_torch(self, later: GeneratorStates) -> bool:
        """Was Python's or numpy's generator drawn from until then?"""
        return self.python != later.python or self._of_numpy() != later._of_numpy()


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


def draw_from_all() -> None:
    """Draws a number from each generator."""
    for device in devices_in_use():
        torch.rand((), device=device)
    random.random()
    numpy = _numpy()
    if numpy is not None:
        numpy.random()


@contextmanager
def generators_kept() -> Iterator[None]:
    """Restores all generators afterwards."""
    states = generator_states()
    try:
        yield
    finally:
        set_generator_states(states)
