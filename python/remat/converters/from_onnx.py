"""ONNX models, read by the `onnx` package: an op for each node, a value for each tensor.

Weights and constants are graph inputs. Nodes that only reshape a tensor are views: they have no op, and their
output shares their input's value.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from remat._core import Graph
from remat.converters.maker import GraphMaker, Options, elements_of
from remat.converters.onnx_costs import LOOKUPS, UNKNOWN, flop_count
from remat.errors import GraphError
from remat.tables import require

_VIEWS = frozenset(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"))
# A second run would draw other numbers.
_RANDOM = frozenset(
    ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial")
)
_STANDARD = ("", "ai.onnx")
_BITS_OF_BYTE = 8
# Types whose elements share bytes.
_NARROW = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2}


def convert(path: Path, options: Options) -> Graph:
    """Convert a model file. Raises GraphError if it is truncated, breaks a rule of ONNX, or has a tensor of
    unknown size."""
    return read(path, options)[1]


def read(path: Path, options: Options) -> tuple[Any, Graph, list[int]]:
    """The model with its functions inlined, its graph, and the node of each op. Raises GraphError as
    `convert` does."""
    onnx = require("onnx", "onnx", f"{path}: reading ONNX")
    model = _inferred(onnx, path, _loaded(onnx, path), options)
    made = _Model(onnx, path, options, model)
    return model, made.run(), made.node_of


def _loaded(onnx: Any, path: Path) -> Any:
    try:
        model = onnx.load_model_from_string(path.read_bytes())
    except Exception as error:  # the error of its parser is a class of protobuf's
        raise GraphError(f"{path}: not an ONNX model, or a part of one: {_one_line(error)}") from None
    if not model.HasField("graph") or not model.graph.node:
        raise GraphError(f"{path}: not an ONNX model: it has no nodes")
    if not model.opset_import:
        raise GraphError(f"{path}: not an ONNX model, or a part of one: it names no operator set")
    return model


def _inferred(onnx: Any, path: Path, model: Any, options: Options) -> Any:
    """The model with its functions inlined and the shapes of its tensors inferred."""
    try:
        if not has_external_data(model.graph):
            onnx.checker.check_model(model)
        if model.functions:
            model = onnx.inliner.inline_local_functions(model)
        _set_dims(model.graph, options.dims)
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception as error:  # ValidationError, InferenceError, and protobuf's own
        raise GraphError(f"{path}: {_one_line(error)}") from None


def has_external_data(graph: Any) -> bool:
    """True if weights are in files beside the model; these are not needed to know sizes."""
    return any(weight.external_data for weight in graph.initializer)


def _one_line(error: Exception) -> str:
    """The first lines of a message, without the checker's context."""
    text = str(error).split("==> Context")[0]
    return " ".join(text.split()) or type(error).__name__


def _set_dims(graph: Any, dims: dict[str, int]) -> None:
    for info in [*graph.input, *graph.output, *graph.value_info]:
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_param in dims:
                dim.dim_value = dims[dim.dim_param]


class _Model:
    """State: the graph so far, the node of each op, and the value, shape and bytes of each tensor."""

    def __init__(self, onnx: Any, path: Path, options: Options, model: Any) -> None:
        self.onnx = onnx
        self.graph = model.graph
        self.domains = {opset.domain: opset.version for opset in model.opset_import}
        self.made = GraphMaker(str(path), options)
        self.node_of: list[int] = []
        self.value_of: dict[str, int] = {}
        self.shape_of: dict[str, tuple[int, ...]] = {}
        infos = [*self.graph.input, *self.graph.value_info, *self.graph.output]
        self.info_of = {info.name: info for info in infos}

    def run(self) -> Graph:
        weights = {weight.name for weight in self.graph.initializer}
        for weight in self.graph.initializer:
            self._add_input(weight.name, weight.data_type, tuple(weight.dims))
        for sparse in self.graph.sparse_initializer:
            self._add_sparse(sparse)
        for info in self.graph.input:
            if info.name not in weights:
                self._add_input(info.name, *self._type_of(info.name))
        for index, node in enumerate(self.graph.node):
            self._add(index, node)
        outputs = [self._value(output.name, "the outputs") for output in self.graph.output]
        return self.made.graph(self.graph.name, outputs)

    def _add(self, index: int, node: Any) -> None:
        place = f"node {index} '{node.name or node.op_type}'"
        is_standard = node.domain in _STANDARD
        reads = [self._value(name, place) for name in node.input if name]
        if not node.output or (node.op_type in _VIEWS and not reads):
            raise self.made.fail(f"{place}: it lacks inputs or outputs")
        if is_constant(node):
            self._add_input(node.output[0], *self._type_of(node.output[0]))
            return
        if is_view(node):
            self.value_of[node.output[0]] = reads[0]
            self.shape_of[node.output[0]] = self._type_of(node.output[0])[1]
            return
        captured = [self.value_of[name] for name in captured_by(node) if name in self.value_of]
        written = [name for name in node.output if name]
        outputs = [self._add_value(name, *self._type_of(name)) for name in written]
        kind = node.op_type if is_standard else f"{node.domain}.{node.op_type}"
        flops, moved = self._cost(node, kind, is_standard, [*reads, *captured], outputs)
        never = {"recompute": "never"} if _is_random(node) else {}
        name = node.name or f"{node.op_type}_{index}"
        self.node_of.append(index)
        self.made.add_op(name, kind, [*reads, *captured], outputs, flops=flops, moved=moved, **never)

    def _cost(
        self, node: Any, kind: str, is_standard: bool, reads: list[int], outputs: list[int]
    ) -> tuple[float, int | None]:
        """Flops, and the bytes moved if they differ from those of inputs and outputs."""
        version = self.domains.get(node.domain, self.domains.get("ai.onnx", 1))
        if not is_standard or kind in UNKNOWN or not self.onnx.defs.has(kind, version, node.domain):
            self.made.unknown_kinds.add(kind)
            return 0.0, None
        given = {a.name: self.onnx.helper.get_attribute_value(a) for a in node.attribute}
        shapes = [self.shape_of.get(name) if name else None for name in node.input]
        made = [self.shape_of[name] for name in node.output if name]
        try:
            flops = flop_count(kind, shapes, made, given)
        except (IndexError, TypeError):  # inference lets some of them pass
            raise self.made.fail(
                f"node '{node.name}': a {kind} cannot read tensors of shapes {shapes}"
            ) from None
        if kind in LOOKUPS:
            size = self.made.values
            return flops, sum(2 * size[v]["bytes"] for v in outputs) + sum(
                size[v]["bytes"] for v in set(reads[1:])
            )
        return flops, None

    def _value(self, name: str, place: str) -> int:
        if name not in self.value_of:
            raise self.made.fail(f"{place}: the tensor '{name}' is made by nothing before it")
        return self.value_of[name]

    def _type_of(self, name: str) -> tuple[int, tuple[int, ...]]:
        """Element type and shape. Raises GraphError if a dimension has no size."""
        info = self.info_of.get(name)
        if info is None:
            raise self.made.fail(f"the shape of the tensor '{name}' is not known and cannot be inferred")
        if not info.type.HasField("tensor_type"):
            kind = info.type.WhichOneof("value") or "nothing"
            raise self.made.fail(f"the value '{name}' is a {kind}; only tensors have a size")
        tensor = info.type.tensor_type
        if not tensor.HasField("shape"):
            raise self.made.fail(f"the shape of the tensor '{name}' is not known and cannot be inferred")
        return tensor.elem_type, tuple(self._dim(name, i, dim) for i, dim in enumerate(tensor.shape.dim))

    def _dim(self, name: str, index: int, dim: Any) -> int:
        if dim.WhichOneof("value") == "dim_value" and dim.dim_value >= 0:
            return int(dim.dim_value)
        if dim.dim_param and not dim.dim_param.startswith("unk__"):
            raise self.made.fail(
                f"the tensor '{name}' has a dimension '{dim.dim_param}' without a size; "
                f"give one: --dim '{dim.dim_param}=8', or dims={{'{dim.dim_param}': 8}} in Python"
            )
        raise self.made.fail(f"dimension {index} of the tensor '{name}' is not known and cannot be inferred")

    def _bytes(self, name: str, kind: int, shape: Iterable[int]) -> int:
        types = self.onnx.TensorProto
        word = types.DataType.Name(kind) if kind in types.DataType.values() else "UNDEFINED"
        if word in ("UNDEFINED", "STRING"):
            raise self.made.fail(f"the tensor '{name}' is of type {word}, which has no size")
        bits = _NARROW.get(word)
        if bits is None:
            bits = _BITS_OF_BYTE * self.onnx.helper.tensor_dtype_to_np_dtype(kind).itemsize
        return -(-elements_of(shape) * bits // _BITS_OF_BYTE)

    def _add_value(self, name: str, kind: int, shape: tuple[int, ...]) -> int:
        self.shape_of[name] = shape
        self.value_of[name] = self.made.add_value(name, self._bytes(name, kind, shape))
        return self.value_of[name]

    def _add_input(self, name: str, kind: int, shape: tuple[int, ...]) -> None:
        self.made.inputs.append(self._add_value(name, kind, shape))

    def _add_sparse(self, sparse: Any) -> None:
        """Adds a sparse tensor: its entries and their indices."""
        name = sparse.values.name
        size = sum(self._bytes(name, part.data_type, part.dims) for part in (sparse.values, sparse.indices))
        self.shape_of[name] = tuple(sparse.dims)
        self.value_of[name] = self.made.add_input(name, size)


def is_constant(node: Any) -> bool:
    """True for nodes that make a constant, which is a graph input here."""
    return node.domain in _STANDARD and node.op_type == "Constant"


def is_view(node: Any) -> bool:
    """True for nodes that only reshape their input."""
    return node.domain in _STANDARD and node.op_type in _VIEWS


def bodies_of(node: Any) -> list[Any]:
    return [body for a in node.attribute for body in ([a.g] if a.HasField("g") else list(a.graphs))]


def captured_by(node: Any) -> list[str]:
    """Outer tensors that the bodies of a node read."""
    names: dict[str, None] = {}
    for body in bodies_of(node):
        own = {v.name for v in [*body.input, *body.initializer]} | {n for m in body.node for n in m.output}
        for inner in body.node:
            names.update(dict.fromkeys(n for n in [*inner.input, *captured_by(inner)] if n not in own))
        names.update(dict.fromkeys(out.name for out in body.output if out.name not in own))
    return list(names)


def _is_random(node: Any) -> bool:
    """True if the node or its bodies draw random numbers. Dropout does in training mode."""
    if node.op_type in _RANDOM or (node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]):
        return True
    return any(_is_random(inner) for body in bodies_of(node) for inner in body.node)
