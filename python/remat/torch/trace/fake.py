"""Models without memory: meta tensors become fake ones, which trace like real ones of a device."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_map

from ..base.private import FakeTensor, FakeTensorMode, detect_fake_mode


def _tensors(model: torch.nn.Module) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]


def without_keeping(gm: fx.GraphModule, args: Sequence[Any], keeps: bool = False) -> Any:
    """Run a graph without a backward; with fake tensors, its own tensors are fake too.

    keeps: a backward may follow.
    """
    mode: Any = detect_fake_mode(args)
    with nullcontext() if keeps else torch.no_grad(), mode or nullcontext():
        return gm(*args)


def forget_gradients(gm: fx.GraphModule) -> None:
    """Dynamo's example values of a graph's nodes hold the trace's autograd graph, with the model's scalars as
    real tensors: afterwards they only tell whether they need a gradient.
    """

    def apart(item: Any) -> Any:
        if not isinstance(item, FakeTensor) or not _is_made(item):
            return item
        with item.fake_mode:
            return item.detach().requires_grad_()

    for node in gm.graph.nodes:
        if "example_value" in node.meta:
            node.meta["example_value"] = tree_map(apart, node.meta["example_value"])


def _is_made(item: torch.Tensor) -> bool:
    """Did an op make it that autograd noted?"""
    try:
        return item.grad_fn is not None
    except RuntimeError:  # one of the results of `unbind` or the like, whose base was written to later
        return True


def with_fake_tensors(model: torch.nn.Module, sample_inputs: Any) -> tuple[torch.nn.Module, Any]:
    """A copy of the model in which meta tensors are fake ones on the CPU, and inputs that go with it.

    Kernels depend on the device, which a meta tensor does not tell, so the CPU is assumed. For another
    device, make the model under a FakeTensorMode there, with a PyTorch built for it; fake tensors are not
    changed.
    """
    modes = (t.fake_mode for t in _tensors(model) if isinstance(t, FakeTensor))
    mode: Any = next(modes, None) or FakeTensorMode(allow_non_fake_inputs=True)

    def fake(item: Any) -> Any:
        if not isinstance(item, torch.Tensor) or isinstance(item, FakeTensor):
            return item
        if not item.is_meta:
            return mode.from_tensor(item)
        with mode:
            shape = torch.empty_strided(item.shape, item.stride(), dtype=item.dtype, device="cpu")
        if isinstance(item, torch.nn.Parameter):
            return torch.nn.Parameter(shape, item.requires_grad)
        return shape.requires_grad_(item.requires_grad)

    # The copy uses these tensors, and keeps tied ones tied.
    copies = {id(t): fake(t) for t in _tensors(model)}
    return copy.deepcopy(model, copies), tree_map(fake, sample_inputs)
