"""StableHLO, MHLO and CHLO as text, read by the MLIR bindings that come with jaxlib.

An op for each operation of the main function, with called functions inlined. Arguments and constants are
graph inputs; a reshape is a view. An operation with bodies, such as a loop, is one op.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from remat._core import Graph
from remat.converters.maker import GraphMaker, Options, elements_of
from remat.errors import GraphError
from remat.tables import require

_DIALECTS = ("stablehlo", "mhlo", "chlo")
_VIEWS = frozenset(("reshape", "optimization_barrier", "sharding_constraint"))
_CALLS = ("func.call", "stablehlo.composite")
_PER_ELEMENT = dict.fromkeys(("tanh", "logistic", "erf", "erf_inv", "tan", "sine", "cosine", "power"), 8)
# These move data only.
_NO_FLOPS = frozenset(
    (
        *("broadcast_in_dim", "broadcast", "transpose", "concatenate", "slice", "dynamic_slice", "gather"),
        *("dynamic_update_slice", "iota", "convert", "bitcast_convert", "pad", "reverse", "select", "copy"),
    )
)
# These read only as many bytes of their first operand as they return.
_LOOKUPS = frozenset(("slice", "dynamic_slice", "gather"))
# The module does not say how often bodies run, or what custom calls do.
_UNKNOWN = frozenset(("while", "case", "if", "custom_call", "fft", "cholesky", "triangular_solve", "sort"))
_MOST_CALLS = 200
_BITS_OF_BYTE = 8


def convert(path: Path, options: Options) -> Graph:
    """Convert a module in text form. Raises GraphError with line and column if it is truncated, or has
    operations of another dialect or tensors of unknown size."""
    ir = require("jaxlib.mlir.ir", "jaxlib", f"{path}: reading StableHLO")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise GraphError(f"{path}: not a text: byte {error.start} is no UTF-8") from None
    with _context(ir) as context:
        try:
            module = ir.Module.parse(text, context)
        except ir.MLIRError as error:
            raise GraphError(f"{path}{_placed(str(error))}") from None
        return _Module(ir, GraphMaker(str(path), options), module).run(path.stem)


def _context(ir: Any) -> Any:
    dialects = [require(f"jaxlib.mlir.dialects.{name}", "jaxlib", "StableHLO") for name in _DIALECTS]
    extension = require("jaxlib.mlir._mlir_libs._jax_mlir_ext", "jaxlib", "StableHLO")
    context, registry = ir.Context(), ir.DialectRegistry()
    extension.register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    for dialect in dialects:
        register = getattr(dialect, "register_dialect", None) or dialect.register_mhlo_dialect
        register(context)
    return context


def _placed(message: str) -> str:
    """ ":2:21: expected non-function type" of the parser's first error."""
    found = re.search(r'error: "-":(\d+:\d+): (.*)', message)
    return f":{found[1]}: {found[2].strip()}" if found else f": {' '.join(message.split())}"


class _Module:
    """State: the graph so far, and the value of each result so far."""

    def __init__(self, ir: Any, made: GraphMaker, module: Any) -> None:
        self.ir = ir
        self.made = made
        self.functions = {
            str(op.attributes["sym_name"]).strip('"'): op
            for op in module.body.operations
            if op.operation.name == "func.func" and "sym_name" in op.attributes
        }
        self.depth = 0

    def run(self, name: str) -> Graph:
        if not self.functions:
            raise self.made.fail("the module has no function")
        main = self.functions.get("main")
        if main is None:
            if len(self.functions) > 1:
                known = ", ".join(self.functions)
                raise self.made.fail(f"the module has several functions and none is 'main': {known}")
            (main,) = self.functions.values()
        block = self._body(main, "main")
        inputs = [
            self.made.add_input(f"arg{i}", self._bytes(argument, main))
            for i, argument in enumerate(block.arguments)
        ]
        outputs = self._run(block, inputs)
        return self.made.graph(name, outputs)

    def _body(self, function: Any, name: str) -> Any:
        blocks = list(function.regions[0].blocks)
        if len(blocks) != 1:
            raise self.made.fail(f"function '{name}' has {len(blocks)} blocks instead of one")
        return blocks[0]

    def _run(self, block: Any, arguments: Sequence[int]) -> list[int]:
        """Adds the operations of a function; returns its result values."""
        known = dict(zip(block.arguments, arguments, strict=True))
        for op in block.operations:
            operation = op.operation
            if operation.name == "func.return":
                return [known[operand] for operand in operation.operands]
            reads = [known[v] for v in [*operation.operands, *_captured(operation, known)]]
            known.update(zip(operation.results, self._add(operation, reads), strict=True))
        raise self.made.fail("a function without a return")

    def _add(self, op: Any, reads: list[int]) -> list[int]:
        """The values of an operation's results."""
        dialect, _, kind = op.name.partition(".")
        if op.name in _CALLS:
            return self._call(op, reads)
        if dialect not in (*_DIALECTS, "sdy"):
            known = ", ".join(_DIALECTS)
            raise self._fail(op, f"'{op.name}' is of another dialect; known are {known}")
        if kind == "constant":
            return [self.made.add_input(f"constant_{len(self.made.inputs)}", self._bytes(op.results[0], op))]
        if kind in _VIEWS and len(op.results) == len(reads):
            return reads
        outputs = [self.made.add_value("", self._bytes(result, op)) for result in op.results]
        self._add_op(op, kind, reads, outputs)
        return outputs

    def _add_op(self, op: Any, kind: str, reads: list[int], outputs: list[int]) -> None:
        flops, moved = 0.0, None
        if kind in _UNKNOWN:
            self.made.unknown_kinds.add(op.name)
        elif kind not in _NO_FLOPS:
            flops = self._flops(op, kind)
        if kind in _LOOKUPS:
            size = self.made.values
            moved = sum(2 * size[v]["bytes"] for v in outputs)
            moved += sum(size[v]["bytes"] for v in set(reads[1:]))
        fields = {"recompute": "never"} if kind == "rng" or _has_side_effect(op) else {}
        line = re.search(r'loc\("-":(\d+)', str(op.location))
        if line:
            fields["source"] = f"{self.made.place}:{line[1]}"
        name = f"{kind}_{len(self.made.ops)}"
        self.made.add_op(name, op.name, reads, outputs, flops=flops, moved=moved, **fields)

    def _call(self, op: Any, reads: list[int]) -> list[int]:
        attribute = "callee" if op.name == "func.call" else "decomposition"
        name = str(op.attributes[attribute]).strip('@"')
        function = self.functions.get(name)
        if function is None:
            raise self._fail(op, f"there is no function '{name}'")
        if self.depth >= _MOST_CALLS:
            raise self._fail(op, f"calls go {_MOST_CALLS} functions deep: '{name}' calls itself")
        self.depth += 1
        returned = self._run(self._body(function, name), reads)
        self.depth -= 1
        return returned

    def _flops(self, op: Any, kind: str) -> float:
        shapes = [self._shape(value, op) for value in [*op.operands, *op.results]]
        made = elements_of(shapes[len(op.operands)]) if len(op.results) else 0
        if kind in ("dot_general", "dot"):
            return 2.0 * made * self._contracted(op, kind, shapes[0])
        if kind == "convolution":
            numbers = self._dialect(op).ConvDimensionNumbers(op.attributes["dimension_numbers"])
            kernel = shapes[1]
            features: int = numbers.kernel_output_feature_dimension
            return 2.0 * made * elements_of(kernel) / kernel[features]
        return float(_PER_ELEMENT.get(kind, 1) * max(map(elements_of, shapes), default=0))

    def _contracted(self, op: Any, kind: str, left: Sequence[int]) -> int:
        if kind == "dot":
            return left[-1] if left else 1
        numbers = self._dialect(op).DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
        return elements_of(left[d] for d in numbers.lhs_contracting_dimensions)

    def _dialect(self, op: Any) -> Any:
        return require(f"jaxlib.mlir.dialects.{op.name.split('.')[0]}", "jaxlib", "StableHLO")

    def _shape(self, value: Any, op: Any) -> tuple[int, ...]:
        text = str(value.type)
        if "token" in text:
            return (0,)
        try:
            tensor = self.ir.RankedTensorType(value.type)
        except ValueError:
            raise self._fail(op, f"found {text} instead of a tensor with a shape") from None
        if not tensor.has_static_shape:
            raise self._fail(op, f"the size of {text} is not known")
        return tuple(tensor.shape)

    def _bytes(self, value: Any, op: Any) -> int:
        shape = self._shape(value, op)
        if shape == (0,):
            return 0
        kind = str(self.ir.RankedTensorType(value.type).element_type)
        found = re.match(r"(?:complex<)?(?:[su]?i|bf|tf|f)(\d+)", kind)
        if not found:
            raise self._fail(op, f"elements of type {kind} have no known size")
        bits = int(found[1]) * (2 if kind.startswith("complex") else 1)
        if bits == 1:  # a Boolean has a byte
            bits = _BITS_OF_BYTE
        return -(-elements_of(shape) * bits // _BITS_OF_BYTE)

    def _fail(self, op: Any, message: str) -> GraphError:
        place = re.search(r'"-":(\d+:\d+)', str(op.location))
        return GraphError(f"{self.made.place}{':' + place[1] if place else ''}: {message}")


def _has_side_effect(op: Any) -> bool:
    return "has_side_effect" in op.attributes and str(op.attributes["has_side_effect"]) == "true"


def _captured(op: Any, known: dict[Any, int]) -> list[Any]:
    """Outer values that the bodies of an operation read."""
    read: dict[Any, None] = {}
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                operation = inner.operation
                read.update(dict.fromkeys([*operation.operands, *_captured(operation, known)]))
    return [value for value in read if value in known]
