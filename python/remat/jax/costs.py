"""What ops cost, and which of their results XLA stores."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from jax.extend.core import Literal

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
VIEWS = frozenset(["broadcast_in_dim", "copy", "expand_dims", "reshape", "squeeze", "transpose"])
#: Their operands are in memory: what is fused ends before them.
LIBRARY = frozenset(["dot_general", "conv_general_dilated"])
#: Too dear to be made again at the head of a region, whatever it would save.
DEAR = LIBRARY | {"scan", "while", "cond", "sort", "cumsum", "fft", "cholesky", "triangular_solve", "eigh"}
#: What may not run a second time, or whose order is promised.
CALLBACKS = frozenset(["pure_callback", "io_callback", "debug_callback", "debug_print", "infeed", "outfeed"])
FLOPS, BANDWIDTH = 50e9, 10e9  # per second, of a few cores


def bytes_of(v: Any) -> int:
    size = getattr(v.aval.dtype, "itemsize", 4)
    return int(math.prod(v.aval.shape)) * int(size)


def inner_jaxprs(params: dict[str, Any]) -> Iterator[Any]:
    """The jaxprs that an op calls, without their constants."""
    for value in params.values():
        for each in value if isinstance(value, (tuple, list)) else [value]:
            inner = getattr(each, "jaxpr", each)
            if hasattr(inner, "eqns"):
                yield inner


def all_eqns(jaxpr: Any) -> Iterator[Any]:
    for eqn in jaxpr.eqns:
        yield eqn
        for inner in inner_jaxprs(eqn.params):
            yield from all_eqns(inner)


def is_cheap(kind: str, params: dict[str, Any]) -> bool:
    if kind in DEAR or kind in CALLBACKS:
        return False
    return all(e.primitive.name not in DEAR for inner in inner_jaxprs(params) for e in all_eqns(inner))


def is_fused(kind: str, params: dict[str, Any]) -> bool:
    if kind.startswith("custom_jvp"):
        return all(
            e.primitive.name in FUSED | {"jit", "pjit"} for j in inner_jaxprs(params) for e in all_eqns(j)
        )
    return kind in FUSED


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


def workspace_of(kind: str, params: dict[str, Any], ins: Sequence[Any], outs: Sequence[Any]) -> int:
    """Bytes that XLA needs while an op runs, beside what goes in and comes out."""
    if kind == "conv_general_dilated":
        turned = transposed(params)
        return sum(bytes_of(v) for v, other in zip([*ins, *outs], turned, strict=True) if other)
    if kind == "select_and_scatter_add":
        # The indices of the chosen elements; those of all elements are an op of their own.
        return 4 * len(ins[0].aval.shape) * math.prod(ins[0].aval.shape)
    return max((peak_of(inner) for inner in inner_jaxprs(params)), default=0)


def peak_of(jaxpr: Any) -> int:
    """Peak of the stored results of a jaxpr, in its order, without its inputs and results."""
    steps: list[tuple[list[Any], list[Any], int]] = []

    def go(inner: Any, env: dict[Any, Any]) -> None:
        def roots(v: Any) -> list[Any]:
            return [] if isinstance(v, Literal) else list(env.get(v, [(id(env), v)]))

        for eqn in inner.eqns:
            kind = eqn.primitive.name
            reads = [r for v in eqn.invars for r in roots(v)]
            sub = next(inner_jaxprs(eqn.params), None)
            if (
                sub is not None
                and kind not in ("scan", "while", "cond")
                and len(sub.invars) == len(eqn.invars)
            ):
                within = {v: roots(w) for v, w in zip(sub.invars, eqn.invars, strict=True)}
                go(sub, within)
                env.update(
                    (v, [] if isinstance(w, Literal) else within.get(w, []))
                    for v, w in zip(eqn.outvars, sub.outvars, strict=False)
                )
            elif kind in FUSED or kind == "optimization_barrier":
                if kind == "optimization_barrier":
                    env.update((v, roots(w)) for v, w in zip(eqn.outvars, eqn.invars, strict=True))
                else:
                    env[eqn.outvars[0]] = list(dict.fromkeys(reads))
            else:
                made = [(id(env), v) for v in eqn.outvars]
                env.update((v, [m]) for v, m in zip(eqn.outvars, made, strict=True))
                steps.append((reads, made, workspace_of(kind, eqn.params, eqn.invars, eqn.outvars)))

    top: dict[Any, Any] = {}
    go(jaxpr, top)
    results = {r for v in jaxpr.outvars if not isinstance(v, Literal) for r in top.get(v, [])}
    last = {m: i for i, (reads, made, _) in enumerate(steps) for m in [*reads, *made]}
    born = {m for _, made, _ in steps for m in made} - results
    live = peak = 0
    ends: dict[int, list[Any]] = {}
    for m in born:
        ends.setdefault(last[m], []).append(m)
    for i, (_, made, extra) in enumerate(steps):
        live += sum(bytes_of(m[1]) for m in made if m in born)
        peak = max(peak, live + extra)
        live -= sum(bytes_of(m[1]) for m in ends.get(i, []))
    return peak
