"""Training loops that do this and that in a drawn order, beside the same in eager mode."""

from __future__ import annotations

import pytest
import torch
from situations import compared


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(n, marks=pytest.mark.long) for n in range(4, 40))]
)
def test_whatever_a_loop_does_results_are_those_of_eager_mode(seed: int) -> None:
    torch._dynamo.reset()
    assert compared(seed) == ""
