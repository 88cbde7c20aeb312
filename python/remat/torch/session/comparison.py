"""Compares a step with the same step in eager mode, with little memory of the device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch

from ..base.errors import HostMemoryError
from ..base.private import is_transformed, storage_id, without_dispatch_modes
from ..base.saved import NotSavedError, digests_of, watched_saves
from ..run.channels import MappedFile, folder_on_disk, move
from .proof import takes_gradient, tangents_of

# Kinds of results.
OUTPUTS, GRADIENTS = "outputs", "gradients"

# Digests of their bits, or the type of the error that computing them raised.
Made = Mapping[str, Any]

# Of the addresses of storages, in bytes.
_ALIGNMENT = 64


def made_by(
    call: Callable[[], Any], roots_of: Callable[[Any], list[torch.Tensor]], sources: list[torch.Tensor]
) -> Made:
    """Digests of the outputs of a call and of the gradients of `sources`.

    roots_of: the tensors in the outputs from which the backward starts. There are no gradients where what
    they need was not saved.
    """
    outputs = call()
    made: dict[str, Any] = {OUTPUTS: digests_of(outputs)}
    roots = [each for each in roots_of(outputs) if takes_gradient(each)]
    del outputs
    if not roots or not sources:
        return made
    try:
        gradients = torch.autograd.grad(roots, sources, tangents_of(roots), allow_unused=True)
    except NotSavedError:
        return made
    except RuntimeError as error:  # of a backward that training never runs
        made[GRADIENTS] = type(error)
    else:
        made[GRADIENTS] = [None if each is None else digests_of(each) for each in gradients]
    return made


def differs_in(made: Made, expected: Made) -> str | None:
    """The first kind of result that differs, of those that both have."""
    return next((kind for kind in made if kind in expected and made[kind] != expected[kind]), None)


class HostSaves:
    """Keeps what autograd saves on the host, for the CPU in files on disk. What comes back has the same
    strides and alignment, by which kernels choose.

    present: tensors that are in memory anyway.
    """

    def __init__(self, present: Iterable[torch.Tensor]) -> None:
        self._present = {storage_id(t) for t in present if _is_dense(t)}

    def watched(self) -> AbstractContextManager[None]:
        return watched_saves(self._pack, self._unpack)

    def _pack(self, tensor: torch.Tensor) -> Any:
        # Inside transforms, tensors may have no memory of their own.
        if is_transformed() or not _is_dense(tensor) or not tensor.numel():
            return tensor.detach()
        if storage_id(tensor) in self._present:
            return tensor.detach()
        try:
            return _Copy(tensor.detach())
        except (HostMemoryError, MemoryError):
            return None

    def _unpack(self, saved: Any) -> torch.Tensor:
        if saved is None:
            raise NotSavedError
        return saved if isinstance(saved, torch.Tensor) else saved.back()


class _Copy:
    """On the host, of a tensor's part of its storage."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._size, self._stride, self._dtype = tensor.size(), tensor.stride(), tensor.dtype
        self._device = tensor.device
        self._length = 1 + sum((n - 1) * step for n, step in zip(self._size, self._stride, strict=True))
        self._start = tensor.data_ptr() % _ALIGNMENT // tensor.element_size()
        with torch.no_grad(), without_dispatch_modes():
            self._there = self._out(tensor.as_strided((self._length,), (1,), tensor.storage_offset()))

    def _out(self, flat: torch.Tensor) -> Any:
        if flat.device.type != "cpu":
            return flat.cpu()
        file = MappedFile(folder_on_disk(), flat.nbytes)
        move(file.address, flat.data_ptr(), flat.nbytes)
        return file

    def back(self) -> torch.Tensor:
        with torch.no_grad(), without_dispatch_modes():
            made = torch.empty(self._start + self._length, dtype=self._dtype, device=self._device)
            flat = made[self._start :]
            if isinstance(self._there, MappedFile):
                move(flat.data_ptr(), self._there.address, flat.nbytes)
            else:
                flat.copy_(self._there)
            return made.as_strided(self._size, self._stride, self._start)


def _is_dense(tensor: torch.Tensor) -> bool:
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
    return plain and tensor.layout is torch.strided and not (tensor.is_conj() or tensor.is_neg())
