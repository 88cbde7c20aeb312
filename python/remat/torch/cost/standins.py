"""Synthetic tensors for measuring: shapes, strides, types and bits of a step's tensors, with valid values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_map

from ..base.nodes import body_of
from ..base.private import OpOverload, negated_view, schema

# Distinct values of a synthetic tensor; they are repeated.
DIFFERENT = 1 << 16


# Multiplied by its position, this spreads indices over all rows, with neighbours far apart.
_SPREAD = 2_654_435_761


class Arguments:
    """Tensors like those that a node reads. made: by the traced tensors that they imitate.

    given: values of some of its arguments.
    """

    def __init__(self, node: fx.Node, given: Mapping[fx.Node, Any] | None = None) -> None:
        self.made: dict[fx.Node, Any] = {}
        for seed in on_the_host(node):
            self.made[seed] = torch.zeros((), dtype=torch.int64)
        for index, rows in indices(node):
            self.made[index] = spread(index.meta["val"], rows)
        self.made.update(given or {})

    def of(self, arg: Any) -> Any:
        if isinstance(arg, fx.Node):
            if arg not in self.made:
                self.made[arg] = body_of(arg) or tree_map(stand_in, arg.meta.get("val"))
            return self.made[arg]
        return arg


def arguments_alone(node: fx.Node) -> tuple[Any, Any]:
    """Positional arguments and keywords for the node's op, on tensors like those of the step."""
    arguments = Arguments(node)
    return fx.map_arg(node.args, arguments.of), fx.map_arg(node.kwargs, arguments.of)


def on_the_host(node: fx.Node) -> list[fx.Node]:
    """Arguments traced on an accelerator that are really scalars on the CPU, where the kernel reads them
    ("Note [Seed and Offset Device]" in PyTorch's attention.cu).
    """
    if not isinstance(node.target, OpOverload) or "efficient_attention_backward" not in str(node.target):
        return []
    named = zip(schema(node.target).arguments, node.args, strict=False)
    found = [given for described, given in named if described.name in ("philox_seed", "philox_offset")]
    return [given for given in found if isinstance(given, fx.Node)]


def indices(node: fx.Node) -> list[tuple[fx.Node, int]]:
    """Index arguments, each with its number of rows. An op that picks the same row repeatedly has another
    duration than in a step, a much longer one on a GPU if it adds to rows.
    """
    if not isinstance(node.target, OpOverload):
        return []
    described = schema(node.target)
    given = dict(zip((a.name for a in described.arguments), node.args, strict=False)) | dict(node.kwargs)
    name, found = described.name, []
    if name == "aten::embedding":
        found = [(given["indices"], _shape(given["weight"])[0])]
    elif name == "aten::embedding_dense_backward":
        found = [(given["indices"], given["num_weights"])]
    elif name in ("aten::index_select", "aten::gather", "aten::scatter_add"):
        shape = _shape(given["self"])
        found = [(given["index"], shape[given["dim"]] if shape else 1)]
    elif name in ("aten::index", "aten::index_put", "aten::_unsafe_index", "aten::_unsafe_index_put"):
        found = list(zip(given["indices"], _shape(given["self"]), strict=False))
    integers = [(index, rows) for index, rows in found if isinstance(index, fx.Node) and _is_integer(index)]
    # A mask covers several dimensions.
    return integers if len(integers) == sum(index is not None for index, _ in found) else []


def _shape(node: fx.Node) -> torch.Size:
    shape: torch.Size = node.meta["val"].shape
    return shape


def _is_integer(node: fx.Node) -> bool:
    return node.meta["val"].dtype in (torch.int64, torch.int32)


def spread(val: torch.Tensor, rows: int) -> torch.Tensor:
    """Indices like a traced tensor: spread over all rows, deterministic."""
    indices = stand_in(val)
    numbers = torch.arange(indices.numel(), device=val.device).mul_(_SPREAD).remainder_(max(1, rows))
    return indices.copy_(numbers.view(val.shape)) if _is_dense(val) else indices


def _is_dense(val: torch.Tensor) -> bool:
    """True if no two elements share memory."""
    return val.numel() * val.element_size() <= val.untyped_storage().nbytes() and 0 not in val.stride()


def stand_in(val: Any) -> Any:
    """A real tensor like a traced one: small positive numbers, zeros for integers (valid as any index, but
    see `indices`), all true.
    """
    if not isinstance(val, torch.Tensor):
        return val
    # All of the storage, as some ops copy the whole of it.
    flat = torch.empty(
        val.untyped_storage().nbytes() // val.dtype.itemsize, dtype=val.dtype, device=val.device
    )
    if val.dtype is torch.bool:
        flat.fill_(True)
    elif val.dtype.is_floating_point and val.dtype.itemsize > 1:
        _fill(flat)
    elif val.dtype.is_complex:
        _fill(torch.view_as_real(flat).view(-1))
    else:
        flat.zero_()
    return _with_bits(flat.as_strided(val.shape, val.stride(), val.storage_offset()), val)


def _with_bits(made: torch.Tensor, val: torch.Tensor) -> torch.Tensor:
    """Conjugated or negated views if the traced tensor is one: most kernels copy these."""
    if val.is_conj():
        made = made.conj()
    return negated_view(made) if val.is_neg() else made


def _fill(flat: torch.Tensor) -> None:
    """Small positive numbers, repeated: drawing all of them takes longer than many ops."""
    drawn = flat[:DIFFERENT].uniform_(0.25, 0.75)
    whole = flat.numel() // DIFFERENT * DIFFERENT
    if whole > 0:
        flat[:whole].view(-1, DIFFERENT)[1:] = drawn
        flat[whole:] = drawn[: flat.numel() - whole]
