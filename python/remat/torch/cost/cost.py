"""The cost of an op, and the signature that equal ops share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ..base.nodes import body_of, storage_bytes, tensors_of
from ..base.private import storage_id
from ..trace.gradients import end_of, takes_gradient, touched
from ..trace.inplace import OVER
from ..trace.kernels import AS_TRACED

# Of a tensor: the offset in its storage, the bytes of that, and the strides.
Layout = tuple[int, ...]


@dataclass(frozen=True)
class Cost:
    """duration in ns; workspace in bytes on top of the op's inputs and outputs.

    outputs: bytes of the storages that the op really makes, in order: those of traced tensors can be smaller.
    layouts: of the tensors that it really makes, if the trace has other ones.
    """

    duration: int
    workspace: int
    outputs: tuple[int, ...] = ()
    layouts: tuple[Layout, ...] = ()


def storages_of(result: Any) -> tuple[int, ...]:
    """Bytes of the storages of an op's results, real or traced, in order."""
    sizes: dict[int, int] = {}
    for tensor in tensors_of(result):
        sizes.setdefault(storage_id(tensor), storage_bytes(tensor))
    return tuple(sizes.values())


# Called with (measured so far, to measure).
Progress = Callable[[int, int], None]


def signature(node: fx.Node) -> str:
    """What makes two nodes the same op: target, types, shapes, strides, types of devices, storages, and all
    other arguments.
    """
    if takes_gradient(node):
        end = end_of(node)
        return f"{end.kind} {end.like} {_described(touched(node))}"
    over = f" over {node.meta[OVER]}" if OVER in node.meta else ""
    traced = " as traced" if AS_TRACED in node.meta else ""
    return call_signature(node.target, node.args, node.kwargs) + over + traced


def call_signature(target: Any, args: Any, kwargs: Any) -> str:
    """The same of a call, with tensors or with the nodes that show them."""
    return f"{target} {_described(args)} {_described(kwargs)}"


def _described(arg: Any) -> Any:
    if isinstance(arg, fx.Node):
        body = body_of(arg)
        return body.code if body is not None else _described(arg.meta.get("val"))
    if isinstance(arg, torch.Tensor):
        storage = f"{arg.storage_offset()}/{arg.untyped_storage().nbytes()}"
        bits = " conj" * arg.is_conj() + " neg" * arg.is_neg()
        return f"{arg.dtype}{tuple(arg.shape)}{tuple(arg.stride())}{arg.device.type}{storage}{bits}"
    if isinstance(arg, torch.device):
        return arg.type
    if isinstance(arg, (tuple, list)):
        return [_described(a) for a in arg]
    if isinstance(arg, dict):
        return {k: _described(v) for k, v in arg.items()}
    return repr(arg)
