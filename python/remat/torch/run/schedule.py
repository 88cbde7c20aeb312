"""Predicts Inductor's schedule of both halves: stored results, and when they are made and freed.

Inductor fuses ops, so that many results are never stored; it orders ops, and reuses buffers. All of that is
in the Python code that it writes around its kernels. Here that code runs on fake tensors, with kernels that
do nothing, and the live ranges of storages are tracked: so the peak is known before anything is compiled or
run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves, tree_map

from ..base.alone import undisturbed
from ..base.errors import UnsupportedModelError, log
from ..base.nodes import copied, storage_bytes
from ..base.private import (
    FakeTensor,
    InductorCode,
    OpOverload,
    TorchDispatchMode,
    _disable_current_modes,
    inductor_code,
    is_tangent,
    schema,
    without_kernels,
)
from ..cost.profile import measure_op
from .rewrite import Halves


@dataclass(frozen=True)
class Schedule:
    """Peak bytes above the memory at the begin of a step: in each half, and during the caller's loss between
    them.
    """

    forward: int
    between: int
    backward: int

    @property
    def rise(self) -> int:
        return max(self.forward, self.between, self.backward)


class Workspaces:
    """Workspaces of kernels other than Inductor's own, measured once for each kind of call."""

    def __init__(self) -> None:
        self._known: dict[Any, int] = {}

    def of(self, func: OpOverload, args: Any, kwargs: Any, result: Any) -> int:
        key = (func, str(tree_map(_described, (args, kwargs))))
        if key not in self._known:
            self._known[key] = self._measured(func, args, kwargs, result)
        return self._known[key]

    def _measured(self, func: OpOverload, args: Any, kwargs: Any, result: Any) -> int:
        graph = fx.Graph()

        def as_node(item: Any) -> Any:
            if not isinstance(item, torch.Tensor):
                return item
            node = graph.placeholder(f"input_{len(graph.nodes)}")
            node.meta["val"] = item
            return node

        given = tree_map(as_node, tuple(args)), tree_map(as_node, dict(kwargs))
        node = graph.call_function(func, *given)
        node.meta["val"] = result
        try:
            with _disable_current_modes(), undisturbed():
                return measure_op(node, for_compiler=True).workspace
        except UnsupportedModelError as error:
            log.debug("taken to need no workspace: %s", error)
            return 0
        finally:
            for each in graph.nodes:  # a reference cycle, which would hold the tensors until it is collected
                each.meta.clear()


def _described(item: Any) -> Any:
    if isinstance(item, torch.Tensor):
        return (item.shape, item.stride(), item.dtype, item.device)
    return item


class _Meter(TorchDispatchMode):
    """Follows the storages that ops make. top: the highest level of their bytes since it was last reset."""

    supports_higher_order_operators = True

    def __init__(self, workspaces: Workspaces) -> None:
        super().__init__()
        self.top = 0
        self._workspaces = workspaces
        # By storage: while it is referenced, its address is not reused.
        self._refs: dict[int, StorageWeakRef] = {}
        self._bytes: dict[int, int] = {}

    def know(self, tensor: torch.Tensor, counts: bool = True) -> None:
        """counts: False for storages from before the step."""
        ref = StorageWeakRef(tensor.untyped_storage())
        if ref.cdata not in self._refs:
            self._refs[ref.cdata] = ref
            self._bytes[ref.cdata] = storage_bytes(tensor) if counts else 0

    def level(self) -> int:
        for number in [number for number, ref in self._refs.items() if ref.expired()]:
            del self._refs[number], self._bytes[number]
        return sum(self._bytes.values())

    def reset(self) -> None:
        self.top = self.level()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        self.level()  # freed storages are subtracted
        result = func(*args, **kwargs)
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.know(leaf)
        workspace = 0
        if isinstance(func, OpOverload) and not func.is_view and not _only_allocates(func):
            workspace = self._workspaces.of(func, args, kwargs, result)
        self.top = max(self.top, self.level() + workspace)
        return result


def _only_allocates(func: OpOverload) -> bool:
    return schema(func).name in ("aten::empty_strided", "aten::empty", "aten::detach")


def scheduled(
    halves: Halves,
    num_forward_outputs: int,
    dropped: Collection[int],
    workspaces: Workspaces,
    loss: tuple[int, int] = (0, 0),
) -> Schedule:
    """Inductor's schedule of the two halves of a plan, which are not changed. Must be called where
    AOTAutograd calls Inductor's partitioner.

    num_forward_outputs: number of the forward half's results that belong to the caller; the others are saved.
    dropped: indices of those that are not held when the backward starts. loss: bytes of the caller's loss
    during its computation, and from then to the end. Raises errors of Inductor, and an error if its code does
    something unknown.
    """
    forward, backward = copied(halves.forward), copied(halves.backward)
    given = [node.meta["val"] for node in forward.graph.find_nodes(op="placeholder")]
    meter = _Meter(workspaces)
    for tensor in given:
        if isinstance(tensor, torch.Tensor):
            meter.know(tensor, counts=False)
    made = _followed(inductor_code(forward, given, num_forward_outputs), list(given), meter)
    top = meter.top
    saved = iter(made[num_forward_outputs:])
    held = [result for i, result in enumerate(made[:num_forward_outputs]) if i not in dropped]
    del made
    placeholders = backward.graph.find_nodes(op="placeholder")
    with meter:
        arguments = [
            torch.empty_like(node.meta["val"]) if is_tangent(node) else next(saved) for node in placeholders
        ]
    if next(saved, None) is not None:
        raise AssertionError("the forward saves something that the backward does not take")
    meter.reset()
    between = meter.top
    # Inductor keeps what it is shown.
    shown = [torch.empty_like(a) if isinstance(a, torch.Tensor) else a for a in arguments]
    code = inductor_code(backward, shown, visible=None)
    gradients = _followed(code, arguments, meter)
    del gradients, held
    workspace, stays = loss
    return Schedule(top, between + workspace + stays, meter.top + stays)


def _followed(code: InductorCode | None, arguments: list[Any], meter: _Meter) -> list[Any]:
    """The results of the code on fake tensors. It empties the list of arguments."""
    if code is None:
        raise AssertionError("Inductor writes no code for a half that computes nothing")
    fake_mode = next(a.fake_mode for a in arguments if isinstance(a, FakeTensor))
    with _disable_current_modes(), torch.no_grad():
        call = without_kernels(code, fake_mode)
        with fake_mode, meter:
            return list(call(arguments))
