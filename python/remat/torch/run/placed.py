"""Ops that write their results to given memory.

Each op is tested, since PyTorch's `out` form of an op may run another kernel, or compute the result elsewhere
and copy it. So each op runs in both forms, on tensors like those of the step; the form is used if the results
are equal bit for bit, with the same strides, and if it needs no more memory.
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
    """A function that runs an op and writes its results to tensors passed as keywords, by result."""

    callee: Callable[..., Any]
    names: tuple[str, ...]


@dataclass(frozen=True)
class Seen:
    """The test result of an op. reads_pool: True if its arguments may lie in a pool. Not if a result may be
    one of them, which a trace does not show, nor if the op copies their whole storage (`slice_scatter`).
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


# Own forms with the same arithmetic, for ops that have none in PyTorch, or one that copies.
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
# Ops whose Python function takes `out`; its parser is faster than that of the operator object.
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
    """Candidate forms of an op, in the order to try."""
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


# Test results of this process, by op.
_seen: dict[str, Seen] = {}


def placeable(step: StepGraph) -> Placeable:
    """The results of a step that may be written to given memory; runs each op some times, as in measuring."""
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
    """Custom ops may hold their arguments."""
    if node is None or is_own(node.target):
        return False
    target = node.target
    return not (isinstance(target, OpOverload) and target.namespace in BUILTIN_NAMESPACES)


def _try(node: fx.Node) -> Seen:
    with undisturbed():
        try:
            return _tried(node)
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            return Seen(None, reads_pool=False)  # ops that cannot run alone keep their normal form


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
    """True if each element has its own memory, and the storage has no more."""
    return (
        tensor.device.type == "cpu"
        and tensor.storage_offset() == 0
        and not tensor.is_conj()
        and not tensor.is_neg()
        and tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
        and bool(aten.is_non_overlapping_and_dense(tensor))
    )


def _is_same(node: fx.Node, form: Form, taken: int) -> bool:
    """taken: workspace of the op in bytes."""
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
    """The results of an op on numbers of both signs, its peak and its final bytes. Raises ValueError if it
    returns an argument.

    strange: include infinities, zeros of both signs and NaN.
    in_pool: the arguments lie in larger storages.
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


# Padding around arguments in larger storages.
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
