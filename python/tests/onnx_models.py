"""Small ONNX models for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


def save_model(
    path: Path, nodes: list[Any], weights: dict[str, Any], batch: int | str = 8, width: int = 16
) -> Path:
    """A model with the input x of shape (batch, 16) and the output y of shape (batch, width)."""
    from onnx import TensorProto, helper, numpy_helper, save

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, width])
    kept = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "small", [x], [y], kept)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    save(helper.make_model(graph, opset_imports=opsets), path)
    return path


def two_layers(path: Path, batch: int | str = 8) -> Path:
    """x -> MatMul(w1) -> Relu -> Reshape (a view) -> MatMul(w2) -> Softmax -> y"""
    from onnx import helper

    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], "first"),
        helper.make_node("Relu", ["h"], ["r"], "relu"),
        helper.make_node("Reshape", ["r", "shape"], ["v"], "view"),
        helper.make_node("MatMul", ["v", "w2"], ["z"], "second"),
        helper.make_node("Softmax", ["z"], ["y"], "softmax"),
    ]
    weights = {
        "w1": np.zeros((16, 32), np.float32),
        "w2": np.zeros((32, 4), np.float32),
        "shape": np.array([-1, 32]),
    }
    return save_model(path, nodes, weights, batch, 4)
