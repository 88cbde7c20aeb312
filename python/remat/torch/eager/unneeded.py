"""Releases inputs held only by later runs if they take more memory than the results these runs could
recompute; such results can then no longer be evicted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from ..base.private import StorageWeakRef, users_of_storage, without_dispatch_modes
from .book import Book
from .results import Result, Run, Shown

# Most runs visited to find the dependents of a storage.
_MOST_RUNS = 32


def let_go_of_unneeded(
    book: Book, own: Mapping[int, tuple[StorageWeakRef, int]]
) -> list[torch.UntypedStorage]:
    """own: storages that only runs may hold, and their bytes. Returns the storages that cannot be recomputed
    from then on.
    """
    book.forget_dead()
    stays = []
    for number, (storage, size) in own.items():
        if not storage.expired() and book.holds_alone(number, users_of_storage(number)):
            stays += _let_go(book, number, size)
    return stays


def _let_go(book: Book, number: int, size: int) -> list[torch.UntypedStorage]:
    """Forget the runs that read a storage held only by them, if all their results are in memory or not
    needed.
    """
    found = _depending(book, number)
    if found is None or sum(result.bytes for result in found[1]) > size:
        return []
    fixed = [(result, result.memory, _tensors_for(result)) for result in found[1]]
    if any(memory is None or tensors is None for _, memory, tensors in fixed):
        return []
    for result, memory, tensors in fixed:
        if memory is not None and tensors is not None:
            book.fix(result, memory, tensors)
    for run in found[0]:
        run.give_up()
    return [memory for _, memory, _ in fixed if memory is not None]


def _depending(book: Book, number: int) -> tuple[list[Run], list[Result]] | None:
    """Runs that need it, and their results in memory. None if it is needed, or if that is unknown."""
    runs: dict[int, Run] = {}
    results: list[Result] = []
    pending = [None if kept.run is None else kept.run() for kept in book.kept(number)]
    while pending:
        run = pending.pop()
        if run is None or not run.lasts or len(runs) == _MOST_RUNS:
            return None
        if id(run) in runs:
            continue
        runs[id(run)] = run
        for result in run.alive_results():
            if result.memory is not None and not result.readers:
                results.append(result)
            elif result.is_wanted() or result.is_seen():
                return None
            else:
                pending += _runs_of(result)
    return list(runs.values()), results


def _runs_of(result: Result) -> Iterator[Run]:
    return (run for reference in result.read_in if (run := reference()) is not None)


def _tensors_for(result: Result) -> dict[int, torch.Tensor] | None:
    """For each `Shown` of it that runs read, a tensor of its memory with its write count. None if there is
    none.
    """
    kept = [handle.kept for handle in result.waiting_handles() if handle.kept is not None]
    if not kept or any(each.is_changed() for each in kept):
        return None
    found = {}
    for shown in (each for run in _runs_of(result) for each in run.shown() if each.result is result):
        like = next((each.tensor for each in kept if _lies_alike(each.tensor, shown)), None)
        if like is None:
            return None
        with torch.no_grad(), without_dispatch_modes():
            found[id(shown)] = like.as_strided(shown.shape, shown.strides, shown.offset)
    return found


def _lies_alike(tensor: torch.Tensor, shown: Shown) -> bool:
    odd = shown.conj or shown.neg or tensor.is_conj() or tensor.is_neg()
    return tensor.dtype == shown.dtype and not odd
