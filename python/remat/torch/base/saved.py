"""Tensors that autograd saves for the backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from .errors import UnsupportedModelError
from .held import tensors_held
from .storages import dense_parts, digest


class NotSavedError(Exception):
    """The forward itself requests tensors that autograd saves."""


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


def digests_of(outputs: Any) -> list[bytes]:
    """Of the bits of all tensors in them."""
    return [digest(part) for t in tensors_held(outputs) for part in dense_parts(t)]


def digests_without_saving(forward: Callable[[], Any]) -> list[bytes]:
    """Digests of the outputs of a call with gradients, for which autograd keeps nothing.

    Raises NotSavedError, UnsupportedModelError where that is not possible.
    """
    with watched_saves(_saves_nothing, _has_nothing):
        return digests_of(forward())


def _saves_nothing(tensor: torch.Tensor) -> None:
    del tensor


def _has_nothing(saved: None) -> torch.Tensor:
    raise NotSavedError
