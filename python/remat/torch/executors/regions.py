"""The regions of a model that `torch.utils.checkpoint` recomputes whole, and what each of them saves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import remat

from ..base.private import unseen_by_hooks

# By name of an op, which of its calls in a region are meant: the first is 0.
Calls = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class Region:
    """What one block does between its call and its backward.

    Attributes:
        save: the calls whose results are kept; all others run again.
        preserve_rng_state: ops that draw random numbers run again, from the state that they began with.
        mutation: a saved result may be changed in place afterwards, by an op that changes nothing when it
            runs again.
    """

    save: Calls = field(default_factory=dict)
    preserve_rng_state: bool = False
    mutation: bool = False
    # Asked here, since Dynamo cannot trace the question.
    _unseen: Mapping[str, bool] = field(default_factory=unseen_by_hooks, compare=False, repr=False)

    def context_fn(self) -> Callable[[], tuple[Any, Any]]:
        """For `torch.utils.checkpoint.checkpoint`: a function, which is all that Dynamo takes."""
        save, mutation = self.save, self.mutation

        def contexts() -> tuple[Any, Any]:
            calls: Counter[tuple[str, bool]] = Counter()

            def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
                # Some releases of PyTorch ask in the recomputation too.
                key = str(op), ctx.is_recompute
                number = calls[key]
                calls[key] += 1
                saved = number in save.get(key[0], ())
                return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE

            return create_selective_checkpoint_contexts(policy, allow_cache_entry_mutation=mutation)

        return contexts

    def around(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """The function with this region around it."""
        # Without anything to save PyTorch need not look at each op.
        contexts = {"context_fn": self.context_fn()} if self.save else {}
        preserve, unseen = self.preserve_rng_state, self._unseen

        def checkpointed(*args: Any, **kwargs: Any) -> Any:
            return checkpoint(
                forward,
                *args,
                use_reentrant=False,
                preserve_rng_state=preserve,
                # What is saved stays on the device: so it was planned.
                **unseen,
                **contexts,
                **kwargs,
            )

        return checkpointed


class Around:
    """The `forward` of a block with a region around it, an attribute of the block.

    It finds the block's own `forward` when it is called, so that a copy of the block, which has a copy of
    this, runs the copy.
    """

    def __init__(self, block: torch.nn.Module, region: Region) -> None:
        self.block, self.region = block, region
        # As a wrapper of a library may have left it; None: that of the class.
        self.replaced = block.__dict__.get("forward")

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """Its signature and name are those of `forward`, which libraries look at."""
        if self.replaced is not None:
            return cast("Callable[..., Any]", self.replaced)
        return cast("Callable[..., Any]", type(self.block).forward.__get__(self.block))

    def __getattr__(self, name: str) -> Any:
        if name in ("__name__", "__qualname__", "__doc__", "__module__"):
            return getattr(self.__wrapped__, name)
        raise AttributeError(name)

    def leave(self) -> None:
        """The block's `forward` is again what it was."""
        if self.replaced is None:
            del self.block.__dict__["forward"]
        else:
            self.block.__dict__["forward"] = self.replaced

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.region.around(self.__wrapped__)(*args, **kwargs)


def blocks_of(model: torch.nn.Module, asked: Sequence[str] | None) -> list[str]:
    """Names of the modules that are regions.

    asked: those, or None: the children of every list (`nn.ModuleList`, `nn.Sequential`) that is in no other
    region, where they have modules of their own.
    Raises UsageError for names that the model does not have, for regions in regions, and where there is none.
    """
    modules = dict(model.named_modules())
    asked = [asked] if isinstance(asked, str) else asked
    names = list(_listed(model, "")) if asked is None else list(asked)
    for name in names:
        if name not in modules:
            raise remat.UsageError(f"checkpoint_policy: the model has no module {name!r}")
        around = next((other for other in names if name.startswith(f"{other}.")), None)
        if around is not None:
            raise remat.UsageError(f"checkpoint_policy: block {name!r} is inside block {around!r}")
    if not names:
        raise remat.UsageError(
            "checkpoint_policy: the model has no list of blocks (nn.ModuleList or nn.Sequential of modules "
            "that have modules of their own); say which are recomputed as a whole: blocks=[NAME, ...]"
        )
    return names


_LISTS = (torch.nn.ModuleList, torch.nn.Sequential)
_FOLDERS = (torch.nn.ModuleList, torch.nn.ModuleDict)


def _listed(module: torch.nn.Module, name: str) -> Iterator[str]:
    for child_name, child in module.named_children():
        path = f"{name}.{child_name}".removeprefix(".")
        composite = next(child.children(), None) is not None and not isinstance(child, _FOLDERS)
        if isinstance(module, _LISTS) and composite:
            yield path
        else:
            yield from _listed(child, path)
