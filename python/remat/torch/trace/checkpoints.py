"""Checkpoints of a model's own, which graphs of Dynamo call with a graph of their own."""

from __future__ import annotations

from typing import Any

from torch import fx

from ..base.nodes import copied
from ..base.private import TagActivationCheckpoint


def has_reentrant_checkpoint(gm: fx.GraphModule) -> bool:
    """True if a graph of Dynamo's, or one within it, has a checkpoint whose backward is one of its own. A
    trace runs all checkpoints as if they were not there."""
    within = [each for each in gm.modules() if isinstance(each, fx.GraphModule)]
    # PyTorch's default is reentrant.
    return any(
        node.kwargs.get("use_reentrant") is not False for each in within for node in _checkpoints(each)
    )


def without_checkpoints(gm: fx.GraphModule) -> fx.GraphModule:
    """The graph with the ops of its checkpoints in their place. Its trace is the same, the masks that those
    ops read are found, and it draws the same numbers when it runs again. Other nodes keep their names."""
    if not _checkpoints(gm):
        return gm
    gm = copied(gm)
    while found := _checkpoints(gm):  # those inside come next
        for node in found:
            _unpack(gm, node)
    gm.recompile()
    return gm


def _checkpoints(gm: fx.GraphModule) -> list[fx.Node]:
    return [node for node in gm.graph.nodes if isinstance(node.target, TagActivationCheckpoint)]


def _unpack(gm: fx.GraphModule, checkpoint: fx.Node) -> None:
    target: Any = checkpoint.target
    body: Any = checkpoint.args[0]
    inner = getattr(gm, body.target)
    _, own = target.divide_kwargs(checkpoint.kwargs)
    given = [*checkpoint.args[1:], *own.values()]
    copies: dict[fx.Node, Any] = dict(zip(inner.graph.find_nodes(op="placeholder"), given, strict=True))
    with gm.graph.inserting_before(checkpoint):
        results: Any = gm.graph.graph_copy(inner.graph, copies)
    for node, copy in copies.items():
        if node.op == "get_attr":
            copy.target = f"{body.target}_{node.target}"
            setattr(gm, copy.target, getattr(inner, str(node.target)))
    for user in list(checkpoint.users):  # they read one of its results each
        user.replace_all_uses_with(results[user.args[1]])
        gm.graph.erase_node(user)
    gm.graph.erase_node(checkpoint)
    if not body.users:
        gm.graph.erase_node(body)
