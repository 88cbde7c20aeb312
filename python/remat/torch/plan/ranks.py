"""Ranks that share their plans: rank 0 plans, and what concerns all of them is agreed on.

Every call here is collective: all ranks of the group must make it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

import remat

_Made = TypeVar("_Made")


def of_all_ranks(group: Any, mine: _Made) -> list[_Made]:
    """Gathers a value of each rank."""
    distributed: Any = torch.distributed
    said: list[Any] = [None] * distributed.get_world_size(group)
    distributed.all_gather_object(said, mine, group=group)
    return said


def of_first_rank(group: Any, make: Callable[[], _Made]) -> _Made:
    """The result of rank 0, or its NoPlanError, on every rank."""
    distributed: Any = torch.distributed
    sent: list[Any] = [None]
    if distributed.get_rank(group) == 0:
        try:
            sent = [(make(), None)]
        except remat.NoPlanError as error:
            sent = [(None, (type(error).__name__, str(error), error.floor, error.smallest_known))]
    distributed.broadcast_object_list(sent, group=group, group_src=0)
    made, failed = sent[0]
    if failed is None:
        return made
    name, text, floor, smallest_known = failed
    kind = remat.InfeasibleError if name == "InfeasibleError" else remat.NoPlanError
    raise kind(text, floor=floor, smallest_known=smallest_known)
