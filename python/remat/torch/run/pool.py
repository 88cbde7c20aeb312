"""The one allocation for results of plans, and its users.

Tensors in it are made once for each half of a plan, and written to in every step. Other holders of the memory
show that a call is in flight: tensors saved for the backward are made for that call alone, and one more is
held while a half runs. So a call uses the pool only if nothing of the last call is held any more; else its
ops allocate their results, as without a pool.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ..base.private import keeps_graph, packs_saved_tensors, storage_uses
from .places import Spot


@dataclass
class _Made:
    """Tensors and functions made for the halves of a plan in the current memory."""

    tensors: dict[int, dict[str, torch.Tensor]] = field(default_factory=dict)
    functions: dict[int, Any] = field(default_factory=dict)


class Pool:
    """Memory for the plans of one model, used by one call at a time."""

    def __init__(self) -> None:
        self._storage: torch.UntypedStorage | None = None
        self._own: list[torch.Tensor] = []
        self._made: weakref.WeakKeyDictionary[PoolUser, _Made] = weakref.WeakKeyDictionary()
        self._lock = threading.RLock()
        self._paused = 0

    @property
    def bytes(self) -> int:
        """Bytes of the pool, used or not."""
        return 0 if self._storage is None else self._storage.nbytes()

    def pause(self) -> None:
        """Blocks its use until `go_on`."""
        self._paused += 1

    def go_on(self) -> None:
        self._paused -= 1

    def enter(self, pool_user: PoolUser) -> torch.Tensor | None:
        """Begins a call of a plan: returns the object that holds the pool for it, or None if it must do
        without."""
        if self._paused or packs_saved_tensors():  # hooks that pack a tensor may keep it
            return None
        with self._lock:
            if self._storage is not None and self._is_used(self._storage):
                return None
            if self._storage is None or not pool_user.size <= self._storage.nbytes() <= pool_user.most:
                self.release()
                # Memory of a tensor, aligned and counted like all others.
                self._own = [torch.empty(max(1, pool_user.size), dtype=torch.uint8)]
                self._storage = self._own[0].untyped_storage()
            return self.token()

    def holds(self, token: torch.Tensor) -> bool:
        """True if it uses the current memory."""
        return self._storage is not None and token.untyped_storage().data_ptr() == self._storage.data_ptr()

    def _is_used(self, storage: torch.UntypedStorage) -> bool:
        known = sum(len(half) for made in self._made.values() for half in made.tensors.values())
        # The storage itself, too.
        return storage_uses(storage) > known + len(self._own) + 1

    def token(self) -> torch.Tensor:
        """A tensor that holds the memory."""
        assert self._storage is not None
        return torch.empty(0, dtype=torch.uint8).set_(self._storage, 0, (1,), (1,))

    def release(self) -> None:
        """Release the memory, as soon as no call uses it."""
        with self._lock:
            self._made.clear()
            self._own, self._storage = [], None

    def tensors(self, pool_user: PoolUser, half: int, spots: Mapping[str, Spot]) -> Mapping[str, Any]:
        """The tensors that a half of a plan names, and the function that makes its token."""
        with self._lock:
            assert self._storage is not None
            known = self._made.setdefault(pool_user, _Made()).tensors.setdefault(half, {})
            for name, spot in spots.items():
                if name not in known:
                    known[name] = spot.tensor(self._storage)
            return {**known, "token": self.token}

    def function(self, pool_user: PoolUser, half: int, make: Callable[[], Any]) -> Any:
        """The function that runs a half, made once for the tensors that it names."""
        with self._lock:
            functions = self._made.setdefault(pool_user, _Made()).functions
            if half not in functions:
                functions[half] = make()
            return functions[half]


class PoolUser:
    """A plan's use of a pool of `size` to `most` bytes, the latter by its budget."""

    def __init__(self, pool: Pool, size: int, most: int) -> None:
        # Up to 2.12, PyTorch keeps compiled code longer than the model lives.
        self._pool = weakref.ref(pool)
        self.size, self.most = size, max(size, most)

    def enter(self) -> torch.Tensor | None:
        """The forward half begins; see `Pool.enter`."""
        pool = self._pool()
        return None if pool is None else pool.enter(self)

    def enter_again(self, token: torch.Tensor) -> torch.Tensor | None:
        """Begins the backward half of a call, which may write over its inputs only if they are not read
        again.
        """
        pool = self._pool()
        if token.numel() == 0 or pool is None or keeps_graph():
            return None
        return token if pool.holds(token) else None

    def tensors(self, half: int, spots: Mapping[str, Spot]) -> Mapping[str, Any]:
        """See `Pool.tensors`; while the pool is held."""
        return self._held().tensors(self, half, spots)

    def function(self, half: int, make: Callable[[], Any]) -> Any:
        """See `Pool.function`; while the pool is held."""
        return self._held().function(self, half, make)

    def _held(self) -> Pool:
        pool = self._pool()
        assert pool is not None
        return pool
