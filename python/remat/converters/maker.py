"""Builds graphs for converters: values and ops one by one, durations by a roofline."""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from remat import _core
from remat._core import Device, Graph
from remat.errors import GraphError, UsageError

_NANOSECONDS = 1e9
# Limit of bytes of a value: sums must stay within 62 bits.
_MOST_BYTES = 1 << 60


@dataclass
class Options:
    """Options of a converter.

    Attributes:
        device: device of the durations.
        dims: sizes of named dimensions without a size.
    """

    device: Device
    dims: dict[str, int] = field(default_factory=dict)


def sizes_of_dims(dims: Mapping[str, int] | None) -> dict[str, int]:
    """The argument `dims`, checked. Raises UsageError for a size that is not a positive integer."""
    sizes = {}
    for name, size in (dims or {}).items():
        try:
            sizes[str(name)] = operator.index(size)
        except TypeError:
            sizes[str(name)] = 0
        if sizes[str(name)] < 1:
            raise UsageError(f"dims: '{name}': found {size!r} instead of a positive integer")
    return sizes


class GraphMaker:
    """Collects values and ops in a topological order; `place` names the file in messages."""

    def __init__(self, place: str, options: Options) -> None:
        self.place = place
        self.options = options
        self.values: list[dict[str, Any]] = []
        self.ops: list[dict[str, Any]] = []
        self.inputs: list[int] = []
        self.unknown_kinds: set[str] = set()

    def fail(self, message: str) -> GraphError:
        """Returns an error that names the file."""
        return GraphError(f"{self.place}: {message}")

    def add_value(self, name: str, size: int) -> int:
        """A value of `size` bytes; returns its index."""
        if not 0 <= size < _MOST_BYTES:
            raise self.fail(f"value '{name}': {size} bytes are not in [0, {_MOST_BYTES})")
        self.values.append({"name": name, "bytes": size})
        return len(self.values) - 1

    def add_input(self, name: str, size: int) -> int:
        """A graph input of `size` bytes; returns its index."""
        index = self.add_value(name, size)
        self.inputs.append(index)
        return index

    def add_op(
        self,
        name: str,
        kind: str,
        inputs: Iterable[int],
        outputs: Iterable[int],
        *,
        flops: float,
        moved: int | None = None,
        **fields: Any,
    ) -> None:
        """An op that takes launch + max(flops / peak, moved / bandwidth) on the device; `moved` defaults to
        the bytes of its inputs and outputs. `fields`: others of :class:`remat.Op`."""
        reads, writes = list(dict.fromkeys(inputs)), list(outputs)
        if moved is None:
            moved = sum(self.values[v]["bytes"] for v in {*reads, *writes})
        device = self.options.device
        seconds = device.launch_seconds + max(
            flops / device.flops_per_second, moved / device.bytes_per_second
        )
        duration = max(1, round(seconds * _NANOSECONDS))
        self.ops.append(
            {"name": name, "kind": kind, "duration": duration, "inputs": reads, "outputs": writes, **fields}
        )

    def graph(self, name: str, outputs: Iterable[int]) -> Graph:
        """The graph; one warning names the kinds of ops whose flops are unknown."""
        if not self.ops:
            raise self.fail("the file has no ops")
        if self.unknown_kinds:
            listed = ", ".join(sorted(self.unknown_kinds))
            warnings.warn(f"{self.place}: durations by bytes alone for: {listed}", stacklevel=2)
        try:
            return Graph(self.values, self.ops, self.inputs, list(dict.fromkeys(outputs)), name, "ns")
        except GraphError as error:
            raise self.fail(str(error)) from None


def elements_of(shape: Iterable[int]) -> int:
    """Elements of a tensor; 1 of a scalar."""
    return math.prod(shape)


def default_options() -> Options:
    """Those of the command line: an A100."""
    return Options(_core.parse_device("a100"))
