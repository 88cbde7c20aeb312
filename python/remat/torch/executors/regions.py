"""The regions of a model that `torch.utils.checkpoint` recomputes, and the results that each saves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import remat

from ..base.private import unseen_by_hooks

# By name of an op, indices of its calls in a region, from 0.
Calls = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class Region:
    """The policy of one block.

    Attributes:
        save: the calls whose results are saved; all others are recomputed.
        preserve_rng_state: random ops are recomputed, from the generator state of their first run.
        mutation: a saved result may later be changed in place by an op whose recomputation changes nothing.
    """

    save: Calls = field(default_factory=dict)
    preserve_rng_state: bool = False
    mutation: bool = False
    # Evaluated here, since Dynamo cannot trace it.
    _unseen: Mapping[str, bool] = field(default_factory=unseen_by_hooks, compare=False, repr=False)

    def context_fn(self) -> Callable[[], tuple[Any, Any]]:
        """For `torch.utils.checkpoint.checkpoint`: a plain function, as Dynamo requires."""
        save, mutation = self.save, self.mutation

        def contexts() -> tuple[Any, Any]:
            calls: Counter[tuple[str, bool]] = Counter()

            def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
                # Some releases of PyTorch also call it in the recomputation.
                key = str(op), ctx.is_recompute
                number = calls[key]
                calls[key] += 1
                saved = number in save.get(key[0], ())
                return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE

            return create_selective_checkpoint_contexts(policy, allow_cache_entry_mutation=mutation)

        return contexts

    def around(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """The function with this region around it."""
        # Without saved results, PyTorch need not intercept each op.
        contexts = {"context_fn": self.context_fn()} if self.save else {}
        preserve, unseen = self.preserve_rng_state, self._unseen

        def checkpointed(*args: Any, **kwargs: Any) -> Any:
            return checkpoint(
                forward,
                *args,
                use_reentrant=False,
                preserve_rng_state=preserve,
                # Saved results stay on the device, as planned.
                **unseen,
                **contexts,
                **kwargs,
            )

        return checkpointed


class Around:
    """The `forward` of a block with a region around it, an attribute of the block.

    It looks up the block's own `forward` at each call, so that a copy of the block runs the copy's.
    """

    def __init__(self, block: torch.nn.Module, region: Region) -> None:
        self.block, self.region = block, region
        # The instance's `forward`, if a library replaced it; None: that of the class.
        self.replaced = block.__dict__.get("forward")

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """Gives it the signature and name of `forward`, which libraries inspect."""
        if self.replaced is not None:
            return cast("Callable[..., Any]", self.replaced)
        return cast("Callable[..., Any]", type(self.block).forward.__get__(self.block))

    def __getattr__(self, name: str) -> Any:
        if name in ("__name__", "__qualname__", "__doc__", "__module__"):
            return getattr(self.__wrapped__, name)
        raise AttributeError(name)

    def leave(self) -> None:
        """Restores the block's `forward`."""
        if self.replaced is None:
            del self.block.__dict__["forward"]
        else:
            self.block.__dict__["forward"] = self.replaced

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.region.around(self.__wrapped__)(*args, **kwargs)


def blocks_of(model: torch.nn.Module, asked: Sequence[str] | None) -> list[str]:
    """Names of the modules that are regions.

    asked: these names, or None: the children, with submodules, of every list (`nn.ModuleList`,
    `nn.Sequential`) that is in no other region. Raises UsageError for unknown names, for nested regions, and
    if there is no region.
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
