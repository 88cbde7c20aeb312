"""Leaves that code may write to as it may write to results of ops."""

from __future__ import annotations

from typing import Any

import torch

from .private import without_dispatch_modes


class _Shown(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, leaf: torch.Tensor) -> torch.Tensor:
        return leaf.data  # a view could not be written to

    @staticmethod
    def backward(_ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def as_result(leaf: torch.Tensor) -> torch.Tensor:
    """A tensor that shows the memory of a leaf, and is none: code may write to it."""
    with without_dispatch_modes():
        shown: Any = _Shown.apply(leaf)
    assert isinstance(shown, torch.Tensor)
    return shown


def is_written_leaf(error: RuntimeError) -> bool:
    """True if autograd refuses that a leaf is written to."""
    return "leaf Variable that requires grad" in str(error)
