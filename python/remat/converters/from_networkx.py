"""Directed graphs of networkx: an op and a value for each node."""

from __future__ import annotations

import contextlib
import heapq
import operator
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from remat import _core
from remat._core import Graph
from remat.errors import GraphError

_BYTES = ("bytes", "out_cost", "cost_ram")
_DURATION = ("duration", "cost_cpu")
# Most nodes of a cycle that a message names.
_SHOWN = 12


def graph_of(graph: Any, inputs: Iterable[Hashable] = (), outputs: Iterable[Hashable] = ()) -> Graph:
    """See :meth:`remat.Graph.from_networkx`."""
    if not all(hasattr(graph, name) for name in ("nodes", "edges", "is_directed")):
        raise GraphError(f"networkx: found {type(graph).__name__} instead of a networkx graph")
    if not graph.is_directed():
        raise GraphError("networkx: the graph is undirected; edges must say who reads what")
    nodes = {node: dict(attributes) for node, attributes in graph.nodes(data=True)}
    edges = [(edge[0], edge[1]) for edge in graph.edges()]
    order = graph.graph.get("order")
    named = {node: str(attributes.get("name", node)) for node, attributes in nodes.items()}
    return graph_of_nodes(
        "networkx", str(graph.graph.get("name") or ""), nodes, named, edges, (inputs, outputs), order
    )


def graph_of_nodes(
    place: str,
    name: str,
    nodes: Mapping[Hashable, Mapping[str, Any]],
    named: Mapping[Hashable, str],
    edges: Sequence[tuple[Hashable, Hashable]],
    ends: tuple[Iterable[Hashable], Iterable[Hashable]] = ((), ()),
    order: Sequence[Hashable] | None = None,
) -> Graph:
    """A graph with an op and a value for each node, an input for each edge.

    Args:
        place: what messages begin with.
        named: the names of the nodes.
        ends: nodes that are graph inputs, without an op, and nodes whose values are kept.
        order: of the nodes; None: topological, the first listed ready node first.
    """
    inputs, outputs = ([_known(place, node, nodes) for node in end] for end in ends)
    for end in (node for edge in edges for node in edge):
        _known(place, end, nodes)
    sequence = list(nodes) if order is None else [_known(place, node, nodes) for node in order]
    if order is not None and (len(set(sequence)) != len(sequence) or len(sequence) != len(nodes)):
        raise GraphError(f"{place}: the order has {len(sequence)} entries for {len(nodes)} nodes")
    sources: dict[Hashable, list[Hashable]] = {node: [] for node in nodes}
    for source, target in edges:
        sources[target].append(source)
    for node in inputs:
        if sources[node]:
            raise GraphError(f"{place}: the graph input '{named[node]}' reads '{named[sources[node][0]]}'")
    run = _sorted(place, sequence, sources, named) if order is None else sequence
    index = {node: i for i, node in enumerate(nodes)}
    taken = set(inputs)
    values = [
        {"name": named[node], "bytes": _amount(place, named[node], attributes, _BYTES)}
        for node, attributes in nodes.items()
    ]
    ops = [
        _op(place, named[node], nodes[node], [index[s] for s in sources[node]], index[node])
        for node in run
        if node not in taken
    ]
    _warn(place, nodes, values)
    try:
        return Graph(values, ops, [index[n] for n in inputs], [index[n] for n in outputs], name)
    except GraphError as error:
        raise GraphError(f"{place}: {error}") from None


def _warn(
    place: str, nodes: Mapping[Hashable, Mapping[str, Any]], values: Sequence[Mapping[str, Any]]
) -> None:
    """Warns about data that make plans pointless: values without bytes, durations truncated to 0."""
    if values and not any(value["bytes"] for value in values):
        warnings.warn(f"{place}: no node has bytes; the attribute is 'bytes'", UserWarning, stacklevel=4)
    given = [node[name] for node in nodes.values() for name in _DURATION if name in node]
    if any(isinstance(duration, float) and 0 < duration < 1 for duration in given):
        text = f"{place}: durations below 1 count as 0: give them in a smaller unit"
        warnings.warn(text, UserWarning, stacklevel=4)


def _op(place: str, name: str, attributes: Mapping[str, Any], reads: list[int], made: int) -> dict[str, Any]:
    phase = attributes.get("phase", "")
    if "phase" not in attributes and "backward" in attributes:
        phase = "backward" if attributes["backward"] in (True, 1, "true", "True") else "forward"
    return {
        "name": name,
        "kind": str(attributes.get("kind", "")),
        "duration": _amount(place, name, attributes, _DURATION),
        "workspace": _amount(place, name, attributes, ("workspace",)),
        "recompute": str(attributes.get("recompute", "allowed")),
        "phase": phase,
        "inputs": sorted(set(reads)),
        "outputs": [made],
    }


def _known(place: str, node: Hashable, nodes: Mapping[Hashable, Any]) -> Hashable:
    if node not in nodes:
        raise GraphError(f"{place}: there is no node {node!r}")
    return node


def _amount(place: str, node: str, attributes: Mapping[str, Any], names: Sequence[str]) -> int:
    """The first attribute of these names, 0 without any; fractions are truncated, as in node-link JSON."""
    for name in names:
        if name not in attributes:
            continue
        given = attributes[name]
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            if isinstance(given, str):
                return _core.parse_bytes(given) if name in _BYTES and given != "0" else int(given)
            return int(given) if isinstance(given, float) else operator.index(given)
        raise GraphError(f"{place}: node '{node}': '{name}': found {given!r} instead of a number")
    return 0


def _sorted(
    place: str,
    nodes: Sequence[Hashable],
    sources: Mapping[Hashable, Sequence[Hashable]],
    named: Mapping[Hashable, str],
) -> list[Hashable]:
    """Kahn's algorithm, the first listed node first. Raises GraphError that names a cycle."""
    position = {node: i for i, node in enumerate(nodes)}
    targets: dict[Hashable, list[Hashable]] = {node: [] for node in nodes}
    missing = {node: len(sources[node]) for node in nodes}
    for node in nodes:
        for source in sources[node]:
            targets[source].append(node)
    ready = [position[node] for node in nodes if not missing[node]]
    run: list[Hashable] = []
    while ready:
        node = nodes[heapq.heappop(ready)]
        run.append(node)
        for target in targets[node]:
            missing[target] -= 1
            if not missing[target]:
                heapq.heappush(ready, position[target])
    if len(run) < len(nodes):
        cycle = _cycle({node for node in nodes if missing[node]}, sources, position)
        names = [f"'{named[node]}'" for node in cycle]
        shown = " -> ".join(names if len(names) <= _SHOWN else [*names[: _SHOWN - 2], "...", names[-1]])
        raise GraphError(f"{place}: the edges form a cycle of {len(cycle) - 1} nodes: {shown}")
    return run


def _cycle(
    left: set[Hashable], sources: Mapping[Hashable, Sequence[Hashable]], position: Mapping[Hashable, int]
) -> list[Hashable]:
    """Every remaining node reads another remaining one, so walking backwards finds a cycle."""
    node = min(left, key=position.__getitem__)
    met: dict[Hashable, int] = {}
    while node not in met:
        met[node] = len(met)
        node = next(source for source in sources[node] if source in left)
    return [*list(met)[met[node] :], node][::-1]
