"""Dropout on the CPU with the bits of eager mode, where that is verified.

Tracing gives `native_dropout`, whose kernel draws the same numbers but rounds differently.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.nn.functional import dropout as eager_dropout

from ..base.alone import undisturbed
from ..base.storages import same_bits
from .compared import Layout, fewer_elements
from .tangents import same_strides

DROPOUT: Any = torch.ops.aten.native_dropout.default
DROPOUT_BACKWARD: Any = torch.ops.aten.native_dropout_backward.default
# A second rate to compare, beside the first one met: the rate is only a divisor.
_RATE = 0.3
# Of layouts that are known.
_MOST = 1 << 12


def _scaled(mask: torch.Tensor, keep: float, dtype: torch.dtype) -> torch.Tensor:
    """The factor of eager mode: 1 / keep where the mask is true, 0 elsewhere."""
    # Booleans are converted far more slowly than the bytes that they are.
    return mask.view(torch.uint8).to(dtype).div_(keep)


def _forward(x: torch.Tensor, p: float) -> tuple[torch.Tensor, torch.Tensor]:
    mask = torch.empty_like(x, dtype=torch.bool).bernoulli_(1 - p)
    return _scaled(mask, 1 - p, x.dtype).mul_(x), mask


def _backward(gradient: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    factors = _scaled(mask, 1 / scale, gradient.dtype)
    # The product has the layout of the gradient, not of dropout's input.
    alike = same_strides(gradient.shape, factors.stride(), gradient.stride())
    return factors.mul_(gradient) if alike else gradient * factors


def dropout(x: torch.Tensor, p: float, train: bool | None) -> Any:
    """`native_dropout` in fewer passes, and with the roundings of eager mode."""
    if not train or not 0 < p < 1 or not _may_be_shown(x) or not _is_shown(x, x, p):
        return DROPOUT(x, p, train)
    return _forward(x, p)


def dropout_backward(gradient: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    if scale <= 1 or not _may_be_shown(gradient):
        return DROPOUT_BACKWARD(gradient, mask, scale)
    if not _is_shown(mask, gradient, 1 - 1 / scale):
        return DROPOUT_BACKWARD(gradient, mask, scale)
    return _backward(gradient, mask, scale)


def _may_be_shown(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.device.type == "cpu"


# Results of this process, by layouts of the input and the gradient.
_seen: dict[Any, bool] = {}


def show_dropout(gm: fx.GraphModule) -> None:
    """Compare it for the dropouts of a graph, before anything of them is measured."""
    for target, read in ((DROPOUT, 0), (DROPOUT_BACKWARD, 1)):
        for node in gm.graph.find_nodes(op="call_function", target=target):
            x, gradient = (node.args[at].meta["val"] for at in (read, 0))
            known = all(isinstance(size, int) for t in (x, gradient) for size in (*t.shape, *t.stride()))
            if known and _may_be_shown(gradient):
                _is_shown(x, gradient, _RATE)


def _is_shown(read: torch.Tensor, gradient: torch.Tensor, p: float) -> bool:
    """True if it makes the bits and layouts of eager mode, and leaves the generator in the same state.

    read: dropout's input, or its mask; values are not used.
    """
    key = (read.shape, read.stride(), read.storage_offset() % 64), (gradient.stride(), gradient.dtype)
    found = _seen.get(key)
    if found is None:
        if len(_seen) >= _MOST:
            _seen.clear()
        sizes = fewer_elements(read.shape)
        layouts = Layout.of(read).of_type(gradient.dtype), Layout.of(gradient)
        try:
            with undisturbed():
                found = _compare(layouts[0].sized(sizes), layouts[1].sized(sizes), p)
        except (RuntimeError, NotImplementedError):  # of what cannot run alone
            found = False
        _seen[key] = found
    return found


def _compare(read: Layout, gradient: Layout, p: float) -> bool:
    torch.manual_seed(0)
    return all(_is_same(read, gradient, *case) for case in ((p, True), (_RATE, False)))


def _is_same(read: Layout, gradient: Layout, p: float, strange: bool) -> bool:
    x, given = read.made(strange, 1), gradient.made(strange, 1)
    before = torch.get_rng_state()
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        expected = eager_dropout(leaf, p)
        (expected_back,) = torch.autograd.grad(expected, leaf, given)
    after = torch.get_rng_state()
    torch.set_rng_state(before)
    found, mask = _forward(x, p)
    back = _backward(given, mask, 1 / (1 - p))
    return torch.equal(after, torch.get_rng_state()) and all(
        mine.stride() == own.stride() and same_bits(mine, own.detach())
        for mine, own in ((found, expected), (back, expected_back))
    )
