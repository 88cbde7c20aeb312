"""Costs of ops at new sizes, interpolated from sizes that were measured."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import fx

from .cost import Cost, storages_of
from .roofline import byte_count, flop_count

_NUMBER = re.compile(r"\d+")
# Rough rates of a core, which only decide how an op's time scales with its sizes; and a call's least time.
_FLOPS_PER_S, _BYTES_PER_S, _CALL_S = 5e10, 1e10, 2e-6
# Sizes farther than this from all measured ones are measured: another kernel may be used there.
_FARTHEST = 1.5
_LEAST_KNOWN = 2


def _amount(node: fx.Node) -> float:
    return _CALL_S + flop_count(node) / _FLOPS_PER_S + byte_count(node) / _BYTES_PER_S


class Alike:
    """Durations of the ops of a step by their amount of work, and which need no workspace, as measured at two
    sizes or more.

    An op of another size is the same one if it stands at the same position, and all that makes ops the same
    (`signature`) but the numbers is equal.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], dict[float, int]] = {}
        # Ops that at some size made results which the trace does not show.
        self._hidden: set[tuple[int, str]] = set()

    def add(
        self, signatures: Mapping[int, str], nodes: Mapping[int, fx.Node], costs: Mapping[str, Cost]
    ) -> None:
        """Costs by signature, as they were measured; signatures and nodes by position."""
        for position, key in signatures.items():
            if key in costs:
                kind, node, cost = _kind(position, key), nodes[position], costs[key]
                self._known.setdefault(kind, {})[_amount(node)] = cost.duration
                if cost.workspace > 0 or cost.outputs != storages_of(node.meta.get("val")):
                    self._hidden.add(kind)

    def shows_all(self, position: int, key: str) -> bool:
        """True if the op made exactly the traced results at each measured size."""
        kind = _kind(position, key)
        return kind in self._known and kind not in self._hidden

    def duration(self, position: int, key: str, node: fx.Node) -> int | None:
        """Duration in ns, by linear interpolation between the nearest two sizes, or in proportion beyond
        them; None if that is uncertain.
        """
        known = self._known.get(_kind(position, key), {})
        amount = _amount(node)
        below = max((each for each in known if each <= amount), default=None)
        above = min((each for each in known if each >= amount), default=None)
        near = [each for each in (below, above) if each is not None]
        if len(known) < _LEAST_KNOWN or all(max(amount / n, n / amount) > _FARTHEST for n in near):
            return None
        if below is None or above is None or below == above:
            return max(1, round(known[near[0]] * amount / near[0]))
        share = (amount - below) / (above - below)
        return max(1, round((1 - share) * known[below] + share * known[above]))


def _kind(position: int, key: str) -> tuple[int, str]:
    return position, _NUMBER.sub("#", key)
