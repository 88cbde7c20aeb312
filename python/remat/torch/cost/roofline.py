"""The roofline of a traced op: launch + max(flops / peak, bytes moved / bandwidth).

The counts are those of `remat generate --durations roofline` (src/generate/cost.cc), on PyTorch's ops:
PyTorch's flop counter provides those of products and convolutions. Nothing runs, so fake tensors suffice;
workspaces of kernels are unknown and count as 0.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx
from torch.utils.flop_counter import flop_registry

import remat

from ..base.nodes import tensors_of
from ..base.private import OpOverload, schema
from ..trace.gradients import takes_gradient, touched
from .cost import Cost

# Flops per element of the largest operand, by prefix of the op's name; the first match counts.
_FLOPS_PER_ELEMENT = (
    ("gelu_backward", 14),
    ("gelu", 8),
    ("native_batch_norm_backward", 12),
    ("cudnn_batch_norm_backward", 12),
    ("native_layer_norm_backward", 12),
    ("native_group_norm_backward", 12),
    ("native_", 8),
    ("cudnn_batch_norm", 8),
    ("upsample_", 8),
    ("softmax", 5),
    ("log_softmax", 5),
    ("bernoulli", 10),
    ("rand", 10),
    ("normal", 10),
    ("uniform", 10),
)
_DROPOUT = 10
# These move data only.
_NO_FLOPS = frozenset(
    [
        "clone",
        "copy",
        "cat",
        "stack",
        "embedding",
        "index",
        "index_select",
        "gather",
        "slice_scatter",
        "select_scatter",
        "slice_backward",
        "select_backward",
        "constant_pad_nd",
        "repeat",
        "expand_copy",
        "permute_copy",
        "view_copy",
        "to_copy",
        "full",
        "zeros",
        "ones",
        "empty",
        "full_like",
        "zeros_like",
        "ones_like",
        "empty_like",
        "new_zeros",
        "new_ones",
        "new_full",
        "new_empty",
        "new_empty_strided",
        "arange",
        "scalar_tensor",
        "fill",
        "roll",
        "flip",
        "split_with_sizes_copy",
        "unfold_copy",
    ]
)
# These read only as many bytes of their first tensor as they return.
_LOOKUPS = frozenset(["embedding", "index", "index_select", "gather"])


def roofline(node: fx.Node, device: remat.Device) -> Cost:
    """Duration in ns, at least 1, of a node on a device; workspace 0."""
    seconds = device.launch_seconds + max(
        flop_count(node) / device.flops_per_second, byte_count(node) / device.bytes_per_second
    )
    return Cost(max(1, round(seconds * 1e9)), 0)


def _name(node: fx.Node) -> str:
    """`add` of `aten.add.Tensor`, without the underscore of PyTorch's internal names."""
    target: Any = node.target
    packet = getattr(target, "overloadpacket", target)
    return str(getattr(packet, "__name__", packet)).lstrip("_")


def _traced(arg: Any) -> Any:
    return fx.map_arg(arg, lambda n: n.meta.get("val"))


def _by_name(node: fx.Node) -> dict[str, Any]:
    """The arguments by the names of the op's schema."""
    if not isinstance(node.target, OpOverload):
        return {}
    named = dict(zip((a.name for a in schema(node.target).arguments), _traced(node.args), strict=False))
    return {**named, **_traced(node.kwargs)}


def byte_count(node: fx.Node) -> int:
    """Bytes of the distinct tensors that an op reads, and of those it writes."""
    written = sum(_bytes(t) for t in tensors_of(node.meta.get("val")))
    reads = list(touched(node) if takes_gradient(node) else node.all_input_nodes)
    read = _bytes(reads[0].meta["val"]) if takes_gradient(node) else 0  # what it writes
    if _name(node) in _LOOKUPS and reads:
        read, reads = written, reads[1:]
    return written + read + sum(_bytes(t) for n in reads for t in tensors_of(n.meta.get("val")))


def _bytes(tensor: torch.Tensor) -> int:
    """Bytes of a tensor; of an expanded one, without repetitions."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


def flop_count(node: fx.Node) -> float:
    """Floating point operations of a node, a multiply-and-add counted as two."""
    name, val = _name(node), node.meta.get("val")
    if "scaled_dot_product" in name:
        return _attention_flops(name, _by_name(node))
    packet = getattr(node.target, "overloadpacket", None)
    if packet in flop_registry:
        return float(flop_registry[packet](*_traced(node.args), **_traced(node.kwargs), out_val=val))
    if name.startswith("fft_"):
        return _fft_flops(name, _by_name(node), val)
    if name.startswith("mkldnn_rnn_layer"):
        return _rnn_flops(name, _by_name(node))
    if name in _NO_FLOPS:
        return 0.0
    operands = [t for n in node.all_input_nodes for t in tensors_of(n.meta.get("val"))] + tensors_of(val)
    return float(_flops_per_element(name) * max((t.numel() for t in operands), default=0))


def _flops_per_element(name: str) -> int:
    if "dropout" in name:
        return _DROPOUT
    return next((flops for start, flops in _FLOPS_PER_ELEMENT if name.startswith(start)), 1)


def _attention_flops(name: str, given: dict[str, Any]) -> float:
    """Two products forward; five backward, which recomputes the weights. Half of each if causal."""
    query, key = given["query"], given["key"]
    products = 5 if "backward" in name else 2
    share = 0.5 if given.get("is_causal") else 1.0
    return float(products * 2 * query.numel() * key.shape[-2] * share)


def _fft_flops(name: str, given: dict[str, Any], val: Any) -> float:
    """5 n log2 n for a complex transform of n points, half of it if one side is real."""
    source = given["self"]
    large = source if name == "fft_r2c" else val
    points = math.prod(large.shape[d] for d in given["dim"])
    return (5.0 if name == "fft_c2c" else 2.5) * large.numel() * math.log2(max(2, points))


def _rnn_flops(name: str, given: dict[str, Any]) -> float:
    """Each step of each sequence is multiplied with both weights once; backward, once for each gradient."""
    source = given["input"]
    weights = [given[key] for key in ("weight0", "weight1", "weight2") if given.get(key) is not None]
    weights = [w for w in weights if w.dim() == 2]
    steps = source.numel() / max(1, source.shape[-1])
    return float((2 if "backward" in name else 1) * 2 * steps * sum(w.numel() for w in weights))
