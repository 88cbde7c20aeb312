"""The kernels of eager mode where tracing would take others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def _upsampling_ops() -> list[Any]:
    ops = []
    for full_name in torch._C._dispatch_get_all_op_names():
        namespace, _, name = full_name.partition("::")
        if namespace == "aten" and name.lstrip("_").startswith("upsample"):
            packet, _, overload = name.partition(".")
            op: Any = getattr(getattr(torch.ops.aten, packet), overload or "default", None)
            if op is not None:
                ops.append(op)
    return ops


@contextmanager
def eager_upsampling() -> Iterator[None]:
    """Trace interpolation as the op that eager mode runs.

    PyTorch replaces it while tracing by arithmetic in Python, whose gradients differ from eager's in the last
    bits.
    """
    keys = (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd)
    ops = _upsampling_ops()
    removed = [(op, key, op.py_kernels.pop(key)) for op in ops for key in keys if key in op.py_kernels]
    for op, _, _ in removed:
        op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op, key, kernel in removed:
            op.py_kernels[key] = kernel
            op._dispatch_cache.clear()
