"""Earlier plans: of this model in memory, of any process in the folder of a store."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from .store import Store

_Found = TypeVar("_Found")


class PlanCache:
    """Results for graphs in flight together, by all that they depend on: equal blocks of a model are searched
    once, and all parts get the plans of one decision.

    store: keeps results of whole problems.
    """

    def __init__(self, store: Store | None = None) -> None:
        self.store = store
        self._found: dict[Hashable, Any] = {}

    def found(self, key: Hashable, find: Callable[[], _Found]) -> _Found:
        """The result of `find()`, cached."""
        if key not in self._found:
            self._found[key] = find()
        found: _Found = self._found[key]
        return found
