"""Kept tensors with their write counts."""

from __future__ import annotations

from typing import TypeVar

import torch

from ..base.private import (
    conjugated_view,
    negated_view,
    with_autograd_in_dispatch,
    without_dispatch_modes,
    write_count,
)
from .kinds import changed_in_place, detached

_Kept = TypeVar("_Kept", bound="Kept")


class Kept:
    """A tensor that a run reads or autograd saves, kept with its write count.

    version: None where it may be written to.
    """

    __slots__ = ("__weakref__", "tensor", "version")

    def __init__(self, tensor: torch.Tensor, checked: bool = True) -> None:
        self.tensor = tensor
        self.version = write_count(tensor) if checked else None

    @classmethod
    def read(cls: type[_Kept], tensor: torch.Tensor, checked: bool, apart: bool = False) -> _Kept:
        """For an op's input as its dispatch mode sees it: a detached tensor there would count writes
        separately.
        apart: also separate from Python's tensor.
        """
        if apart or tensor.grad_fn is not None:
            with with_autograd_in_dispatch():
                tensor = tensor.detach()
        return cls(tensor, checked)

    @classmethod
    def saved(cls, tensor: torch.Tensor) -> Kept:
        """For autograd; an output would hold the autograd node."""
        return cls(tensor if tensor.grad_fn is None else detached(tensor))

    @classmethod
    def since(cls, tensor: torch.Tensor, version: int) -> Kept:
        """For a tensor that had this write count when it was saved."""
        kept = cls(tensor)
        kept.version = version
        return kept

    def checked(self) -> torch.Tensor:
        """The tensor. Raises RuntimeError if it was written to."""
        if self.version is not None and self.is_changed():
            raise RuntimeError(changed_in_place(self.tensor, self.version))
        return self.tensor

    @classmethod
    def apart(cls, tensor: torch.Tensor) -> Kept:
        """From the tensor as Python has it."""
        return cls(detached(tensor))

    def is_changed(self) -> bool:
        return self.version is not None and write_count(self.tensor) != self.version

    def copy_first(self) -> None:
        """Copies the tensor, which is about to be written to."""
        with torch.no_grad(), without_dispatch_modes():
            self.tensor = copy_of(self.tensor)
        self.version = None


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the layout of the tensor."""
    own = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    memory = tensor.untyped_storage().clone()
    own.set_(memory, tensor.storage_offset(), tensor.shape, tensor.stride())  # type: ignore[call-overload]
    own = conjugated_view(own) if tensor.is_conj() else own
    return negated_view(own) if tensor.is_neg() else own
