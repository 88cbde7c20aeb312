"""Plans that were found before: by this model in memory, by any process in the folder of a store."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import remat

from .store import Store


class PlanCache:
    """What one search of the core came to, by what it depends on: blocks of a model that are alike are
    searched once. What whole problems came to is kept by the store, if there is one.
    """

    def __init__(self, store: Store | None = None) -> None:
        self.store = store
        self._searched: dict[Hashable, remat.PlanResult] = {}

    def searched(self, key: Hashable, search: Callable[[], remat.PlanResult]) -> remat.PlanResult:
        """`search()`, or what came of it before."""
        if key not in self._searched:
            self._searched[key] = search()
        return self._searched[key]
