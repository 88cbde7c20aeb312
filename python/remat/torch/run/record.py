"""Finds the first op with different bits: compares inputs and results of a plan's ops with those of eager
mode."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves, tree_map

from ..base.nodes import module_path
from ..base.private import TorchDispatchMode, takes_a_list
from ..base.storages import digest
from ..plan.report import PlanReport
from ..trace.floats import Changing
from .codegen import boxed, callee_of
from .pool import PoolUser

Bits = frozenset[bytes]


def _bits(items: Any) -> Bits:
    """Digests of all tensors in a structure, independent of strides."""
    return frozenset(
        digest(item)
        for item in tree_leaves(items)
        if isinstance(item, torch.Tensor) and item.layout is torch.strided
    )


class EagerResults(TorchDispatchMode):  # type: ignore[misc]
    """Records all inputs and results of ops while it is active.

    seen: digests.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[bytes] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        self.seen |= _bits((args, kwargs))
        result = func(*args, **kwargs)
        self.seen |= _bits(result)
        return result


@dataclass(frozen=True)
class Made:
    """An executed step of a plan: its op, and digests of its inputs and results."""

    node: fx.Node
    read: Bits
    made: Bits

    def __str__(self) -> str:
        path = module_path(self.node)
        return f"{self.node.target}" + (f" in {path}" if path else "")


class PlannedResults(list[Made]):
    """The results of plans' steps, in the sequence of execution."""

    def first_other_than(self, eager: EagerResults) -> Made | None:
        """The first op whose inputs occur in eager mode and whose results do not."""
        others = [each for each in self if not each.made <= eager.seen and not _is_empty(each.node)]
        return next((each for each in others if each.read <= eager.seen), others[0] if others else None)


def _is_empty(node: fx.Node) -> bool:
    """True for ops that return uninitialized memory."""
    return "empty" in str(node.target)


class _Recording(fx.Interpreter):
    def __init__(self, gm: fx.GraphModule, results: PlannedResults) -> None:
        super().__init__(gm)
        self.results = results

    def run_node(self, n: fx.Node) -> Any:
        if n.op != "call_function" or n.target is operator.getitem:
            return super().run_node(n)
        if "remat_copy" in n.meta:  # its begin and end are unknown
            return super().run_node(n)
        read = _bits(self.fetch_args_kwargs_from_env(n))
        result = super().run_node(n)
        self.results.append(Made(n, read, _bits(result)))
        return result

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args, kwargs = tree_map(lambda a: a.value() if isinstance(a, Changing) else a, (args, kwargs))
        return callee_of(target)(*args, **kwargs)


_recorded: PlannedResults | None = None


@contextmanager
def recorded_plans() -> Iterator[PlannedResults]:
    """Inside the block, `recordable` plans record the results of their steps."""
    global _recorded
    _recorded = results = PlannedResults()
    try:
        yield results
    finally:
        _recorded = None


def recordable(
    half: fx.GraphModule, plan: Callable[[], PlanReport | None], pool_user: Callable[[], PoolUser | None]
) -> Callable[[list[Any]], Any]:
    """`boxed`, or op by op if results are to be recorded."""
    plain = boxed(half, plan, pool_user)

    def run(args: list[Any]) -> Any:
        if _recorded is None:
            return plain(args)
        return _Recording(half, _recorded).boxed_run(args)

    return takes_a_list(run)
