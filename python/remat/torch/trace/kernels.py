"""Uses the kernels of eager mode where tracing would choose others."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, NoReturn

import torch
from torch import fx

from ..base.errors import UnsupportedModelError
from ..base.modes import Casts
from ..base.private import (
    CUDNN_BATCH_NORM,
    TRACED_BATCH_NORMS,
    DispatchKey,
    _AutoDispatchBelowAutograd,
    _dispatch_get_all_op_names,
    backward_cast,
    cast_once,
    composite_kernel,
    decomposition_table,
    detect_fake_mode,
    forget_kernels,
    storage_id,
    suggest_memory_format,
)
from ..base.products import product_of_batches
from .dropout import DROPOUT, DROPOUT_BACKWARD, dropout, dropout_backward

_LSTM: Any = torch.ops.aten.mkldnn_rnn_layer.default
_LSTM_BACKWARD: Any = torch.ops.aten.mkldnn_rnn_layer_backward.default
_aten: Any = torch.ops.aten
# By op: which argument has the memory format of the first result; None if that is always contiguous.
_NORMS: dict[Any, int | None] = {
    _aten.native_group_norm.default: 0,
    _aten.native_group_norm_backward.default: 1,
    _aten.native_batch_norm.default: 0,
    _aten.native_batch_norm_backward.default: 1,
    **dict.fromkeys(TRACED_BATCH_NORMS, 0),
    _aten.native_layer_norm_backward.default: None,
}
_RECURRENT = {"lstm", "gru", "rnn_tanh", "rnn_relu"}
# Traced as a batch of products where a transposed tensor has more than two dimensions, of which eager mode
# makes one matrix if it can; and in other arithmetic.
_REWRITTEN = {"matmul", "multi_margin_loss"}
_MATMUL: Any = _aten.matmul.default
_INTERPOLATION = "upsample"


def _ops_of(packets: Collection[str], prefix: str | None = None) -> list[Any]:
    """All overloads of them, and of those whose names begin so."""
    ops = []
    for full_name in _dispatch_get_all_op_names():
        namespace, _, name = full_name.partition("::")
        packet, _, overload = name.partition(".")
        begins = prefix is not None and packet.lstrip("_").startswith(prefix)
        if namespace == "aten" and (begins or packet in packets):
            op: Any = getattr(getattr(torch.ops.aten, packet), overload or "default", None)
            if op is not None:
                ops.append(op)
    return ops


@contextmanager
def eager_kernels(device: torch.device, bits: bool = True, casts: Casts = ()) -> Iterator[None]:
    """Trace interpolation, products, recurrent layers, norms and autocast as the ops that eager mode runs.

    PyTorch replaces the first three while tracing by arithmetic in Python, whose results differ from eager's
    in the last bits. On accelerators recurrent layers would be traced as others, which draw other masks, and
    batch norms that eager mode gives to cuDNN as others with other last bits: UnsupportedModelError. bits:
    those of eager mode are wanted; without, such batch norms are traced. It traces batch norms of
    transposed tensors as transposed (on a CPU they are contiguous), the gradients of norms with the strides
    of what comes back, and in 2.14 group norms of channels-last images as contiguous (they are
    channels-last). A weight that is used several times under autocast it casts each time, so that its
    gradients are added in another type. casts: of autocast where the backward is to run.
    """
    on_cpu = device.type == "cpu"
    as_themselves = _ops_of(_REWRITTEN | (_RECURRENT if on_cpu else set()), _INTERPOLATION)
    with (
        _instead(as_themselves, lambda op: _matmul if op is _MATMUL else None),
        _strides_of_norms() if on_cpu else _refused_kernels(bits),
        cast_once(),
        backward_cast(casts),
    ):
        yield


def _matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    made = product_of_batches(a, b)
    if made is None:
        made = composite_kernel(_MATMUL, a, b)
    return made


@contextmanager
def _strides_of_norms() -> Iterator[None]:
    """The functions for strides of norms give those of a CPU."""
    tables: list[tuple[Any, Any, Any]] = [(op, op.py_kernels, DispatchKey.Meta) for op in _NORMS]
    tables += [(op, decomposition_table, op) for op in _NORMS]
    traced = [(op, table, key, table[key]) for op, table, key in tables if key in table]
    for op, table, key, kernel in traced:
        table[key] = _as_on_the_cpu(kernel, _NORMS[op])
        forget_kernels(op)
    try:
        yield
    finally:
        for op, table, key, kernel in traced:
            table[key] = kernel
            forget_kernels(op)


def _as_on_the_cpu(kernel: Callable[..., Any], like: int | None) -> Callable[..., Any]:
    @wraps(kernel)
    def traced(*args: Any, **kwargs: Any) -> Any:
        result, *others = kernel(*args, **kwargs)
        if result is not None:
            memory = torch.contiguous_format if like is None else suggest_memory_format(args[like])
            result = result.contiguous(memory_format=memory)
        return (result, *others)

    return traced


@contextmanager
def _instead(ops: Collection[Any], kernel: Callable[[Any], Any] = lambda op: None) -> Iterator[None]:
    """Replacements of the kernels by which PyTorch traces these ops. None: they are traced as themselves."""
    keys = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)
    known = [(op, key, op.py_kernels.pop(key)) for op in ops for key in keys if key in op.py_kernels]
    for op, key, _ in known:
        other = kernel(op)
        if other is not None:
            op.py_kernels[key] = other
        forget_kernels(op)
    try:
        yield
    finally:
        for op, key, traced in known:
            op.py_kernels[key] = traced
            forget_kernels(op)


@contextmanager
def _refused_kernels(bits: bool) -> Iterator[None]:
    """Raises UnsupportedModelError that names an op which would be traced as another one than eager mode
    runs."""
    ops = [*_ops_of(_RECURRENT), *([CUDNN_BATCH_NORM] if bits else [])]
    try:
        with _instead(ops, _refused):
            yield
    except UnsupportedModelError as error:
        error.args = (str(error).partition("\n")[0],)  # without what FX says of the node
        raise


def _refused(op: Any) -> Callable[..., NoReturn]:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise UnsupportedModelError(
            f"{op}: a trace has other kernels for it than eager mode on an accelerator, with other bits; "
            'executor="eager" trains it as it is'
        )

    return refuse


def _lstm_that_saves(*args: Any) -> Any:
    """oneDNN's LSTM with the workspace that its backward reads: made only where gradients are enabled."""
    with torch.enable_grad(), _AutoDispatchBelowAutograd():
        return _LSTM(*args)


_KERNELS = {_LSTM: _lstm_that_saves, DROPOUT: dropout, DROPOUT_BACKWARD: dropout_backward}


# Marks a node that still runs with PyTorch's kernel.
AS_TRACED = "remat_as_traced"


def is_own(target: Any) -> bool:
    """True for the functions here that replace an op."""
    return target in _KERNELS.values()


def kernel_of(target: Any) -> Any:
    """The function to call for an op of a traced graph."""
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
    """Corrects traced tensors to match the real ones: those with another shape, or with a storage shared with
    another one, are replaced.
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
