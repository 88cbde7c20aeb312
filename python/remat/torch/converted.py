"""Graphs of PyTorch: programs of `torch.export`, and fx graphs of ATen ops whose nodes know their shapes.

A value for each storage: views have no op. Parameters, buffers and inputs are graph inputs. Ops that draw
random numbers, or are not known to be repeatable, run once.
"""

from __future__ import annotations

import logging
import operator
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from remat._core import Graph
from remat.converters.maker import GraphMaker, Options, elements_of
from remat.errors import GraphError

from .base import nodes
from .cost import roofline


def convert(path: Path, options: Options) -> Graph:
    """A file of ``torch.export.save``. Raises GraphError for one that PyTorch cannot read."""
    if not zipfile.is_zipfile(path):
        raise GraphError(f"{path}: not a program of torch.export, or a part of one: not a whole archive")
    says = logging.getLogger("torch.export")
    says.addFilter(_nothing)  # it logs tracebacks of what it then raises
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.export.load(path)
    except Exception as error:  # of many classes, by what is wrong with the archive
        text = " ".join(str(error).split())[:200]
        reason = "" if "warnings above" in text else f": {text}"
        raise GraphError(
            f"{path}: not a program of torch.export, or a part of one: PyTorch {torch.__version__} cannot "
            f"load it ({type(error).__name__}){reason}"
        ) from None
    finally:
        says.removeFilter(_nothing)
    return graph_of(program, options, str(path), path.stem)


def _nothing(_: logging.LogRecord) -> bool:
    return False


def graph_of(source: Any, options: Options, place: str = "", name: str = "") -> Graph:
    """The graph of an exported program or an ``fx.GraphModule``. Raises GraphError for nodes that are no ATen
    ops, write in place, or have unknown shapes."""
    if hasattr(source, "run_decompositions"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            source = source.run_decompositions().graph_module
    return _Module(source, GraphMaker(place or type(source).__name__, options)).run(name)


class _Module:
    """State: the graph so far, and the values of each node, None where an element is no tensor."""

    def __init__(self, module: Any, made: GraphMaker) -> None:
        self.module = module
        self.made = made
        self.values_of: dict[Any, list[int | None]] = {}

    def run(self, name: str) -> Graph:
        outputs: list[int] = []
        for node in self.module.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                self._add_input(node)
            elif node.op == "output":
                outputs = [v for n in node.all_input_nodes for v in self._read(n)]
            elif node.op == "call_function":
                self._add(node)
            else:
                raise self.made.fail(
                    f"node '{node.name}': '{node.op}' hides its ops; trace with torch.export or make_fx"
                )
        return self.made.graph(name or type(self.module).__name__, outputs)

    def _add_input(self, node: Any) -> None:
        val = node.meta.get("val")
        if node.op == "get_attr" and val is None:
            val = operator.attrgetter(str(node.target))(self.module)
        if not _is_tensor(val):
            if node.op == "placeholder" and "val" not in node.meta:
                raise self._unknown(node)
            self.values_of[node] = []
            return
        self.values_of[node] = [self.made.add_input(node.name, self._bytes(node, val))]

    def _add(self, node: Any) -> None:
        if node.target is operator.getitem:
            source = self.values_of.get(node.args[0], [])
            self.values_of[node] = [source[node.args[1]]] if source else []
            return
        if "val" not in node.meta:
            raise self._unknown(node)
        if nodes.is_mutable(node):
            raise self.made.fail(
                f"node '{node.name}': {node.target} writes in place; functionalize the graph"
            )
        val = node.meta["val"]
        if nodes.returns_alias(node):
            self.values_of[node] = self._viewed(node, val)
            return
        elements = val if isinstance(val, (tuple, list)) else [val]
        made = [
            self.made.add_value(node.name, self._bytes(node, t)) if _is_tensor(t) else None for t in elements
        ]
        self.values_of[node] = made
        if any(v is not None for v in made):
            self._add_op(node, [v for v in made if v is not None])

    def _viewed(self, node: Any, val: Any) -> list[int | None]:
        """A view, or several, of the first tensor that the node reads."""
        source = self._read(node.all_input_nodes[0])[0]
        return [source] * (len(val) if isinstance(val, (tuple, list)) else 1)

    def _add_op(self, node: Any, outputs: list[int]) -> None:
        reads = [v for n in node.all_input_nodes for v in self._read(n)]
        flops, moved = 0.0, None
        if getattr(node.target, "namespace", "") in nodes.BUILTIN_NAMESPACES:
            flops, moved = roofline.flop_count(node), roofline.byte_count(node)
        else:
            self.made.unknown_kinds.add(str(node.target))
        fields = {"module": nodes.module_path(node), "source": nodes.source_line(node)}
        if nodes.is_random(node) or not nodes.may_run_twice(node):
            fields["recompute"] = "never"
        self.made.add_op(node.name, str(node.target), reads, outputs, flops=flops, moved=moved, **fields)

    def _read(self, node: Any) -> list[int]:
        return [value for value in self.values_of.get(node, []) if value is not None]

    def _bytes(self, node: Any, tensor: Any) -> int:
        shape: Sequence[Any] = tuple(tensor.shape)
        if not all(isinstance(size, int) for size in shape):
            sizes = ", ".join(map(str, shape))
            raise self.made.fail(
                f"node '{node.name}': the shape ({sizes}) is not known; export with fixed shapes"
            )
        return elements_of(shape) * int(tensor.element_size())

    def _unknown(self, node: Any) -> GraphError:
        return self.made.fail(
            f"node '{node.name}' has no shape; trace with torch.export, or make_fx with tracing_mode='fake'"
        )


def _is_tensor(val: Any) -> bool:
    return isinstance(val, torch.Tensor)
