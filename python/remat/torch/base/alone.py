"""Runs single ops: their surroundings, and numbers for their inputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .generators import generators_kept
from .private import _DisableAutocast

# Numbers drawn; larger tensors repeat them.
_DRAWN = 1 << 16
# Special values (infinities, NaN, ...), by their first position; a denormal per type is added.
_STRANGE = ((7, 0.0), (11, -0.0), (101, float("nan")), (103, float("inf")), (107, -float("inf")))
_DENORMAL = 109


@contextmanager
def undisturbed() -> Iterator[None]:
    """Without gradients and autocast; restores the generators."""
    no_autocast: Any = _DisableAutocast
    with torch.no_grad(), no_autocast(), generators_kept():
        yield


def vary(tensor: torch.Tensor, strange: bool) -> None:
    """Fill the whole storage of floating-point numbers with some of both signs.

    strange: include infinities, zeros of both signs, denormal numbers and NaN.
    """
    flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())
    if flat.element_size() == 1:
        return
    if flat.is_complex():
        flat = torch.view_as_real(flat).view(-1)
    drawn = torch.randn(min(flat.numel(), _DRAWN), device=flat.device).to(flat.dtype)
    for begin in range(0, flat.numel(), _DRAWN):
        part = flat[begin : begin + _DRAWN]
        part.copy_(drawn[: part.numel()])
    if strange and flat.numel() > 0:
        _make_strange(flat)


def _make_strange(flat: torch.Tensor) -> None:
    numbers = (*_STRANGE, (_DENORMAL, torch.finfo(flat.dtype).tiny / 8))
    if flat.numel() > _DENORMAL:
        for place, number in numbers:
            flat[place :: 1 + place * 13] = number
        return
    for _ in range(1 + flat.numel() // 8):
        which, place = torch.randint(len(numbers), ()).item(), torch.randint(flat.numel(), ()).item()
        flat[int(place)] = numbers[int(which)][1]
