"""Models whose parameters are sharded with `torch.distributed.fsdp.fully_shard` (FSDP2).

FSDP2 gathers the parameters of a sharded module in a hook before its forward, frees them in one after it, and
does the same around its backward, where it also reduces the gradients and keeps this rank's shard of them.
Dynamo does not trace these hooks. So the forward of every sharded module is compiled by itself, between its
hooks, and the graphs are planned together within the common budget. What the hooks leave in memory while a
graph runs is counted beside it, from the sizes that FSDP2 works with:

- the shards of all parameters and of all their gradients;
- parameters that stay gathered from the forward to the end of the backward (those of the root module, and
  with `reshard_after_forward=False`), and their whole gradients;
- in the forward, the output of an all-gather besides the parameters that were copied out of it; in the
  backward, that of the next module, gathered ahead, and the input of the last reduce-scatter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from ..base.errors import UnsupportedModelError
from ..base.nodes import storage_bytes
from ..base.private import (
    COMPILED_CALL,
    _dynamo,
    eager_call,
    gathered_parameter,
    local_part,
    parameter_groups,
    sharded_part,
    share_sharding,
)

# The reason for Dynamo to skip a call: the callee is compiled separately.
IN_HOOKS = "FSDP2 gathers and frees parameters in hooks"


@dataclass(frozen=True)
class _Parameter:
    """A parameter of a group; bytes with the padding that makes shards equal on all ranks.

    shard: of this rank; whole: when gathered; reduced: of its whole gradient as it is reduced, 0 if frozen.
    """

    shard: int
    whole: int
    reduced: int
    requires_grad: bool


class _Group:
    """The parameters that one all-gather collects."""

    def __init__(self, group: Any) -> None:
        self._group = group

    def parameters(self) -> Iterator[tuple[Any, _Parameter]]:
        world = self._group.mesh_info.mesh.size(self._group.mesh_info.shard_mesh_dim)
        for each in self._group.fsdp_params:
            numel = sharded_part(each).numel()
            own = sharded_part(each).dtype
            kept = own.itemsize
            # Before the first forward FSDP2 has not evaluated its policy.
            gathered = (getattr(each, "param_dtype", None) or own).itemsize
            reduced = (getattr(each, "reduce_dtype", None) or own).itemsize
            trained = bool(each.sharded_param.requires_grad)
            yield (
                each,
                _Parameter(
                    numel * kept, numel * world * gathered, numel * world * reduced if trained else 0, trained
                ),
            )

    @property
    def stays_gathered(self) -> bool:
        """Between forward and backward?"""
        return self._group.post_forward_mesh_info is None

    @property
    def whole(self) -> int:
        return sum(sizes.whole for _, sizes in self.parameters())

    @property
    def reduced(self) -> int:
        return sum(sizes.reduced for _, sizes in self.parameters())


def _address(parameter: Any) -> int | None:
    """Of the gathered parameter, if it was gathered before."""
    gathered = gathered_parameter(parameter)
    return None if gathered is None else int(local_part(gathered).untyped_storage().data_ptr())


class Sharding:
    """The sharded modules of a model, and their memory."""

    def __init__(self, model: torch.nn.Module, modules: list[Any]) -> None:
        self.model = model
        self.modules = modules

    @classmethod
    def of(cls, model: torch.nn.Module) -> Sharding | None:
        """None for a model that is not sharded.

        Raises UnsupportedModelError for the older FullyShardedDataParallel.
        """
        distributed: Any = torch.distributed
        if not distributed.is_available():
            return None
        from torch.distributed import fsdp

        kinds: Any = fsdp
        if any(isinstance(m, kinds.FullyShardedDataParallel) for m in model.modules()):
            raise UnsupportedModelError(
                "FullyShardedDataParallel (FSDP1) is not supported; shard the model with "
                "torch.distributed.fsdp.fully_shard (FSDP2)"
            )
        modules = [m for m in model.modules() if isinstance(m, kinds.FSDPModule)]
        return cls(model, modules) if modules else None

    @property
    def process_group(self) -> Any:
        """The ranks between which the parameters are split."""
        return next((group._group.mesh_info.shard_process_group for group in self._groups()), None)

    def _groups(self) -> Iterator[_Group]:
        seen: set[int] = set()
        for module in self.modules:
            for group in parameter_groups(module):
                if id(group) not in seen:
                    seen.add(id(group))
                    yield _Group(group)

    def manages(self, parameter: torch.Tensor) -> bool:
        """True for a parameter that is split between ranks, gathered or not."""
        return any(
            parameter is each.sharded_param or parameter is gathered_parameter(each)
            for group in self._groups()
            for each, _ in group.parameters()
        )

    def outside(self, inside: Mapping[int, int]) -> int:
        """Bytes of parameters, buffers, gradients and of what collectives need, while a graph runs that reads
        the storages `inside` (by address).
        """
        groups = list(self._groups())
        total = self._shards() + self._shards(gradients=True)
        own, gradients = self._not_split()
        total += sum(size for where, size in own.items() if where not in inside)
        total += sum(size for where, size in gradients.items() if where not in inside)
        root_read = False
        for group in groups:
            if not group.stays_gathered:
                continue
            for parameter, sizes in group.parameters():
                if _address(parameter) in inside:
                    root_read = True
                else:
                    total += sizes.whole + sizes.reduced
        return total + self._collectives(groups, root_read)

    def rise(self, inside: Mapping[int, int]) -> int:
        """The part of these bytes allocated after the begin of the step."""
        read = sum(
            sizes.whole
            for group in self._groups()
            for parameter, sizes in group.parameters()
            if _address(parameter) in inside
        )
        own = sum(size for where, size in self._not_split()[0].items() if where not in inside)
        return read + self.outside(inside) - self._shards() - own

    def _shards(self, gradients: bool = False) -> int:
        """Bytes of this rank's shards of all parameters, or of their gradients."""
        return sum(
            sizes.shard
            for group in self._groups()
            for _, sizes in group.parameters()
            if sizes.requires_grad or not gradients
        )

    def _not_split(self) -> tuple[dict[int, int], dict[int, int]]:
        """Bytes of the tensors that are not split, and of their gradients, by the address of the tensor."""
        whole = [p for p in self.model.parameters() if not self.manages(p)]
        own = {t.untyped_storage().data_ptr(): storage_bytes(t) for t in [*whole, *self.model.buffers()]}
        gradients = {p.untyped_storage().data_ptr(): storage_bytes(p) for p in whole if p.requires_grad}
        return own, gradients

    def _collectives(self, groups: list[_Group], root_read: bool) -> int:
        """The outputs of an all-gather and of the one after it in the forward; of one all-gather, and the
        input of a reduce-scatter, in the backward.
        """
        resharded = [group for group in groups if not group.stays_gathered]
        gather = max((group.whole for group in resharded), default=0)
        scatter = max((group.reduced for group in resharded), default=0)
        root = max((group.whole for group in groups if group.stays_gathered), default=0)
        return gather + max(scatter, root if root_read else 0)

    def end_unfinished_step(self) -> None:
        """Free what a forward without a backward has gathered."""
        for module in self.modules:
            module.reshard()

    def compiled(
        self, compile_call: Callable[[Callable[..., Any]], Callable[..., Any]]
    ) -> Callable[..., Any]:
        """Calls of the model that run compiled forwards between the hooks of sharded modules. The model is
        changed during calls only.
        """
        replaced = [
            (module, {"forward": compile_call(module.forward), COMPILED_CALL: _eager_hooks(module)})
            for module in self.modules
            if module is not self.model
        ]
        call = eager_call(self.model)
        if self.model in self.modules:
            replaced.append((self.model, {"forward": compile_call(self.model.forward)}))
        else:
            call = compile_call(call)

        def run(*args: Any, **kwargs: Any) -> Any:
            with _replaced(replaced):
                return call(*args, **kwargs)

        return run

    def shared_with(self, fitted: torch.nn.Module) -> torch.nn.Module:
        """The fitted module, with the model's sharding."""
        if self.model in self.modules:
            share_sharding(fitted, self.model)
        return fitted


def _eager_hooks(module: Any) -> Callable[..., Any]:
    disable: Any = _dynamo.disable
    run: Callable[..., Any] = disable(eager_call(module), reason=IN_HOOKS)
    return run


@contextmanager
def _replaced(attributes: list[tuple[Any, dict[str, Any]]]) -> Iterator[None]:
    before = [{name: m.__dict__.get(name) for name in given} for m, given in attributes]
    for module, given in attributes:
        module.__dict__.update(given)
    try:
        yield
    finally:
        for (module, _), old in zip(attributes, before, strict=True):
            for name, value in old.items():
                if value is None:
                    del module.__dict__[name]
                else:
                    module.__dict__[name] = value
