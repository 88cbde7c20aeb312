"""Memory of a loss outside the model, and its gradients of the model's outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_map

import remat

from ..base.allocator import trace_allocations
from ..base.devices import runtime_of
from ..base.leaves import as_result, is_written_leaf
from ..base.nodes import dense_bytes, storage_bytes
from ..base.private import is_view
from ..run.outputs import Gradient
from ..trace.tangents import Strides, strides_to_trace

Loss = Callable[[Any], torch.Tensor]


class NoLossError(remat.UsageError):
    """The result of the loss function is no loss."""


def value_of(loss: Loss, outputs: Any) -> torch.Tensor:
    """The caller's loss of these outputs. Raises NoLossError if it is none."""
    found: Any = loss(outputs)
    if not isinstance(found, torch.Tensor):
        what = f"a {type(found).__name__}"
    elif found.numel() != 1 or not is_real(found):
        what = f"a tensor of shape {list(found.shape)} and {found.dtype}"
    elif torch.is_grad_enabled() and not found.requires_grad:
        what = "a tensor that needs no gradient"
    else:
        return found
    raise NoLossError(
        f"loss= returned {what}: it has to return a dense tensor of one real number that needs a gradient"
    )


def is_real(tensor: torch.Tensor) -> bool:
    """True if a backward can start from it alone."""
    return tensor.layout is torch.strided and not tensor.is_complex()


def measured_loss(loss: Loss, outputs: Any, inputs: Any) -> tuple[int, int, dict[int, Gradient]]:
    """Bytes of the loss during its computation and to the end, and its gradients of outputs, by address.

    Its workspace is the peak of it and its backward beyond the outputs and their gradients.
    """
    try:
        return _measured(loss, outputs, inputs, lambda leaf: leaf)
    except RuntimeError as error:
        if not is_written_leaf(error):
            raise
    return _measured(loss, outputs, inputs, as_result)


def _measured(
    loss: Loss, outputs: Any, inputs: Any, shown: Callable[[torch.Tensor], torch.Tensor]
) -> tuple[int, int, dict[int, Gradient]]:
    """shown: what the loss gets for a leaf."""
    leaf_of: dict[int, Any] = {}

    def as_leaf(item: Any) -> Any:
        if id(item) not in leaf_of:  # else it is returned twice
            leaf_of[id(item)] = _as_leaf(item)
        return leaf_of[id(item)]

    leaves_only = tree_map(as_leaf, outputs)
    borrowed: list[torch.Tensor] = []
    opaque = [leaf for leaf in leaf_of.values() if not isinstance(leaf, torch.Tensor)]
    given = {id(tensor) for tensor in _tensors_within([inputs])}
    for tensor in _tensors_within(opaque):
        # For the loss it stays in place, as a leaf.
        made = id(tensor) not in given and (tensor.grad_fn is not None or not tensor.requires_grad)
        if made and _may_have_gradient(tensor) and not is_view(tensor):
            leaf_of[id(tensor)] = tensor.detach_().requires_grad_()
            borrowed.append(tensor)
    leaves = [t for t in leaf_of.values() if isinstance(t, torch.Tensor) and t.requires_grad]
    strides: dict[int, Strides | None] = {}
    for key, leaf in leaf_of.items():
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
            # Accumulated gradients have the strides of the leaf.
            leaf.register_hook(lambda gradient, key=key: strides.update({key: strides_to_trace(gradient)}))
    values: list[torch.Tensor] = []

    def given_for(item: Any) -> Any:
        return shown(item) if isinstance(item, torch.Tensor) and item.requires_grad else item

    def run() -> None:
        value = value_of(loss, tree_map(given_for, leaves_only))
        value.backward()
        values.append(value.detach())

    top = rise_of(run, [t.device for t in leaves])
    # The caller holds the loss (whose storage may be larger), and autograd its gradient.
    held = storage_bytes(values[0]) + dense_bytes(values[0])
    gradients = sum(storage_bytes(t.grad) for t in leaves if t.grad is not None)
    gradient_of = {
        key: Gradient(leaf.grad is not None, strides.get(key))
        for key, leaf in leaf_of.items()
        if isinstance(leaf, torch.Tensor)
    }
    for tensor in borrowed:
        tensor.requires_grad_(False).grad = None
    return max(0, top - gradients - held), held, gradient_of


def rise_of(run: Callable[[], None], devices: list[torch.device]) -> int:
    """Peak bytes of a call beyond existing memory."""
    for runtime in map(runtime_of, devices):
        if runtime.counts_memory:
            runtime.synchronize()
            allocated, requested = runtime.allocated(), runtime.requested()
            runtime.reset_highest()
            run()
            runtime.synchronize()
            return runtime.in_blocks(runtime.highest() - allocated, runtime.highest_requested() - requested)
    with trace_allocations() as trace:
        run()
    return trace.rise()[0]


def _as_leaf(item: Any) -> Any:
    if isinstance(item, torch.Tensor):
        return item.detach().requires_grad_(_may_have_gradient(item))
    return item


def _may_have_gradient(tensor: torch.Tensor) -> bool:
    return (tensor.is_floating_point() or tensor.is_complex()) and not tensor.is_inference()


def _tensors_within(items: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Tensors in objects that PyTorch does not traverse, such as key-value caches."""
    seen: set[int] = set()
    stack = list(items)
    while stack:
        item = stack.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            yield item
        elif isinstance(item, (list, tuple, set)):
            stack += item
        elif isinstance(item, dict):
            stack += item.values()
        elif not isinstance(item, (type, torch.nn.Module)) and hasattr(item, "__dict__"):
            stack += vars(item).values()
