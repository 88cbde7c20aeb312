"""What ops cost, and which of their results XLA stores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import Literal

from remat.jax.devices import Device, Habits
from remat.jax.regions import Op, flatten, inner_jaxprs, inner_kinds

#: XLA fuses these into whatever reads them: they take no memory of their own.
FUSED = frozenset(
    [
        "abs",
        "add",
        "add_any",
        "and",
        "acos",
        "asin",
        "atan",
        "atan2",
        "broadcast_in_dim",
        "cbrt",
        "ceil",
        "clamp",
        "convert_element_type",
        "copy",
        "copy_p",
        "cos",
        "cosh",
        "div",
        "eq",
        "erf",
        "erf_inv",
        "exp",
        "exp2",
        "expand_dims",
        "expm1",
        "floor",
        "ge",
        "gt",
        "integer_pow",
        "iota",
        "is_finite",
        "le",
        "log",
        "log1p",
        "logistic",
        "lt",
        "max",
        "min",
        "mul",
        "name",
        "ne",
        "neg",
        "not",
        "or",
        "pow",
        "pvary",
        "rem",
        "reshape",
        "round",
        "rsqrt",
        "select_n",
        "shift_left",
        "shift_right_arithmetic",
        "shift_right_logical",
        "sign",
        "sin",
        "sinh",
        "slice",
        "sqrt",
        "square",
        "squeeze",
        "stop_gradient",
        "sub",
        "tan",
        "tanh",
        "transpose",
        "xor",
    ]
)
#: What XLA for GPUs makes of rows in the kernel that reads them once more.
OF_ROWS = frozenset(["reduce_sum", "reduce_max", "reduce_min"])
VIEWS = frozenset(["broadcast_in_dim", "copy", "expand_dims", "reshape", "squeeze", "transpose"])
#: Their operands are in memory: what is fused ends before them.
LIBRARY = frozenset(["dot_general", "conv_general_dilated"])
#: What they are given is in memory too.
LOOPS = frozenset(["scan", "while"])
#: Too dear to be made again at the head of a region, whatever it would save.
DEAR = LIBRARY | {"scan", "while", "cond", "sort", "cumsum", "fft", "cholesky", "triangular_solve", "eigh"}
DEAR |= {"pure_callback"}
#: What may not run a second time, or whose order is promised.
EFFECTS = frozenset(["io_callback", "debug_callback", "debug_print", "infeed", "outfeed"])


def is_on_host(v: Any) -> bool:
    return str(getattr(v.aval, "memory_space", "")).endswith("Host")


def aval_of(x: Any) -> Any:
    """The shape and type of an array."""
    return jax.typeof(x) if hasattr(jax, "typeof") else jax.api_util.shaped_abstractify(x)


def bytes_of(v: Any) -> int:
    """On the device."""
    if is_on_host(v):
        return 0
    size = getattr(v.aval.dtype, "itemsize", 4)
    return int(math.prod(v.aval.shape)) * int(size)


def is_float(aval: Any) -> bool:
    kind = getattr(aval.dtype, "kind", "")
    return kind in "fc" or "float" in str(aval.dtype)


def is_number(aval: Any) -> bool:
    """Not a key of random numbers, nor anything else that numpy does not know."""
    return isinstance(aval.dtype, np.dtype)


def is_cheap(kind: str, params: dict[str, Any]) -> bool:
    if kind in DEAR or kind in EFFECTS:
        return False
    return all(inner not in DEAR for inner in inner_kinds(params))


def is_of_rows(op: Op) -> bool:
    """Is it a sum, or the like, over the last dimensions of what it reads?"""
    if op.kind not in OF_ROWS:
        return False
    rank = len(op.ins[0].aval.shape)
    axes = sorted(op.params["axes"])
    return bool(axes) and len(axes) < rank and axes == list(range(rank - len(axes), rank))


def is_fused(kind: str, params: dict[str, Any], habits: Habits) -> bool:
    if kind.startswith("custom_jvp"):
        return all(inner in FUSED | {"jit", "pjit"} for inner in inner_kinds(params))
    return kind in FUSED or kind in habits.views


def flops_of(kind: str, params: dict[str, Any], ins: Sequence[Any], outs: Sequence[Any]) -> float:
    size = float(sum(math.prod(v.aval.shape) for v in outs))
    if kind == "dot_general":
        (contract, _), _ = params["dimension_numbers"]
        return 2 * size * math.prod(ins[0].aval.shape[i] for i in contract)
    if kind == "conv_general_dilated":
        kernel = ins[1].aval.shape
        return 2 * size * math.prod(kernel) / max(1, kernel[params["dimension_numbers"].rhs_spec[0]])
    if kind.startswith("reduce") or kind.startswith("arg"):
        return float(sum(math.prod(v.aval.shape) for v in ins))
    inner = [
        sum(flops_of(e.primitive.name, e.params, e.invars, e.outvars) for e in j.eqns)
        for j in inner_jaxprs(params)
    ]
    if kind == "cond":
        return max(inner)
    if kind == "scan":
        return float(params["length"]) * inner[0]
    return max(size, sum(inner))


def seconds_of(
    device: Device, kind: str, params: dict[str, Any], ins: Sequence[Any], outs: Sequence[Any]
) -> float:
    """By a roofline of flops; of scans by rooflines of the ops that their bodies store."""
    if kind == "scan":
        return float(params["length"]) * body_seconds(device, params["jaxpr"].jaxpr)
    if kind == "device_put" and device.link:
        return sum(map(bytes_of, [*ins, *outs])) / device.link
    dots = kind in LIBRARY or any(inner in LIBRARY for inner in inner_kinds(params))
    width = max((getattr(v.aval.dtype, "itemsize", 4) for v in ins), default=4)
    return device.seconds(flops_of(kind, params, ins, outs), width, dots)


def body_seconds(device: Device, jaxpr: Any) -> float:
    """By rooflines of what a jaxpr stores, and of the flops of all else."""
    steps, _, total = stored_steps(device, jaxpr, operands=True)
    for op, reads, made in steps:
        seconds = seconds_of(device, op.kind, op.params, op.ins, op.outs)
        # A scan's are of all that it moves.
        moved = 0 if op.kind == "scan" else sum(map(bytes_of, [*reads, *made]))
        total += max(seconds, moved / device.bandwidth)
    return total


def transposed(params: dict[str, Any]) -> tuple[bool, bool, bool]:
    """Which of a convolution's operands and its result XLA transposes, since they have not the one layout
    that it runs: those of gradients of kernels."""
    numbers = params["dimension_numbers"]
    rank = len(numbers.out_spec)
    image = (0, rank - 1, *range(1, rank - 1))
    kernel = (rank - 1, rank - 2, *range(rank - 2))
    specs = (numbers.lhs_spec, image), (numbers.rhs_spec, kernel), (numbers.out_spec, image)
    left, right, out = (tuple(spec) != wanted for spec, wanted in specs)
    return left, right, out


def workspace_of(
    device: Device, kind: str, params: dict[str, Any], ins: Sequence[Any], outs: Sequence[Any]
) -> int:
    """Bytes that XLA needs while an op runs, beside what goes in and comes out."""
    habits = device.habits
    if kind == "dot_general":
        if habits.wide_dots and all(getattr(v.aval.dtype, "itemsize", 4) == 2 for v in outs):
            return sum(4 * math.prod(v.aval.shape) for v in {*ins, *outs})
        return partial_sums(device, params, ins, outs) if habits.split_dots else 0
    if kind.startswith("ragged_dot") and habits.dense_groups:
        return int(ins[2].aval.size) * bytes_of(ins[0])
    if kind == "conv_general_dilated":
        if habits.transposed_kernels:
            # Of gradients of kernels, whose batch is the features of what they read, it is what comes out.
            batch, features = params["dimension_numbers"].lhs_spec[:2]
            return bytes_of(outs[0] if batch > features else ins[1]) + padded(params, ins, outs)
        if not habits.transposed_operands:
            return 0
        turned = transposed(params)
        return sum(bytes_of(v) for v, other in zip([*ins, *outs], turned, strict=True) if other)
    if kind == "select_and_scatter_add" and habits.pooled_by_indices:
        # The indices of the chosen elements; those of all elements are an op of their own.
        return 4 * len(ins[0].aval.shape) * math.prod(ins[0].aval.shape)
    slices = 0
    if kind == "scan":
        body = params["jaxpr"].jaxpr
        of_step = body.invars[params["num_consts"] + params["num_carry"] :]
        if habits.copied_slices:
            slices = sum(map(bytes_of, [*of_step, *body.outvars[params["num_carry"] :]]))
        elif habits.early_stacks:
            slices = sum(map(bytes_of, read_in_memory(body, of_step)))
    return slices + max((peak_of(device, inner) for inner in inner_jaxprs(params)), default=0)


def stacked(op: Op) -> Sequence[Any]:
    """What a scan makes in each iteration."""
    return op.outs[op.params["num_carry"] :]


def read_in_memory(jaxpr: Any, given: Sequence[Any]) -> set[Any]:
    """Those of its inputs that dots, convolutions and loops read as they are, or through views, and those
    that a checkpoint's second run reads, through a barrier."""
    ops, _, _ = flatten(jaxpr, [None] * len(jaxpr.constvars), call_of)
    root = {v: v for v in given}
    again = (e for e in jaxpr.eqns if e.params.get("differentiated") and e.params.get("prevent_cse"))
    found = {v for e in again for v in e.invars if not isinstance(v, Literal) and v in root}
    for op in ops:
        reads = [root[v] for v in op.ins if not isinstance(v, Literal) and v in root]
        if op.kind in LIBRARY | LOOPS:
            found.update(reads)
        elif op.kind in VIEWS and reads:
            root[op.outs[0]] = reads[0]
    return found


def padded(params: dict[str, Any], ins: Sequence[Any], outs: Sequence[Any]) -> int:
    """Bytes of the copy that XLA pads for a convolution whose padding is not the same on both sides: of what
    is read, or of the result where it is the gradient by that."""
    numbers = params["dimension_numbers"]
    whole, part = (ins[0], outs[0]) if max(params["lhs_dilation"]) == 1 else (outs[0], ins[0])
    at, of = (numbers.lhs_spec, numbers.out_spec) if whole is ins[0] else (numbers.out_spec, numbers.lhs_spec)
    by_kernel = numbers.lhs_spec[0] > numbers.lhs_spec[1]
    size, uneven = bytes_of(whole), False
    for i, (low, high) in enumerate(params["padding"]):
        wide, few = whole.aval.shape[at[2 + i]], part.aval.shape[of[2 + i]]
        window = ins[1].aval.shape[numbers.rhs_spec[2 + i]]
        stride = params["window_strides"][i]
        if by_kernel:  # of the convolution that this is the gradient of
            few, window, stride = window, few, params["rhs_dilation"][i]
        elif whole is outs[0]:
            low, stride = window - 1 - low, params["lhs_dilation"][i]
        # What is left over at the end may be padded or not.
        least = (few - 1) * stride + window - wide - low
        high = min(max(low, least), least + stride - 1)
        uneven = uneven or high != low
        size = size * (wide + low + high) // wide
    return size if uneven else 0


def partial_sums(device: Device, params: dict[str, Any], ins: Sequence[Any], outs: Sequence[Any]) -> int:
    """Bytes of the partial results of a dot. XLA chooses how many by a model of costs; this formula gives
    what it chose for 54 shapes in float32 on an H100, and for 49 of them on an L4."""
    (contract, _), (batch, _) = params["dimension_numbers"]
    shape = ins[0].aval.shape
    length = math.prod(shape[i] for i in contract)
    batches = math.prod(shape[i] for i in batch)
    rows = math.prod(shape) // max(1, length * batches)
    size = math.prod(outs[0].aval.shape)
    tiles = batches * -(-rows // 128) * -(-size // max(1, batches * rows * 128))
    cores = device.chip.cores if device.chip else 0
    wanted = cores * math.sqrt(0.62 * length / (tiles * 128**2)) if tiles else 0
    if wanted < 4:
        return 0
    parts = 1 << int(math.log2(max(1, min(wanted, 1.5 * cores / tiles))))
    return parts * 4 * size if parts > 1 else 0


def call_of(eqn: Any) -> Any:
    """The jaxpr that an equation calls once, with its constants if it has them; None: it calls none."""
    if eqn.primitive.name in ("scan", "while", "cond"):
        return None
    bodies = ((each, getattr(each, "jaxpr", each)) for each in eqn.params.values())
    found = next(((each, body) for each, body in bodies if hasattr(body, "eqns")), None)
    return found[0] if found and len(found[1].invars) == len(eqn.invars) else None


def stored_steps(
    device: Device, jaxpr: Any, operands: bool = False
) -> tuple[list[tuple[Op, list[Any], list[Any]]], set[Any], float]:
    """What a jaxpr stores, in its order: ops, what is stored and they read, what they make; of these the
    results of the jaxpr; seconds for the flops of what is fused.

    operands: what dots and convolutions read, and results, are stored where ops that could be fused make
    them.
    """
    ops, _, outs = flatten(jaxpr, [None] * len(jaxpr.constvars), call_of)
    habits = device.habits
    steps: list[tuple[Op, list[Any], list[Any]]] = []
    roots: dict[Any, list[Any]] = {}
    fused: dict[Any, Op] = {}
    seconds = 0.0

    def read(ins: Sequence[Any]) -> list[Any]:
        return list(dict.fromkeys(r for v in ins if not isinstance(v, Literal) for r in roots.get(v, [v])))

    def store(ins: Sequence[Any]) -> None:
        for v in ins:
            if not isinstance(v, Literal) and v in fused:
                steps.append((fused.pop(v), roots[v], [v]))
                roots[v] = [v]

    for op in ops:
        if op.kind == "optimization_barrier":
            roots.update((v, read([w])) for v, w in zip(op.outs, op.ins, strict=True))
        elif is_fused(op.kind, op.params, habits) or (habits.one_pass and is_of_rows(op)):
            roots[op.outs[0]] = read(op.ins)
            seconds += seconds_of(device, op.kind, op.params, op.ins, op.outs)
            if operands and op.kind not in VIEWS | habits.views:
                fused[op.outs[0]] = op
        else:
            if op.kind in LIBRARY | LOOPS:
                store(op.ins)
            steps.append((op, read(op.ins), op.outs))
    store(outs)
    return steps, set(read(outs)), seconds


def peak_of(device: Device, jaxpr: Any) -> int:
    """Peak of the stored results of a jaxpr, in its order, without its inputs and results."""
    early_stacks = device.habits.early_stacks
    steps, results, _ = stored_steps(device, jaxpr, operands=early_stacks)
    last = {v: i for i, (_, reads, made) in enumerate(steps) for v in [*reads, *made]}
    born = {v for _, _, made in steps for v in made} - results
    if early_stacks:  # a result of a dot is copied into its stack
        born |= {v for op, _, made in steps for v in made if op.kind in LIBRARY}
    ends: dict[int, list[Any]] = {}
    for v in born:
        ends.setdefault(last[v], []).append(v)
    scans = [op for op, _, _ in steps if op.kind == "scan" and early_stacks]
    early = {v for op in scans for v in stacked(op)} & born
    live = peak = sum(map(bytes_of, early))
    for i, (op, _, made) in enumerate(steps):
        live += sum(bytes_of(v) for v in made if v in born and v not in early)
        peak = max(peak, live + workspace_of(device, op.kind, op.params, op.ins, op.outs))
        live -= sum(map(bytes_of, ends.get(i, [])))
    return peak
