"""Plans that were found before: by this model in memory, by any process in the folder of a store."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from .store import Store

_Found = TypeVar("_Found")


class PlanCache:
    """What was found for graphs in flight together, by all that it depends on: blocks of a model that are
    alike are searched once, and all parts get their plans of one decision.

    store: keeps what whole problems came to.
    """

    def __init__(self, store: Store | None = None) -> None:
        self.store = store
        self._found: dict[Hashable, Any] = {}

    def found(self, key: Hashable, find: Callable[[], _Found]) -> _Found:
        """`find()`, or what came of it before."""
        if key not in self._found:
            self._found[key] = find()
        found: _Found = self._found[key]
        return found
