"""The kernels of eager mode where tracing would take others."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import fx

from ..base.private import (
    DispatchKey,
    _AutoDispatchBelowAutograd,
    _dispatch_get_all_op_names,
    detect_fake_mode,
    forget_kernels,
    storage_id,
    suggest_memory_format,
)

_LSTM: Any = torch.ops.aten.mkldnn_rnn_layer.default
_LSTM_BACKWARD: Any = torch.ops.aten.mkldnn_rnn_layer_backward.default
_GROUP_NORM: Any = torch.ops.aten.native_group_norm.default
_DROPOUT: Any = torch.ops.aten.native_dropout.default
_DROPOUT_BACKWARD: Any = torch.ops.aten.native_dropout_backward.default
_RECURRENT = {"lstm", "gru", "rnn_tanh", "rnn_relu"}


def _decomposed_ops() -> list[Any]:
    ops = []
    for full_name in _dispatch_get_all_op_names():
        namespace, _, name = full_name.partition("::")
        packet, _, overload = name.partition(".")
        if namespace == "aten" and (packet.lstrip("_").startswith("upsample") or packet in _RECURRENT):
            op: Any = getattr(getattr(torch.ops.aten, packet), overload or "default", None)
            if op is not None:
                ops.append(op)
    return ops


@contextmanager
def eager_kernels(device: torch.device) -> Iterator[None]:
    """Trace interpolation, recurrent layers and group norms as the ops that eager mode runs on the device.

    PyTorch replaces the first two while tracing by arithmetic in Python, whose results differ from eager's in
    the last bits. 2.14 takes group norms of channels-last images for contiguous, which they are not on a CPU.
    """
    with _replaced_kernels(), _group_norm_strides() if device.type == "cpu" else nullcontext():
        yield


@contextmanager
def _group_norm_strides() -> Iterator[None]:
    meta = _GROUP_NORM.py_kernels.get(DispatchKey.Meta)
    if meta is None:
        yield
        return

    def as_on_the_cpu(x: torch.Tensor, *args: Any) -> tuple[torch.Tensor, ...]:
        result, *statistics = meta(x, *args)
        return (result.contiguous(memory_format=suggest_memory_format(x)), *statistics)

    _GROUP_NORM.py_kernels[DispatchKey.Meta] = as_on_the_cpu
    forget_kernels(_GROUP_NORM)
    try:
        yield
    finally:
        _GROUP_NORM.py_kernels[DispatchKey.Meta] = meta
        forget_kernels(_GROUP_NORM)


@contextmanager
def _replaced_kernels() -> Iterator[None]:
    keys = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)
    ops = _decomposed_ops()
    removed = [(op, key, op.py_kernels.pop(key)) for op in ops for key in keys if key in op.py_kernels]
    for op, _, _ in removed:
        forget_kernels(op)
    try:
        yield
    finally:
        for op, key, kernel in removed:
            op.py_kernels[key] = kernel
            forget_kernels(op)


def _lstm_that_saves(*args: Any) -> Any:
    """oneDNN's LSTM with the workspace that its backward reads: made only where gradients are enabled."""
    with torch.enable_grad(), _AutoDispatchBelowAutograd():
        return _LSTM(*args)


def _scaled(mask: torch.Tensor, keep: float, dtype: torch.dtype) -> torch.Tensor:
    """What eager mode multiplies with: 1 / keep where the mask is true, 0 elsewhere."""
    # Booleans are converted far more slowly than the bytes that they are.
    return mask.view(torch.uint8).to(dtype).div_(keep)


def _dropout(x: torch.Tensor, p: float, train: bool | None) -> Any:
    """`native_dropout` on the CPU, in fewer passes and with the roundings of eager mode in every type."""
    if not train or not 0 < p < 1 or not x.is_floating_point() or x.device.type != "cpu":
        return _DROPOUT(x, p, train)
    mask = torch.empty_like(x, dtype=torch.bool).bernoulli_(1 - p)
    return _scaled(mask, 1 - p, x.dtype).mul_(x), mask


def _dropout_backward(gradient: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    if scale <= 0 or not gradient.is_floating_point() or gradient.device.type != "cpu":
        return _DROPOUT_BACKWARD(gradient, mask, scale)
    return _scaled(mask, 1 / scale, gradient.dtype).mul_(gradient)


_KERNELS = {_LSTM: _lstm_that_saves, _DROPOUT: _dropout, _DROPOUT_BACKWARD: _dropout_backward}


def is_own(target: Any) -> bool:
    """Is it one of the functions here that stand for an op?"""
    return target in _KERNELS.values()


def kernel_of(target: Any) -> Any:
    """What to call for an op of a traced graph."""
    return _KERNELS.get(target, target)


def correct_sizes(gm: fx.GraphModule, run: Callable[[fx.Node], Any]) -> None:
    """Give the outputs of recurrent layers the storages that they really have.

    run: runs a node on tensors made for the purpose. The workspace that oneDNN's LSTM saves for its backward
    is traced as empty, and the gradients of its two biases as one tensor.
    """
    for target in (_LSTM, _LSTM_BACKWARD):
        for node in gm.graph.find_nodes(op="call_function", target=target):
            node.meta["val"] = _as_real(node.meta["val"], run(node))
            for user in node.users:
                if user.target is operator.getitem:
                    user.meta["val"] = node.meta["val"][user.args[1]]


def _as_real(traced: Any, real: Any) -> Any:
    """Traced tensors like the real ones: those that differ in shape, or show a storage that another of them
    shows, are made anew.
    """
    mode: Any = detect_fake_mode(traced)
    seen: set[int] = set()
    corrected = []
    with mode:
        for old, new in zip(traced, real, strict=True):
            if old.shape != new.shape or storage_id(old) in seen:
                old = torch.empty_strided(new.shape, new.stride(), dtype=new.dtype, device=new.device)
            seen.add(storage_id(old))
            corrected.append(old)
    return type(traced)(corrected)
