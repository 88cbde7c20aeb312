"""Views that need not be emitted: what they show is at hand."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

aten = torch.ops.aten

# Ops that can show all of what they read just as it is.
_MAY_SHOW_THE_SAME = {
    aten.view.default,
    aten._unsafe_view.default,
    aten.expand.default,
    aten.slice.Tensor,
    aten.permute.default,
    aten.alias.default,
    aten.detach.default,
}


def shows_the_same(node: fx.Node) -> bool:
    if node.target not in _MAY_SHOW_THE_SAME:
        return False
    base, shown = node.all_input_nodes[0].meta.get("val"), node.meta.get("val")
    return (
        isinstance(base, torch.Tensor)
        and isinstance(shown, torch.Tensor)
        and base.shape == shown.shape
        and base.stride() == shown.stride()
        and base.storage_offset() == shown.storage_offset()
        and base.dtype is shown.dtype
        and (base.is_conj(), base.is_neg()) == (shown.is_conj(), shown.is_neg())
    )


_VIEWS = (aten.view.default, aten._unsafe_view.default)


def viewed(node: fx.Node) -> Any:
    """The arguments of a view, past other views of something contiguous."""
    args = node.args
    while node.target in _VIEWS:
        base = args[0]
        if not isinstance(base, fx.Node) or base.target not in _VIEWS:
            break
        below = base.args[0]
        if not isinstance(below, fx.Node) or not below.meta["val"].is_contiguous():
            break
        args = (below, *args[1:])
    return args
