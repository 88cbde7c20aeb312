"""Ops that write their results to memory that is given to them.

Which do is not taken for granted. What PyTorch calls the `out` form of an op may run another kernel, or make
the result elsewhere and copy it. So each op runs in both forms, on tensors like those of the step; its form
counts if the results are the same bit for bit, in the same strides, and if it takes no more memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves, tree_map

from ..base.allocator import trace_allocations
from ..base.alone import undisturbed, vary
from ..base.nodes import BUILTIN_NAMESPACES, SMALL, is_mutable, tensors_of
from ..base.private import COPY, FUNCTIONAL_BATCH_NORM, OpOverload, builtin, schema, storage_id
from ..base.step import StepGraph
from ..base.storages import same_bits
from ..cost.cost import signature
from ..cost.standins import arguments_alone
from ..plan.arena import Placeable
from ..trace.gradients import KINDS
from ..trace.kernels import is_own, kernel_of

aten = torch.ops.aten


@dataclass(frozen=True)
class Form:
    """What runs an op and writes its results to tensors that are passed as keywords, by result."""

    callee: Callable[..., Any]
    names: tuple[str, ...]


@dataclass(frozen=True)
class Seen:
    """Of an op that ran. reads_pool: may its arguments lie in a pool? Not where a result may be one of them,
    which its trace does not say, nor where the op copies all that is in their storage (`slice_scatter`).
    """

    form: Form | None
    reads_pool: bool


def _clone(x: torch.Tensor, *, out: torch.Tensor, **_: Any) -> torch.Tensor:
    return out.copy_(x)


def _relu(x: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    return torch.clamp_min(x, 0, out=out)


def _mul(x: torch.Tensor, factor: Any, *, out: torch.Tensor) -> torch.Tensor:
    return torch.mul(x, factor, out=out)


def _add(x: torch.Tensor, summand: Any, alpha: Any = 1, *, out: torch.Tensor) -> torch.Tensor:
    return torch.add(x, summand, alpha=alpha, out=out)


def _div(x: torch.Tensor, divisor: Any, *, out: torch.Tensor) -> torch.Tensor:
    return torch.div(x, divisor, out=out)


def _embedding(
    weight: torch.Tensor, indices: torch.Tensor, *_: Any, out: torch.Tensor, **__: Any
) -> torch.Tensor:
    torch.index_select(weight, 0, indices.reshape(-1), out=out.view(-1, weight.shape[1]))
    return out


def _masked_fill(x: torch.Tensor, mask: torch.Tensor, value: Any, *, out: torch.Tensor) -> torch.Tensor:
    return out.copy_(x).masked_fill_(mask, value)


def _dropout(
    x: torch.Tensor, p: float, train: bool | None, *, out0: torch.Tensor, out1: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    out1.bernoulli_(1 - p)
    out0.copy_(out1.view(torch.uint8)).div_(1 - p).mul_(x)
    return out0, out1


def _dropout_backward(
    gradient: torch.Tensor, mask: torch.Tensor, scale: float, *, out: torch.Tensor
) -> torch.Tensor:
    return out.copy_(mask.view(torch.uint8)).div_(1 / scale).mul_(gradient)


def _slice_backward(
    gradient: torch.Tensor, sizes: Any, dim: int, start: int, end: int, step: int, *, out: torch.Tensor
) -> torch.Tensor:
    aten.slice.Tensor(out.zero_(), dim, start, end, step).copy_(gradient)
    return out


def _select_backward(
    gradient: torch.Tensor, sizes: Any, dim: int, index: int, *, out: torch.Tensor
) -> torch.Tensor:
    out.zero_().select(dim, index).copy_(gradient)
    return out


def _batch_norm(
    x: torch.Tensor,
    weight: Any,
    bias: Any,
    mean: torch.Tensor,
    var: torch.Tensor,
    training: bool,
    momentum: float,
    eps: float,
    *,
    out0: torch.Tensor,
    out1: torch.Tensor,
    out2: torch.Tensor,
    out3: torch.Tensor,
    out4: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    out3.copy_(mean)
    out4.copy_(var)
    arguments = (x, weight, bias, out3, out4, training, momentum, eps)
    aten.native_batch_norm.out(*arguments, out=out0, save_mean=out1, save_invstd=out2)
    return out0, out1, out2, out3, out4


# Of ops that have no such form in PyTorch, or one that copies: the same arithmetic.
_OWN: dict[Any, Form] = {
    aten.clone.default: Form(_clone, ("out",)),
    COPY: Form(_clone, ("out",)),
    aten.relu.default: Form(_relu, ("out",)),
    aten.mul.Scalar: Form(_mul, ("out",)),
    aten.add.Scalar: Form(_add, ("out",)),
    aten.div.Scalar: Form(_div, ("out",)),
    aten.embedding.default: Form(_embedding, ("out",)),
    aten.masked_fill.Scalar: Form(_masked_fill, ("out",)),
    aten.masked_fill.Tensor: Form(_masked_fill, ("out",)),
    aten.native_dropout.default: Form(_dropout, ("out0", "out1")),
    aten.native_dropout_backward.default: Form(_dropout_backward, ("out",)),
    aten.slice_backward.default: Form(_slice_backward, ("out",)),
    aten.select_backward.default: Form(_select_backward, ("out",)),
    FUNCTIONAL_BATCH_NORM: Form(_batch_norm, ("out0", "out1", "out2", "out3", "out4")),
}
# Whose Python function takes `out`; its parser is faster than that of the operator object.
_FUNCTIONS = {
    aten.mm.default: torch.mm,
    aten.bmm.default: torch.bmm,
    aten.addmm.default: torch.addmm,
    aten.add.Tensor: torch.add,
    aten.sub.Tensor: torch.sub,
    aten.mul.Tensor: torch.mul,
    aten.sum.dim_IntList: torch.sum,
    aten.cat.default: torch.cat,
    aten.tanh.default: torch.tanh,
}


def _forms(target: Any) -> list[Form]:
    """What may write the results of an op to places, to be tried in this order."""
    found = [_OWN[target]] if target in _OWN else []
    if not isinstance(target, OpOverload) or kernel_of(target) is not target:
        return found
    if target in _FUNCTIONS:
        found.append(Form(_FUNCTIONS[target], ("out",)))
    arguments = [(a.name, str(a.type)) for a in schema(target).arguments]
    packet = getattr(getattr(torch.ops, target.namespace), schema(target).name.partition("::")[2])
    for name in packet.overloads():
        other = getattr(packet, name)
        given = schema(other).arguments
        places = tuple(a.name for a in given if a.is_out)
        if len(places) == len(schema(target).returns) > 0 and arguments == [
            (a.name, str(a.type)) for a in given if not a.is_out
        ]:
            found.append(Form(builtin(other), places))
    return found


# What this process has seen, by op.
_seen: dict[str, Seen] = {}


def placeable(step: StepGraph) -> Placeable:
    """Which results of a step may be at given places; each op runs some times, as when it is measured."""
    seen = {}
    for index, op in enumerate(step.ops):
        if op.node is not None and op.outputs and not is_mutable(op.node):
            key = signature(op.node)
            if key not in _seen:
                _seen[key] = _try(op.node)
            seen[index] = _seen[key]
    held = {*step.kept, *step.inputs}
    for node in [*step.forward_outputs, *step.backward_outputs]:
        if isinstance(node, fx.Node) and node in step.value_of:
            held.add(step.value_of[node])
    for index, op in enumerate(step.ops):
        if op.kind in KINDS or _may_hold(op.node) or (index in seen and not seen[index].reads_pool):
            held.update(op.inputs)
    forms = {
        index: each.form
        for index, each in seen.items()
        if each.form is not None and len(each.form.names) == len(step.ops[index].outputs)
    }
    random = frozenset(index for index, op in enumerate(step.ops) if op.random)
    return Placeable(forms, frozenset(held), random)


def _may_hold(node: fx.Node | None) -> bool:
    """Who knows what a custom op does with what it is given."""
    if node is None or is_own(node.target):
        return False
    target = node.target
    return not (isinstance(target, OpOverload) and target.namespace in BUILTIN_NAMESPACES)


def _try(node: fx.Node) -> Seen:
    with undisturbed():
        try:
            return _tried(node)
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            return Seen(None, reads_pool=False)  # what cannot run alone stays as it was


def _tried(node: fx.Node) -> Seen:
    val = node.meta.get("val")
    results, top, level = _run(node)
    in_pool, top_in_pool, _ = _run(node, in_pool=True)
    if top_in_pool > top + SMALL or len(in_pool) != len(results):
        return Seen(None, reads_pool=False)
    if not all(map(same_bits, results, in_pool)):
        return Seen(None, reads_pool=False)
    del in_pool
    if results and all(map(_is_plain, tensors_of(val))):
        for form in _forms(node.target):
            if len(form.names) == len(results) and _is_same(node, form, top - level):
                return Seen(form, reads_pool=True)
    return Seen(None, reads_pool=True)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Has each element a place of its own, and the storage no others?"""
    return (
        tensor.device.type == "cpu"
        and tensor.storage_offset() == 0
        and not tensor.is_conj()
        and not tensor.is_neg()
        and tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
        and bool(aten.is_non_overlapping_and_dense(tensor))
    )


def _is_same(node: fx.Node, form: Form, taken: int) -> bool:
    """taken: bytes that the op takes beside its results."""
    for strange in (False, True):
        expected, _, _ = _run(node, strange=strange)
        state = torch.get_rng_state()
        traced = tensors_of(node.meta["val"])
        if [(t.shape, t.stride(), t.dtype) for t in expected] != [
            (t.shape, t.stride(), t.dtype) for t in traced
        ] or not all(map(_is_plain, expected)):
            return False
        places = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype) for t in traced]
        addresses = [place.data_ptr() for place in places]
        for place in places:
            torch.empty(0, dtype=torch.uint8).set_(place.untyped_storage()).fill_(0xA5)
        try:
            found, took, _ = _run(node, form, places, strange=strange)
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            return False
        if took > taken + SMALL or not torch.equal(state, torch.get_rng_state()):
            return False
        if [t.data_ptr() for t in found] != addresses:
            return False
        for mine, theirs in zip(found, expected, strict=True):
            if mine.stride() != theirs.stride() or not same_bits(mine, theirs):
                return False
    return True


def _run(
    node: fx.Node,
    form: Form | None = None,
    places: Sequence[torch.Tensor] = (),
    strange: bool = False,
    in_pool: bool = False,
) -> tuple[list[torch.Tensor], int, int]:
    """The results of an op on numbers of both signs, and the bytes it allocates at the most and at its end.
    Raises ValueError where it hands an argument on.

    strange: infinities, zeros of both signs and what is not a number are among the numbers.
    in_pool: the arguments lie in storages that hold more.
    """
    torch.manual_seed(0)
    args, kwargs = arguments_alone(node)
    given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    filled: set[int] = set()
    for tensor in given:
        if (tensor.is_floating_point() or tensor.is_complex()) and storage_id(tensor) not in filled:
            filled.add(storage_id(tensor))
            vary(tensor, strange)
    if in_pool:
        args, kwargs = tree_map(_moved, (args, kwargs))
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    target = kernel_of(node.target) if form is None else form.callee
    named: Mapping[str, Any] = {} if form is None else dict(zip(form.names, places, strict=True))
    with trace_allocations() as trace:
        result = target(*args, **kwargs, **named)
    top, level = trace.rise()
    results = tensors_of(result)
    own = {storage_id(tensor) for tensor in given}
    if any(storage_id(tensor) in own for tensor in results):
        raise ValueError("a result is an argument")
    return results, top, level


# Around what lies in a storage that holds more.
_BEFORE, _BEHIND = 4096, 1 << 20


def _moved(item: Any) -> Any:
    """The same tensor in a larger storage."""
    if not isinstance(item, torch.Tensor) or item.device.type != "cpu":
        return item
    size = item.untyped_storage().nbytes()
    whole = torch.zeros(_BEFORE + size + _BEHIND, dtype=torch.uint8)
    whole[_BEFORE : _BEFORE + size] = torch.empty(0, dtype=torch.uint8).set_(item.untyped_storage())
    begin = _BEFORE // item.element_size() + item.storage_offset()
    return torch.empty(0, dtype=item.dtype).set_(whole.untyped_storage(), begin, item.shape, item.stride())
