"""What is written in place has the strides of eager mode, and so do all that read it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import remat.torch
import torch
import torch.nn.functional as F
from torch import nn

FIRST = torch.tensor([0, 1])
COLUMNS = torch.zeros(2, 8, 6, 6, dtype=torch.long)

# Each writes to y; x is another tensor of its shape and strides.
WRITES: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "masked_fill_": lambda y, x: y.masked_fill_(x > 1, 0.5),
    "masked_fill_ by a contiguous mask": lambda y, x: y.masked_fill_((x > 1).contiguous(), 0.5),
    "masked_fill_ by a mask for all": lambda y, x: y.masked_fill_(x[:1, :1] > 0, 0.5),
    "masked_fill_ of a part": lambda y, x: y[:, :2].masked_fill_(x[:, :2] > 0, 0.5),
    "masked_scatter_": lambda y, x: y.masked_scatter_(x > 1, x.sin()),
    "index_put_": lambda y, x: y.index_put_((FIRST,), x[:2].sin()),
    "index_add_": lambda y, x: y.index_add_(1, FIRST, x[:, :2]),
    "index_copy_": lambda y, x: y.index_copy_(1, FIRST, x[:, :2].sin()),
    "scatter_": lambda y, x: y.scatter_(1, COLUMNS[:, :1], x[:, :1].sin()),
    "scatter_add_": lambda y, x: y.scatter_add_(1, COLUMNS, x),
    "tril_": lambda y, x: y.tril_(),
    "cumsum_": lambda y, x: y.cumsum_(1),
    "mul_": lambda y, x: y.mul_(x[:, :1].contiguous()),
    "copy_": lambda y, x: y.copy_((2 * x).contiguous()),
    "clamp_": lambda y, x: y.clamp_(-1, 1),
    "lerp_": lambda y, x: y.lerp_(x.contiguous(), 0.3),
    "dropout": lambda y, x: F.dropout(y, 0.2, True, inplace=True),
    "alpha dropout": lambda y, x: F.alpha_dropout(y, 0.2, True, inplace=True),
    "bernoulli_": lambda y, x: y.mul_(torch.empty_like(x).bernoulli_(0.5)),
    "normal_ of a part": lambda y, x: y.add_(torch.zeros_like(x)[:, ::2].normal_().sum()),
    "slice": lambda y, x: y[:, :2].copy_(x[:, :2].tanh()),
}


class Writes(nn.Module):
    """write: what its forward does to a channels-last image."""

    def __init__(self, write: Callable[[torch.Tensor, torch.Tensor], object]) -> None:
        super().__init__()
        self.write = write
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.scale = nn.Parameter(torch.randn(8, 1, 1))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.first(image)
        y = self.second(x) * self.scale
        self.write(y, x)
        return (y * 1.1 + 0.1 * y.sin()).tanh().sum()


@pytest.mark.parametrize("name", WRITES)
def test_a_channels_last_image_that_is_written_to_stays_one(name: str) -> None:
    torch.manual_seed(0)
    model = Writes(WRITES[name]).to(memory_format=torch.channels_last)
    image = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)
    found = remat.torch.verify(model, image, steps=1, costs="roofline", time_limit=0.1)
    assert found.differences == ()
    assert found.within


class Normed(nn.Module):
    """A group norm, whose strides tell dropout where each of its random numbers goes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return F.dropout(self.norm(self.first(image)), 0.2, True).tanh().sum()


def test_the_group_norm_of_a_channels_last_image_is_one() -> None:
    torch.manual_seed(0)
    model = Normed().to(memory_format=torch.channels_last)
    image = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)
    found = remat.torch.verify(model, image, steps=1, costs="roofline", time_limit=0.1)
    assert found.differences == ()


class NormedSequence(nn.Module):
    """A batch norm over the features of a sequence, which stand in the middle for that."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(self.norm(self.first(x).transpose(1, 2)).transpose(1, 2), 0.2, True).tanh().sum()


def test_the_batch_norm_of_a_transposed_sequence_is_contiguous_before_it_is_turned_back() -> None:
    torch.manual_seed(0)
    found = remat.torch.verify(
        NormedSequence(), torch.randn(2, 5, 8), steps=1, costs="roofline", time_limit=0.1
    )
    assert found.differences == ()
