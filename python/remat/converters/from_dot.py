"""Graphs in DOT, read by pydot: an op and a value for each node."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

from remat._core import Graph
from remat.converters.from_networkx import graph_of_nodes
from remat.converters.maker import Options
from remat.errors import GraphError
from remat.tables import require

# Nodes that set defaults for others.
_DEFAULTS = ("node", "edge", "graph")


def convert(path: Path, options: Options) -> Graph:
    """Attributes of nodes: as of `Graph.from_networkx`, and `input=true`, `output=true`."""
    pydot = require("pydot", "pydot", f"{path}: reading DOT")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise GraphError(f"{path}: not a text: byte {error.start} is no UTF-8") from None
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pydot's warnings about itself
        graphs = pydot.graph_from_dot_data(text) if text.strip() else None
    if not graphs:
        raise GraphError(f"{path}: not a graph in DOT{_reason(said.getvalue())}")
    if len(graphs) > 1:
        raise GraphError(f"{path}: found {len(graphs)} graphs instead of one")
    dot = graphs[0]
    if dot.get_type() != "digraph":
        raise GraphError(f"{path}: the graph is undirected; edges must say who reads what: write 'digraph'")
    return _graph_of(path, dot)


def _reason(said: str) -> str:
    """The last line of the parser's message that names a place."""
    lines = [line.strip() for line in said.splitlines() if "line:" in line or "Expected" in line]
    return f": {lines[-1]}" if lines else ""


def _graph_of(path: Path, dot: Any) -> Graph:
    nodes: dict[Hashable, dict[str, Any]] = {}
    edges: list[tuple[Hashable, Hashable]] = []
    for part in _parts(dot):
        for node in part.get_nodes():
            name = _plain(node.get_name())
            if name not in _DEFAULTS and name not in ("\\n", "\\r\\n"):
                attributes = {key: _plain(value) for key, value in node.get_attributes().items()}
                nodes.setdefault(name, {}).update(attributes)
        for edge in part.get_edges():
            ends = [edge.get_source(), edge.get_destination()]
            if not all(isinstance(end, str) for end in ends):
                raise GraphError(f"{path}: an edge between groups of nodes; write each edge on its own")
            source, target = (_node_of(end) for end in ends)
            edges.append((source, target))
            nodes.setdefault(source, {})
            nodes.setdefault(target, {})
    named = {node: str(attributes.get("label", node)) for node, attributes in nodes.items()}
    inputs, outputs = ([n for n, a in nodes.items() if a.get(key) == "true"] for key in ("input", "output"))
    if not nodes:
        raise GraphError(f"{path}: the graph has no nodes")
    return graph_of_nodes(str(path), _plain(dot.get_name()), nodes, named, edges, (inputs, outputs))


def _parts(dot: Any) -> Iterator[Any]:
    """The graph and the subgraphs in it."""
    yield dot
    for inner in dot.get_subgraphs():
        yield from _parts(inner)


def _node_of(end: str) -> str:
    """The node of an edge's end, without a port."""
    return _plain(end if end.startswith('"') else end.split(":")[0])


def _plain(text: Any) -> str:
    shown = str(text)
    return shown[1:-1] if len(shown) > 1 and shown[0] == shown[-1] == '"' else shown
