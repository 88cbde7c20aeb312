"""Converts other programs' graphs to Remat graphs (docs/graphs.md). Their own packages read them; none is
imported here."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from remat import _core
from remat._core import Device, Graph
from remat.converters.from_networkx import graph_of
from remat.converters.maker import (
    GraphMaker as GraphMaker,
    Options as Options,
    default_options,
    sizes_of_dims,
)
from remat.errors import GraphError, UsageError
from remat.tables import require

Converter = Callable[[Path, Options], Graph]

#: The group of entry points whose names are formats and whose objects are converters.
GROUP = "remat.converters"
# Format: suffixes of its files, and the module of its converter.
_FORMATS = {
    "onnx": ((".onnx",), "remat.converters.from_onnx"),
    "stablehlo": ((".mlir", ".stablehlo"), "remat.converters.from_stablehlo"),
    "export": ((".pt2",), "remat.torch.converted"),
    "dot": ((".dot", ".gv"), "remat.converters.from_dot"),
}
_JSON = "json"


def convert(
    source: Any,
    *,
    format: str | None = None,
    device: str | Device | None = None,
    dims: Mapping[str, int] | None = None,
) -> Graph:
    """Convert another program's graph to a Remat graph (docs/graphs.md).

    Args:
        source: a file: JSON that `load_graph` reads, ONNX, StableHLO as text, a program that
            ``torch.export.save`` wrote, DOT, or what a plug-in reads; or an object: an ``fx.GraphModule``
            whose nodes know their shapes, an exported program of PyTorch, a directed graph of networkx, a
            dict as of :meth:`Graph.from_dict`.
        format: for a file whose name does not tell: "onnx", "stablehlo", "export", "dot", "json", or the name
            of a plug-in.
        device: device of the durations, by name or as of :func:`parse_device`; "a100" by default. Durations
            follow the roofline: launch + max(flops / peak, bytes / bandwidth), in ns. Durations in the file
            are kept.
        dims: sizes of named dimensions without a size, as ``{"batch": 8}``.

    An operator with unknown flops is timed by its bytes alone, and one UserWarning names such operators.

    Raises:
        GraphError: an invalid file, an unknown size, or a cycle; names file and place.
        UsageError: an unknown format or device, or a size of a dimension that is no positive integer.
        RematError: a package that is missing, with what to install.
    """
    options = default_options()
    if device is not None:
        options.device = _core.parse_device(device) if isinstance(device, str) else device
    options.dims = sizes_of_dims(dims)
    if not isinstance(source, (str, os.PathLike)):
        return _convert_object(source, options)
    path = Path(source)
    chosen = format or format_of(path)
    if chosen == _JSON:
        return _core.load_graph(path)
    try:
        with path.open("rb") as file:
            is_empty = not file.read(1)
    except OSError as error:
        raise GraphError(f"cannot read {path}: {error.strerror}") from None
    if is_empty:
        raise GraphError(f"{path}: the file is empty")
    return converter_of(chosen)(path, options)


def format_of(path: Path) -> str:
    """The format of a file, by its name. Raises UsageError that lists the known ones."""
    suffix = path.suffix.lower()
    if suffix == ".json":
        return _JSON
    for name, (suffixes, _) in _FORMATS.items():
        if suffix in suffixes:
            return name
    if suffix[1:] in _plug_ins():
        return suffix[1:]
    known = ", ".join([*(s for suffixes, _ in _FORMATS.values() for s in suffixes), ".json"])
    raise UsageError(f"{path}: no converter for '{suffix}'; known are {known}; a format says what a file is")


def converter_of(format: str) -> Converter:
    """The converter of a format. Raises UsageError that lists the known ones."""
    if format in _FORMATS:
        if format == "export":
            require("torch", "torch", "reading exported programs")
        converter: Converter = import_module(_FORMATS[format][1]).convert
        return converter
    plug_ins = _plug_ins()
    if format not in plug_ins:
        known = ", ".join([*_FORMATS, _JSON, *sorted(plug_ins)])
        raise UsageError(f"unknown format '{format}'; known: {known}")
    loaded: Converter = plug_ins[format].load()
    return loaded


def _plug_ins() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _convert_object(source: Any, options: Options) -> Graph:
    kinds = {f"{kind.__module__.split('.')[0]}.{kind.__name__}" for kind in type(source).__mro__}
    if kinds & {"torch.GraphModule", "torch.ExportedProgram"}:
        graph: Graph = import_module(_FORMATS["export"][1]).graph_of(source, options)
        return graph
    if "networkx.Graph" in kinds:
        return graph_of(source)
    if isinstance(source, dict):
        return Graph.from_dict(source)
    raise UsageError(f"cannot convert {type(source).__name__}: neither a file nor a graph that is known")
