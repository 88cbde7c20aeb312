"""Tensors that autograd saves for the backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from .errors import UnsupportedModelError


@contextmanager
def watched_saves(
    pack: Callable[[torch.Tensor], Any], unpack: Callable[[Any], torch.Tensor]
) -> Iterator[None]:
    """`saved_tensors_hooks`, with an error in one line where code inside allows no such hooks.

    Raises UnsupportedModelError.
    """
    try:
        with saved_tensors_hooks(pack, unpack):
            yield
    except RuntimeError as error:
        # The text of torch/_functorch/vmap.py; the error has no type of its own.
        if "yet support saved tensor hooks" not in str(error):
            raise
        raise UnsupportedModelError(
            'executor="eager" cannot run torch.func.grad, vjp, jacrev or hessian inside a model: PyTorch '
            "allows them no hooks for saved tensors"
        ) from error
