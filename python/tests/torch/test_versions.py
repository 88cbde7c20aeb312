"""Releases of PyTorch: the range that is supported, and what differs between them."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from remat.torch import fit
from remat.torch.base.version import NEWEST, OLDEST, warn_of_other_release
from torch import nn

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    "version", ["2.10.0", "2.13.0+cpu", "2.15.1+cu130", "2.14.0a0+git1234567", "__version__"]
)
def test_supported_releases_are_no_news(version: str, caplog: pytest.LogCaptureFixture) -> None:
    warn_of_other_release(version)
    assert not caplog.records


@pytest.mark.parametrize("version", ["2.9.1", "2.16.0", "3.0.0+cpu", "1.13.1"])
def test_other_releases_are_one_warning(version: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "remat.torch"):
        warn_of_other_release(version)
    assert caplog.messages == [f"PyTorch {version} was not tried: remat.torch is tested with 2.10 to 2.15"]


@pytest.mark.long
def test_a_release_that_was_not_tried_works_after_one_line() -> None:
    program = (
        "import torch; torch.__version__ = '2.99.0'; import remat.torch; from remat.torch import backend\n"
        "print(remat.torch.measure_peak(lambda: torch.ones(1000)))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stderr.splitlines() == [
        "PyTorch 2.99.0 was not tried: remat.torch is tested with 2.10 to 2.15"
    ]
    assert int(run.stdout) >= 4000


def test_the_package_asks_for_the_oldest_release() -> None:
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'torch = ["torch>={OLDEST[0]}.{OLDEST[1]}"]' in declared
    install = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}" in install


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return self.layers(x).square().mean()


def trained(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    model(x).backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def without_keyword(*, shown: Any) -> Any:
    """`torch.compile` as releases before 2.13 have it."""

    def compiler(model: Any, *, backend: Any, dynamic: bool) -> Any:
        shown.append(model)
        return real(model, backend=backend, dynamic=dynamic)

    real = torch.compile
    return compiler


@pytest.mark.parametrize("isolated", [pytest.param(True, marks=pytest.mark.long), False])
def test_many_models_of_a_class_and_many_shapes_all_have_plans(
    isolated: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compiled: list[Any] = []
    if not isolated:
        monkeypatch.setattr(torch, "compile", without_keyword(shown=compiled))
    with (
        caplog.at_level(logging.WARNING, "remat.torch"),
        torch._dynamo.config.patch(recompile_limit=2, accumulated_recompile_limit=2),
    ):
        for _ in range(3):
            model = Model()
            fitted = fit(model, torch.randn(4, 32), "1GiB", max_shapes=8, executor="boxed")
            for size in range(4, 7):
                x = torch.randn(size, 32)
                planned = trained(fitted, x)
                assert all(a.equal(b) for a, b in zip(planned, trained(model, x), strict=True))
            assert len([part for part in fitted.remat.parts if part.existing_gradients == 0]) == 3
    assert len({id(each.__code__) for each in compiled}) == (0 if isolated else 3)
    assert not caplog.records
