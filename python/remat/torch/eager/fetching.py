"""Carries out what a planned step copies to a host and back in eager mode (away.py says what and when)."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..base.private import without_dispatch_modes
from ..run.copies import Copies
from .away import NEVER, Route
from .book import Book, new_memory
from .kinds import Kind, argument, is_plain, tensors_in
from .results import Result, Run, turn


class Copying:
    """The copies of a plan. device: of the step. leaving: by op of the forward, the values copied out after
    it; waits: the copies out that must have ended before it. asked: copies back that begin when autograd
    requests tensors saved after this many ops.
    """

    def __init__(self, copies: Copies, routes: Sequence[Route], device: torch.device) -> None:
        self.copies, self.device = copies, device
        self.leaving: Mapping[int, Sequence[Route]] = _by((route.op, route) for route in routes)
        self.waits: Mapping[int, Sequence[Route]] = _by((route.wait, route) for route in routes)
        self.asked = {route.asked for route in routes} - {NEVER}

    def seen(self) -> frozenset[int]:
        """Ops that the dispatch mode must see."""
        return frozenset((*self.leaving, *self.waits))


def _by(pairs: Any) -> dict[int, list[Route]]:
    found: dict[int, list[Route]] = defaultdict(list)
    for key, route in pairs:
        found[key].append(route)
    return dict(found)


class Away:
    """The offloaded values of one step."""

    def __init__(self, plan: Copying) -> None:
        """Raises HostMemoryError if the host has no room."""
        self._plan = plan
        self._call = plan.copies.begin()()
        # Freed by this thread, whatever thread copies: so the allocator's events are in the plan's sequence.
        self._leaving: dict[int, torch.UntypedStorage] = {}
        self._out: list[tuple[Route, weakref.ref[Result]]] = []

    def before(self, op: int) -> None:
        """An op is about to run: wait for the copies out that must have ended."""
        for route in self._plan.waits.get(op, ()):
            self._wait_out(route.out)

    def settle(self) -> None:
        """Wait for all copies out."""
        for number in sorted(self._leaving):
            self._wait_out(number)

    def _wait_out(self, number: int) -> None:
        storage = self._leaving.pop(number, None)
        if storage is not None:
            self._plan.copies.wait(number)(self._call, None)

    def after(
        self, op: int, func: Any, kind: Kind, args: Any, kwargs: Any, result: Any, book: Book
    ) -> list[torch.Tensor]:
        """An op has run: begin to copy out its results, if they are as recorded. Returns the offloaded
        ones."""
        left: list[torch.Tensor] = []
        routes = self._plan.leaving.get(op)
        if routes is None:
            return left
        made = _made(kind, args, kwargs, result)
        for route in routes:
            if len(made) != route.results:
                continue
            tensor = made[route.place]
            if (
                is_plain([], [tensor], {})
                and tensor.device.type == self._plan.device.type
                and tensor.untyped_storage().nbytes() <= route.bytes
            ):
                self._let_leave(route, tensor, Fetch(self, route, func, kind), book)
                left.append(tensor)
        return left

    def _let_leave(self, route: Route, tensor: torch.Tensor, fetch: Fetch, book: Book) -> None:
        result = fetch.add_result(0)
        book.show(tensor, result)
        self._out.append((route, weakref.ref(result)))
        self._plan.copies.issue_out(route.out)(self._call, tensor)
        self._leaving[route.out] = tensor.untyped_storage()

    def come_to(self, saved_at: int) -> None:
        """Autograd requests tensors saved after this many ops: begin the copies back that are due."""
        with turn, torch.no_grad(), without_dispatch_modes():
            due = [each for each in self._out if each[0].asked >= saved_at]
            if not due:
                return
            self._out = [each for each in self._out if each[0].asked < saved_at]
            for _, reference in sorted(due, key=lambda each: each[0].back):
                result = reference()
                if result is not None and result.handles and isinstance(result.run, Fetch):
                    result.run.begin()

    def issue_back(self, route: Route) -> torch.Tensor:
        """Begin a copy back into a new tensor. The forward itself may request it."""
        self._wait_out(route.out)
        return self._plan.copies.issue_in(route.back)(self._call)

    def wait_back(self, route: Route, tensor: torch.Tensor) -> None:
        self._plan.copies.wait(route.back)(self._call, tensor)


class Fetch(Run):
    """Restores one result by a copy from the host."""

    __slots__ = ("_away", "_coming", "_route")

    def __init__(self, away: Away, route: Route, func: Any, kind: Kind) -> None:
        super().__init__(route.op, func, kind, (), {}, None)
        self._away, self._route = away, route
        self._coming: torch.Tensor | None = None

    def begin(self) -> None:
        """Begin the copy, before the result is needed."""
        if self._coming is None and all(result.memory is None for result in self.alive_results()):
            self._coming = self._away.issue_back(self._route)

    def repeat(self) -> None:
        self.begin()
        tensor, self._coming = self._coming, None
        if tensor is None:
            return
        self._away.wait_back(self._route, tensor)
        for result in self.alive_results():
            result.lie_in(tensor.untyped_storage())


class SavedAt:
    """Held by autograd in a step with copies: the usual object, and the number of ops run before."""

    __slots__ = ("held", "saved_at")

    def __init__(self, held: Any, saved_at: int) -> None:
        self.held, self.saved_at = held, saved_at


def _made(kind: Kind, args: Any, kwargs: Any, result: Any) -> list[torch.Tensor]:
    """Results of an op in the sequence of a record's values: new memory, then memory written to."""
    written = [
        tensor
        for at in kind.written
        if at not in kind.statistics
        for tensor in tensors_in([argument(at, args, kwargs)])
    ]
    return [*new_memory(args, kwargs, result), *written]
