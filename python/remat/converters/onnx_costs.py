"""Floating point operations of ONNX operators, a multiply-and-add counted as two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from remat.converters.maker import elements_of

Shape = Sequence[int]

# Flops per element of the largest operand; others take 1. As in src/generate/cost.cc.
_PER_ELEMENT = {
    **dict.fromkeys(("Softmax", "LogSoftmax", "Softplus", "Hardmax"), 5),
    **dict.fromkeys(("Gelu", "Erf", "Tanh", "Sigmoid", "Mish", "Elu", "Selu"), 8),
    **dict.fromkeys(
        (
            *("BatchNormalization", "LayerNormalization", "GroupNormalization", "InstanceNormalization"),
            *("RMSNormalization", "SimplifiedLayerNormalization", "LpNormalization", "Resize", "Upsample"),
        ),
        8,
    ),
    **dict.fromkeys(
        ("Dropout", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"), 10
    ),
    **dict.fromkeys(("Bernoulli", "Multinomial"), 10),
}
# These move data only.
NO_FLOPS = frozenset(
    (
        *("Cast", "CastLike", "Concat", "Split", "Slice", "Transpose", "Pad", "Tile", "Expand", "Gather"),
        *("GatherElements", "GatherND", "ScatterElements", "ScatterND", "Scatter", "Shape", "Size", "Range"),
        *(
            "ConstantOfShape",
            "EyeLike",
            "OneHot",
            "DepthToSpace",
            "SpaceToDepth",
            "ReverseSequence",
            "Compress",
        ),
        *("Where", "NonZero", "Unique", "Trilu", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"),
    )
)
# These read only as many bytes of their first tensor as they return.
LOOKUPS = frozenset(("Gather", "GatherElements", "GatherND", "Slice"))
# Bodies, and operators whose work is not in their shapes.
UNKNOWN = frozenset(
    ("If", "Loop", "Scan", "NonMaxSuppression", "SequenceMap", "STFT", "DFT", "TfIdfVectorizer")
)
_PRODUCTS = frozenset(("MatMul", "MatMulInteger", "QLinearMatMul"))
_CONVOLUTIONS = frozenset(("Conv", "ConvInteger", "QLinearConv", "DeformConv"))
_RECURRENT = {"LSTM": 4, "GRU": 3, "RNN": 1}


def flop_count(
    kind: str, reads: Sequence[Shape | None], writes: Sequence[Shape], given: Mapping[str, Any]
) -> float:
    """Flops of one operator of the standard domain.

    Args:
        kind: its `op_type`.
        reads: shapes of its inputs; None for omitted ones.
        writes: shapes of its outputs.
        given: its attributes.
    """
    if kind in NO_FLOPS:
        return 0.0
    made = elements_of(writes[0]) if writes else 0
    if kind in _PRODUCTS:
        return 2.0 * made * _at(reads, 0)[-1]
    if kind == "Gemm":
        return 2.0 * made * _at(reads, 0)[0 if given.get("transA") else 1]
    if kind in _CONVOLUTIONS:
        weight = _at(reads, 3 if kind == "QLinearConv" else 1)
        return 2.0 * made * elements_of(weight[1:])
    if kind == "ConvTranspose":
        return 2.0 * elements_of(_at(reads, 0)) * elements_of(_at(reads, 1)[1:])
    if kind in _RECURRENT:
        # Each step of each sequence is multiplied with both weights once.
        steps = elements_of(_at(reads, 0)[:2])
        return 2.0 * steps * (elements_of(_at(reads, 1)) + elements_of(_at(reads, 2)))
    if kind == "Einsum":
        return _einsum(str(given.get("equation", "")), reads)
    if kind == "Attention":
        return _attention(reads, made, given)
    if kind in ("MaxPool", "AveragePool", "LpPool"):
        return float(made * elements_of(given.get("kernel_shape", (1,))))
    largest = max((elements_of(shape) for shape in [*reads, *writes] if shape is not None), default=0)
    return float(_PER_ELEMENT.get(kind, 1) * largest)


def _at(shapes: Sequence[Shape | None], index: int) -> Shape:
    shape = shapes[index] if index < len(shapes) else None
    return shape or (1, 1)


def _einsum(equation: str, reads: Sequence[Shape | None]) -> float:
    """Every combination of the letters once, a multiply-and-add for each operand but the first."""
    size: dict[str, int] = {}
    terms = equation.replace(" ", "").split("->")[0].split(",")
    for term, shape in zip(terms, reads, strict=False):
        letters = term.replace("...", "")
        if shape is None:
            continue
        # Dimensions of an ellipsis come first here, numbered from the end.
        more = len(shape) - len(letters)
        for place, length in enumerate(shape):
            letter = letters[place - more] if place >= more else f"...{more - place}"
            size[letter] = max(size.get(letter, 1), length)
    return 2.0 * max(1, len(terms) - 1) * elements_of(size.values())


def _attention(reads: Sequence[Shape | None], made: int, given: Mapping[str, Any]) -> float:
    """Two products of queries and keys, half of each if causal."""
    key = _at(reads, 1)
    share = 0.5 if given.get("is_causal") else 1.0
    return 2.0 * 2.0 * made * key[-2] * share
