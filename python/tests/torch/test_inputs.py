"""Inputs that are views of larger tensors: the budget covers the whole of what is in memory."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import remat
import remat.torch
import torch
from torch import nn

ROWS, WIDTH = 1024, 64


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(*[y for _ in range(8) for y in (nn.Linear(WIDTH, WIDTH), nn.GELU())])

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return (self.layers(x) + y).square().mean()


def peak(model: nn.Module, x: torch.Tensor) -> int:
    y = x.view_as(x)
    model.zero_grad()
    return remat.torch.measure_peak(lambda: model(x, y).backward(), resident=[model, x, y])


def planned(budget: int, x: torch.Tensor, executor: str, **options: Any) -> Any:
    return remat.torch.fit(
        Layers(), (x, x.view_as(x)), budget, executor=executor, work_limit=20_000, **options
    )


@pytest.mark.parametrize("executor", ["boxed", "eager"])
def test_slices_of_a_data_set_are_planned_for_as_such(
    executor: str, caplog: pytest.LogCaptureFixture
) -> None:
    x, data = torch.randn(ROWS, WIDTH), torch.randn(4 * ROWS, WIDTH)
    first, second = data[:ROWS], data[ROWS : 2 * ROWS]
    budget = peak(Layers(), first) * 3 // 4
    model = planned(budget, x, executor)
    assert peak(model, x) <= budget
    with caplog.at_level(logging.WARNING, logger="remat"):
        for each in (first, second, first, x):
            assert peak(model, each) <= budget
    assert not caplog.records
    model.zero_grad()
    own = Layers()
    own(second, second.view_as(second)).backward()
    model(second, second.view_as(second)).backward()
    pairs = zip(own.parameters(), model.parameters(), strict=True)
    assert all(torch.equal(a.grad, b.grad) for a, b in pairs)


@pytest.mark.parametrize("executor", ["boxed", "eager"])
def test_a_sample_that_is_a_slice_counts_as_a_whole(executor: str) -> None:
    data = torch.randn(4 * ROWS, WIDTH)
    budget = peak(Layers(), data[:ROWS]) * 3 // 4
    model = planned(budget, data[:ROWS], executor)
    assert peak(model, data[ROWS : 2 * ROWS]) <= budget


@pytest.mark.parametrize("executor", ["boxed", "eager"])
def test_a_data_set_that_has_no_room_is_said_once(executor: str, caplog: pytest.LogCaptureFixture) -> None:
    x, data = torch.randn(ROWS, WIDTH), torch.randn(20 * ROWS, WIDTH)
    budget = peak(Layers(), x) * 3 // 4
    model, strict = planned(budget, x, executor), planned(budget, x, executor, strict=True)
    assert peak(model, x) <= budget
    with caplog.at_level(logging.WARNING, logger="remat"):
        for start in (0, ROWS):
            part = data[start : start + ROWS]
            assert peak(model, part) > budget
    (said,) = [record.getMessage() for record in caplog.records]
    assert f"they take {20 * ROWS * WIDTH * 4 / (1 << 20):.2f} MiB" in said
    assert f"({budget} bytes)" in said
    assert peak(strict, x) <= budget
    with pytest.raises(remat.UsageError, match="strict=True: inputs of a call are views of larger"):
        peak(strict, data[:ROWS])
