"""Writes plans back in the format that the graph came from."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from remat import _core
from remat._core import Plan
from remat.converters import from_onnx, to_onnx
from remat.converters.maker import default_options, sizes_of_dims
from remat.errors import GraphError, PlanError, RematError, UsageError
from remat.files import write_atomically
from remat.tables import require


def apply(
    model: str | os.PathLike[str],
    plan: Plan | str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    dims: Mapping[str, int] | None = None,
) -> Plan:
    """Write an ONNX model with its nodes in the order of a plan, and copies of recomputed nodes.

    The results are those of the model. A runtime follows the plan if it runs nodes in the order of the file
    and does not merge equal ones (docs/graphs.md).

    Args:
        model: an ONNX file.
        plan: for the graph that :func:`convert` makes of the model, or its file. Durations may differ.
        output: the file to write, atomically.
        dims: as in :func:`convert`; the written model has these sizes.

    Returns:
        The plan, with peak and duration for the graph.

    Raises:
        GraphError: an invalid model.
        PlanError: a plan for another graph, or one that copies values to a host.
        UsageError: no plan is given; weights are in files that the output's folder lacks.
        RematError: the output cannot be written; `onnx` is missing, with what to install.
    """
    if not isinstance(plan, (Plan, str, os.PathLike)):
        raise UsageError(f"apply: the plan is a Plan or its file, not {type(plan).__name__}")
    source, target = Path(model), Path(output)
    options = default_options()
    options.dims = sizes_of_dims(dims)
    onnx = require("onnx", "onnx", f"{source}: writing ONNX")
    try:
        source.open("rb").close()
    except OSError as error:
        raise GraphError(f"cannot read {source}: {error.strerror}") from None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about durations, which are not used here
        read, graph, node_of = from_onnx.read(source, options)
    given = plan if isinstance(plan, Plan) else _core.load_plan(plan)
    if given.copies:
        raise PlanError("the plan copies values to a host, for which ONNX has no node")
    confirmed = Plan(graph, given.steps, given.order)
    planned = to_onnx.planned_model(read, node_of, confirmed.steps)
    _check(onnx, planned, source, target)
    try:
        write_atomically(target, planned.SerializeToString())
    except OSError as error:
        raise RematError(f"cannot write {target}: {error.strerror}") from None
    return confirmed


def _check(onnx: Any, planned: Any, source: Path, target: Path) -> None:
    if not from_onnx.has_external_data(planned.graph):
        onnx.checker.check_model(planned)
    elif target.resolve().parent != source.resolve().parent:
        raise UsageError(
            f"{target}: {source} has weights in files beside it; write the model into the same folder"
        )
