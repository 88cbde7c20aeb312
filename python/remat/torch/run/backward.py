"""Watches the outputs of a graph, and their gradients, in its backward."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.multiprocessing.reductions import StorageWeakRef

from ..base.nodes import SMALL
from ..base.private import (
    hand_over_unchecked,
    has_freed_saved_tensors,
    is_tangent,
    packs_saved_tensors,
    storage_id,
    takes_a_list,
    users_of_storage,
    without_function_modes,
)
from ..trace.gradients import handed_over
from ..trace.tangents import Strides, same_strides, strides_to_trace

_SECOND_TIME = (
    "Trying to backward through the graph a second time: a planned call has one backward, for all "
    "its outputs (call backward for the sum of its losses, or with retain_graph=True each time but the "
    'last; with executor="eager" losses of separate parts of a model have backwards of their own)'
)


class Watch:
    """The outputs of one call, watched until its backward. Holds nothing alive."""

    def __init__(
        self, context: Any, results: Sequence[Any], note: Callable[[set[int], set[int]], None]
    ) -> None:
        self._note = note
        self._direct: dict[int, int] = {}
        self._views: set[int] = set()
        self._reached: set[int] = set()
        self._storages: dict[int, StorageWeakRef] = {}
        self._context = weakref.ref(context)
        self._packed = packs_saved_tensors()
        for i, item in enumerate(results):
            if not isinstance(item, torch.Tensor):
                continue
            self._storages[i] = StorageWeakRef(item.untyped_storage())
            if item.grad_fn is context:
                self._direct[i] = item.output_nr
            elif item.grad_fn is not None:  # a view of an output
                self._views.add(i)
                item.grad_fn.register_prehook(_adding(self._reached, i))
        context.register_prehook(self._started)

    def _started(self, gradients: Sequence[Any]) -> None:
        context = self._context()
        if context is not None and has_freed_saved_tensors(context):
            raise RuntimeError(_SECOND_TIME)
        graded = {i for i, position in self._direct.items() if gradients[position] is not None}
        direct = set(self._direct.values())
        shown = sum(each is not None for i, each in enumerate(gradients) if i not in direct)
        # A view that the caller has written to has another node since then.
        is_written = shown > len({self._storages[i].cdata for i in self._reached})
        if context is not None and not self._packed:  # unpacking saved tensors would call hooks
            hand_over_unchecked(context)
        self._note(graded | (self._views if is_written else self._reached), self._held())

    def _held(self) -> set[int]:
        """Outputs held by a tensor other than those that the backward itself has saved."""
        there = {i: storage.cdata for i, storage in self._storages.items() if not storage.expired()}
        context = self._context()
        if self._packed or context is None:  # unpacking saved tensors would call hooks
            return set(there)
        users = {i: users_of_storage(number) for i, number in there.items()}
        saved = Counter(storage_id(t) for t in context.saved_tensors if isinstance(t, torch.Tensor))
        return {i for i, number in there.items() if users[i] > saved[number]}


def _adding(target: set[int], index: int) -> Callable[[Any], None]:
    def add(gradients: Any) -> None:
        target.add(index)

    return add


@dataclass
class Tangents:
    """The gradients of outputs that a backward takes, in its order.

    names: of the outputs. note_strides: called with their strides, by name, if a trace with these would
    differ. note_held: called at the end with whether one is still held.
    """

    note_strides: Callable[[dict[str, Strides]], None]
    note_held: Callable[[bool], None]
    names: Sequence[str] = ()

    def note_names(self, names: Sequence[str]) -> None:
        self.names = names


def watch_tangents(
    run: Callable[[list[Any]], Any], gm: fx.GraphModule, tangents: Tangents, prepared: Callable[[], Any]
) -> Callable[[list[Any]], Any]:
    """The backward half, wrapped to see the gradients of outputs.

    prepared: gradients to return in place of its own results, or None.
    """
    placeholders = gm.graph.find_nodes(op="placeholder")
    traced = {i: node.meta["val"] for i, node in enumerate(placeholders) if is_tangent(node)}
    names = dict(zip(traced, tangents.names, strict=True))

    def watched(args: list[Any]) -> Any:
        with handed_over(), without_function_modes():
            return run_or_replace(args)

    def run_or_replace(args: list[Any]) -> Any:
        given = prepared()
        if given is not None:
            args.clear()
            return given
        as_traced(args)
        try:
            storages = [args[i].untyped_storage() for i in traced if args[i] is not None]
        except NotImplementedError:  # batched gradients (`is_grads_batched`) show no memory
            return run(args)
        refs = [StorageWeakRef(storage) for storage in storages if storage.nbytes() > SMALL]
        del storages
        results = run(args)
        own = {storage_id(t) for t in results if isinstance(t, torch.Tensor)}
        tangents.note_held(any(not ref.expired() and ref.cdata not in own for ref in refs))
        return results

    def as_traced(args: list[Any]) -> None:
        """Copies gradients that have other strides."""
        seen: dict[str, Strides] = {}
        for i, like in traced.items():
            if args[i] is None:  # no gradient: a token that keeps checks in order
                continue
            if same_strides(like.shape, args[i].stride(), like.stride()):
                continue
            strides = strides_to_trace(args[i])
            if strides is not None:
                seen[names[i]] = strides
            copy = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=args[i].device)
            args[i] = copy.copy_(args[i])
        if seen:
            tangents.note_strides(seen)

    return takes_a_list(watched)
