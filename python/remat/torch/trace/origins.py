"""Origins of a graph's inputs: parameters, buffers and inputs of the model, by their names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ..base.step import StepGraph

# Dynamo names the tensors of a model l_self_modules_NAME_..._parameters_NAME_.
_ATTRIBUTE = re.compile(r"_(modules|parameters|buffers)_")


def name_inputs(step: StepGraph, gm: fx.GraphModule, args: Sequence[Any]) -> None:
    """Name the graph inputs "parameter layers.0.weight", "buffer norm.running_mean", "input tokens".

    gm, args: Dynamo's graph and its arguments. Inputs of unknown origin keep their names.
    """
    placeholders = gm.graph.find_nodes(op="placeholder")
    for node, value in step.value_of.items():
        if node.op != "placeholder" or value not in step.inputs:
            continue
        index = getattr(node.meta.get("desc"), "idx", None)
        if index is None or index >= min(len(args), len(placeholders)):
            continue
        step.name_value(value, describe_input(str(placeholders[index].target), args[index]))


def describe_input(name: str, tensor: Any) -> str:
    """Of an input of a graph of Dynamo, by its name there."""
    first = _ATTRIBUTE.search(name)
    if first is None:
        kind = "parameter" if isinstance(tensor, torch.nn.Parameter) else "input"
        return f"{kind} {re.sub(r'^l_(args_)?', '', name).strip('_')}"
    parts = _ATTRIBUTE.split(name[first.start() :])
    # parts: "", kind, name, kind, name, ...; the last kind says what the tensor is.
    kinds, names = parts[1::2], parts[2::2]
    kind = {"parameters": "parameter", "buffers": "buffer"}.get(kinds[-1], "input")
    return f"{kind} {'.'.join(part.rstrip('_') for part in names)}"
