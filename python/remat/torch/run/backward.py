"""See what becomes of the outputs of a graph, and of their gradients, in its backward."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch.multiprocessing.reductions import StorageWeakRef

from ..base.nodes import SMALL
from ..base.private import is_tangent, storage_id, takes_a_list
from ..trace.gradients import handed_over


class Watch:
    """The outputs of one call, watched until its backward. Holds nothing alive."""

    def __init__(
        self, context: Any, results: Sequence[Any], note: Callable[[set[int], set[int]], None]
    ) -> None:
        self._note = note
        self._direct: dict[int, int] = {}
        self._reached: set[int] = set()
        self._refs: dict[int, tuple[Any, StorageWeakRef]] = {}
        self._context = weakref.ref(context)
        for i, item in enumerate(results):
            if not isinstance(item, torch.Tensor):
                continue
            self._refs[i] = weakref.ref(item), StorageWeakRef(item.untyped_storage())
            if item.grad_fn is context:
                self._direct[i] = item.output_nr
            elif item.grad_fn is not None:  # a view of an output
                item.grad_fn.register_prehook(_adding(self._reached, i))
        context.register_prehook(self._started)

    def _started(self, gradients: Sequence[Any]) -> None:
        graded = {i for i, position in self._direct.items() if gradients[position] is not None}
        self._note(graded | self._reached, {i for i in self._refs if self._is_held(i)})

    def _is_held(self, index: int) -> bool:
        tensor, storage = self._refs[index]
        if tensor() is not None:
            return True
        if storage.expired():
            return False
        context = self._context()
        # The backward's own saved tensors hold no output for the caller.
        return context is None or all(
            storage_id(saved) != storage.cdata
            for saved in context.saved_tensors
            if isinstance(saved, torch.Tensor)
        )


def _adding(target: set[int], index: int) -> Callable[[Any], None]:
    def add(gradients: Any) -> None:
        target.add(index)

    return add


def watch_tangents(
    run: Callable[[list[Any]], Any],
    gm: fx.GraphModule,
    note: Callable[[bool], None],
    instead: Callable[[], Any],
) -> Callable[[list[Any]], Any]:
    """The backward half, which tells at its end whether somebody still holds a gradient of an output.

    instead: what it returns in place of its own results, or None.
    """
    placeholders = gm.graph.find_nodes(op="placeholder")
    positions = [i for i, node in enumerate(placeholders) if is_tangent(node)]

    def watched(args: list[Any]) -> Any:
        with handed_over():
            return run_or_replace(args)

    def run_or_replace(args: list[Any]) -> Any:
        given = instead()
        if given is not None:
            args.clear()
            return given
        storages = [args[i].untyped_storage() for i in positions]
        refs = [StorageWeakRef(storage) for storage in storages if storage.nbytes() > SMALL]
        del storages
        results = run(args)
        own = {storage_id(t) for t in results if isinstance(t, torch.Tensor)}
        note(any(not ref.expired() and ref.cdata not in own for ref in refs))
        return results

    return takes_a_list(watched)
