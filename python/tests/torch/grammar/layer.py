"""What every rule of the grammar is."""

from __future__ import annotations

import random

import torch
from torch import nn

SINGLE = (torch.float32, torch.float64)
FLOATS = (*SINGLE, torch.bfloat16, torch.float16)


class Layer(nn.Module):
    """One rule of the grammar: from (batch, length, width) to the same shape.

    types: floating-point types that its ops know.
    once: is it compiled once? Not where Dynamo breaks the graph in it, nor where it compiles a later call
    again. Without a graph of one piece a budget is not promised.
    refusal: part of the message with which it may be refused; nothing else may be.
    since: the step from which on it runs other ops.
    """

    types: tuple[torch.dtype, ...] = FLOATS
    once = True
    refusal = ""
    since: int | None = None

    def __init__(self, draw: random.Random, width: int) -> None:
        super().__init__()
        self.width = width

    def change(self, step: int) -> None:
        """What the training loop does to the layer before a step."""
