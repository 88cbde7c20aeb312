"""Views that need not be emitted, since an equal tensor exists."""

from __future__ import annotations

import torch
from torch import fx

from ..base.nodes import geometry

aten = torch.ops.aten

_VIEWS = (aten.view.default, aten._unsafe_view.default)

# Ops that can return their whole input unchanged.
_MAY_SHOW_THE_SAME = {
    *_VIEWS,
    aten.expand.default,
    aten.slice.Tensor,
    aten.permute.default,
    aten.alias.default,
    aten.detach.default,
}


def shows_the_same(node: fx.Node) -> bool:
    """True if strides are equal as well. A real view has other strides for dimensions of size 1 than a traced
    one, and matrix products depend on them.
    """
    if node.target not in _MAY_SHOW_THE_SAME:
        return False
    base, shown = node.all_input_nodes[0].meta.get("val"), node.meta.get("val")
    if node.target in _VIEWS and isinstance(shown, torch.Tensor) and 1 in shown.shape:
        return False
    return (
        isinstance(base, torch.Tensor)
        and isinstance(shown, torch.Tensor)
        and geometry(base) == geometry(shown)
        and (base.is_conj(), base.is_neg()) == (shown.is_conj(), shown.is_neg())
    )
