"""How many bytes are in use while a step runs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

import torch

from ..base.devices import DeviceRuntime, runtime_of
from ..base.private import StorageWeakRef, storage_number


class Meter(Protocol):
    def bytes(self) -> int:
        """A cheap upper bound on the bytes in use."""

    def exact(self) -> int:
        """The bytes in use."""

    def note_new(self, storage: torch.UntypedStorage) -> None:
        """That a step made."""

    def note_old(self, storage: torch.UntypedStorage) -> None:
        """That a step reads."""


class Counted:
    """Counts storages by weak references, for devices whose allocators do not count.

    start: bytes in use before. resident: addresses of resident storages; None: `start` includes all older
    storages, which are subtracted when they are freed. beside: returns further bytes in use.
    """

    def __init__(
        self, start: int, resident: Collection[int] | None, beside: Callable[[], int] = lambda: 0
    ) -> None:
        self._resident, self._beside, self._beside_bytes = resident, beside, 0
        # By number of a storage; the references keep their numbers from being given to others.
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self._old: dict[int, StorageWeakRef] = {}
        self._total = start

    def bytes(self) -> int:
        return self._total

    def exact(self) -> int:
        gone = [number for number, (reference, _) in self._alive.items() if reference.expired()]
        for number in gone:
            self._total -= self._alive.pop(number)[1]
        self._total -= self._beside_bytes
        self._beside_bytes = self._beside()
        self._total += self._beside_bytes
        return self._total

    def note_new(self, storage: torch.UntypedStorage) -> None:
        self._watch(storage, counted=False)

    def note_old(self, storage: torch.UntypedStorage) -> None:
        number = storage_number(storage)
        if number in self._alive or number in self._old:
            return
        try:
            address = storage.data_ptr()
        except RuntimeError:  # of a tensor that wraps others
            return
        if self._resident is not None and address in self._resident:
            self._old[number] = StorageWeakRef(storage)
        else:
            self._watch(storage, counted=self._resident is None)

    def _watch(self, storage: torch.UntypedStorage, counted: bool) -> None:
        number = storage_number(storage)
        if number in self._alive:
            return
        size = storage.nbytes()
        self._alive[number] = StorageWeakRef(storage), size
        if not counted:
            self._total += size


class Asked:
    """Reads the counters of an accelerator's allocator.

    start: bytes in use before that the counters do not include.
    """

    def __init__(self, runtime: DeviceRuntime, start: int) -> None:
        self._runtime, self._beside = runtime, start - runtime.allocated()

    def bytes(self) -> int:
        return self._beside + self._runtime.allocated()

    exact = bytes

    def note_new(self, storage: torch.UntypedStorage) -> None:
        pass

    def note_old(self, storage: torch.UntypedStorage) -> None:
        pass


def meter_of(
    device: torch.device, start: int, resident: Collection[int] | None, beside: Callable[[], int] = lambda: 0
) -> Meter:
    """start: bytes that are in use now, as budgets count. resident, beside: see `Counted`."""
    runtime = runtime_of(device)
    return Asked(runtime, start) if runtime.counts_memory else Counted(start, resident, beside)
