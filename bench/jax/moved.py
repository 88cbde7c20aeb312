"""Bytes that the kernels of a compiled program read and write, from its text: what most of a step's time on a
GPU is, where no GPU is there to take it."""

from __future__ import annotations

import math
import re

WIDTHS = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "f16": 2, "bf16": 2, "s32": 4, "u32": 4, "f32": 4,
          "s64": 8, "u64": 8, "f64": 8, "c64": 8, "c128": 16}  # fmt: skip
#: What no kernel runs for.
FREE = frozenset(["parameter", "get-tuple-element", "tuple", "bitcast", "constant", "opt-barrier"])
INSTRUCTION = re.compile(r"\s*(?:ROOT )?(%?[\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*?)\)(?:,|$)")
ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")


def size_of(shape: str) -> int:
    """Bytes of a shape, or of the shapes of a tuple, as XLA prints it."""
    return sum(
        WIDTHS.get(kind, 0) * math.prod(int(n) for n in sides.split(",") if n)
        for kind, sides in ARRAY.findall(shape)
    )


def moved(text: str) -> int:
    """Of the entry of a program; 0 with loops, whose kernels are elsewhere."""
    sizes: dict[str, int] = {}
    total = 0
    for line in text[text.index("\nENTRY") :].splitlines()[1:]:
        found = INSTRUCTION.match(line)
        if not found:
            continue
        name, shape, kind, operands = found.groups()
        sizes[name] = size_of(shape)
        if kind == "while":
            return 0
        if kind not in FREE:
            names = {operand.strip().split(" ")[-1] for operand in operands.split(",")}
            total += sizes[name] + sum(sizes.get(each, 0) for each in names)
    return total
