"""The memory of tensors: storages by address."""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves

from .held import tensors_held
from .nodes import storage_bytes
from .private import FakeTensor, entries_of_sparse, local_part, storage_number, without_dispatch_modes

# Bytes copied at once to compare tensors, small since a step may have little room.
_PIECE = 256 * 1024


def tensor_storages(root: Any, device_type: str | None = None) -> dict[int, int]:
    """Address and bytes of every storage in a tensor, module, optimizer or container, gradients included; on
    accelerators whole blocks.

    device_type: only storages on such a device; None takes all.
    """
    found: dict[int, int] = {}
    for leaf in tree_leaves(root):
        tensors = [leaf]
        if isinstance(leaf, torch.nn.Module):
            tensors = [*leaf.parameters(), *leaf.buffers()]
        elif isinstance(leaf, torch.optim.Optimizer):
            tensors = [t for t in tree_leaves(dict(leaf.state)) if isinstance(t, torch.Tensor)]
        for tensor in tensors:
            if isinstance(tensor, torch.Tensor):
                _add_storage(found, tensor, device_type)
    return found


def shown_bytes(items: Iterable[Any], device_type: str) -> int:
    """Bytes of the storages on such a device that the tensors among these show, gradients aside. Cheap."""
    found: dict[int, int] = {}
    for item in items:
        if not isinstance(item, torch.Tensor) or item.device.type != device_type:
            continue
        try:
            storage = item.untyped_storage()
        except (RuntimeError, NotImplementedError):  # sparse and wrapper tensors have none
            continue
        found[storage_number(storage)] = storage.nbytes()
    return sum(found.values())


def storages_held(root: Any, device_type: str) -> dict[int, int]:
    """The same of an object of any class. An iterator is used up."""
    return tensor_storages(_items_of(root), device_type)


def _items_of(root: Any) -> list[Any]:
    """The tensors, modules and optimizers in an object."""
    found: list[Any] = []
    for leaf in tree_leaves(root):
        if isinstance(leaf, (torch.nn.Module, torch.optim.Optimizer)):
            found.append(leaf)
        else:
            found += _items_of(list(leaf)) if isinstance(leaf, Iterator) else tensors_held(leaf)
    return found


def has_data(tensor: torch.Tensor) -> bool:
    """False for tensors without memory: fake, or on the device "meta"."""
    return not (tensor.is_meta or isinstance(tensor, FakeTensor))


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of the tensor's elements, whatever its strides."""
    dense = tensor.detach().resolve_conj().resolve_neg().contiguous()
    # One element has any stride, also where it counts as contiguous.
    return dense.as_strided((dense.numel(),), (1,)).view(torch.uint8)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Not-a-number equals itself, and zero is not minus zero."""
    if a.layout != b.layout or a.dtype != b.dtype:
        return False
    mine, theirs = dense_parts(a), dense_parts(b)
    if not (len(mine) == 1 and mine[0] is a):
        return len(mine) == len(theirs) and all(map(same_bits, mine, theirs))
    return a.shape == b.shape and all(torch.equal(*pair) for pair in _pieces(a.detach(), b.detach()))


def digest(tensor: torch.Tensor) -> bytes:
    """A digest of the bits of a dense tensor; different tensors practically never have the same."""
    found = hashlib.sha256()
    with torch.no_grad(), without_dispatch_modes():
        for (piece,) in _pieces(tensor.detach()):
            found.update(memoryview(piece.cpu().numpy()))
    return found.digest()


def _pieces(*tensors: torch.Tensor) -> Iterator[list[torch.Tensor]]:
    """The bytes of tensors of one shape, piece by piece if that takes copies."""
    first = tensors[0]
    size = first.numel() * first.element_size()
    if size <= _PIECE or all(map(_is_as_it_lies, tensors)):
        yield [bytes_of(each) for each in tensors]
    elif len(first) == 1:
        yield from _pieces(*(each[0] for each in tensors))
    else:
        rows = max(1, len(first) * _PIECE // size)
        for parts in zip(*(each.split(rows) for each in tensors), strict=True):
            yield from _pieces(*parts)


def _is_as_it_lies(tensor: torch.Tensor) -> bool:
    """True if its elements are in memory in their order."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def dense_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The parts of a sparse or nested tensor; a dense tensor is its only part."""
    if tensor.is_nested:
        if tensor.layout is torch.jagged:
            return [tensor.detach().values(), tensor.offsets()]
        return list(tensor.detach().unbind())
    if tensor.layout is torch.sparse_coo:
        return entries_of_sparse(tensor.detach())
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.detach().values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.detach().values()]
    return [tensor]


def _add_storage(found: dict[int, int], tensor: torch.Tensor, device_type: str | None) -> None:
    if not has_data(tensor) or is_lazy(tensor):
        return
    # A tensor that is split between ranks: this rank's part of it.
    local = local_part(tensor)
    try:
        parts = dense_parts(local)
    except (RuntimeError, NotImplementedError):  # its parts are only descriptions
        return
    if parts and parts[0] is not local:
        for part in parts:
            _add_storage(found, part, device_type)
    if tensor.is_leaf and tensor.grad is not None:
        _add_storage(found, tensor.grad, device_type)
    if device_type is not None and tensor.device.type != device_type:
        return
    try:
        address, size = local.untyped_storage().data_ptr(), storage_bytes(local)
    except (RuntimeError, NotImplementedError):  # sparse and wrapper tensors have no storage of their own
        return
    if address and size:
        found[address] = max(size, found.get(address, 0))


def live_storages() -> dict[int, int]:
    """Address and bytes of every CPU storage that a live Python tensor (or the gradient of one) shows."""
    gc.collect()
    found: dict[int, int] = {}
    for item in gc.get_objects():
        if issubclass(type(item), torch.Tensor):
            _add_storage(found, item, "cpu")
    return found
