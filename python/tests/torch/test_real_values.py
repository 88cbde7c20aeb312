"""Costs of ops that refuse tensors made for measuring, or whose memory depends on the values they read; and
peaks of steps whose gradients, arguments or strides are not what tracing says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import remat
import remat.torch
import torch
from remat.torch.cost import profile, source
from remat.torch.cost.values import RealValues
from torch import nn
from training import Trace, fit


def steps_within(fitted: nn.Module, inputs: Any, eager: Callable[[], torch.Tensor], model: nn.Module) -> None:
    """Two steps, the second of which adds to gradients: equal to eager mode, at the predicted peaks."""
    losses: list[torch.Tensor] = []
    leaves = [x for x in inputs if x.requires_grad]

    def step() -> None:
        losses.append(fitted(*inputs))
        losses[-1].backward()

    def gradients() -> list[torch.Tensor]:
        return [x.grad.clone() for x in leaves]

    for measured in (False, True):
        torch.manual_seed(3)
        losses.clear()
        resident = [fitted, *inputs]
        fitted.zero_grad()
        for leaf in leaves:
            leaf.grad = None
        peaks = [remat.torch.measure_peak(step, resident=resident) if measured else step() for _ in range(2)]
    planned, planned_leaves = Trace.of(model, [loss.detach() for loss in losses]), gradients()
    del losses[:]
    model.zero_grad()
    for leaf in leaves:
        leaf.grad = None
    torch.manual_seed(3)
    expected = []
    for _ in range(2):
        loss = eager()
        loss.backward()
        expected.append(loss.detach())
    assert Trace.of(model, expected).differences(planned) == []
    assert all(map(torch.equal, gradients(), planned_leaves))
    predicted = {bool(p.existing_gradients): p for p in fitted.remat.parts}
    for adds, peak in enumerate(peaks):
        report = predicted[bool(adds)]
        assert peak <= report.budget
        assert 0.998 * report.predicted_peak <= peak <= report.predicted_peak


def within(model: nn.Module, inputs: tuple[torch.Tensor, ...], budgets: tuple[int | str, ...]) -> list[Any]:
    """`steps_within` for several budgets; returns the fitted models."""
    found = []
    for budget in budgets:
        torch._dynamo.reset()
        fitted = fit(model, inputs, budget)
        steps_within(fitted, inputs, lambda: model(*inputs), model)
        found.append(fitted)
    return found


def least(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> int:
    with pytest.raises(remat.InfeasibleError) as error:
        fit(model, inputs, "1%")
    torch._dynamo.reset()
    return error.value.smallest_known


class OfMatrix(nn.Module):
    """A function of a matrix that is well conditioned."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.w, self.function = nn.Parameter(0.01 * torch.randn(32, 32)), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ self.w).square().sum() + self.function(self.w.tanh() + torch.eye(32), x)


@pytest.mark.parametrize(
    "function",
    [
        lambda w, x: -torch.logdet(w @ w.T),
        lambda w, x: torch.linalg.solve(w, x.T).square().sum(),
        lambda w, x: torch.linalg.cholesky(w @ w.T).sum(),
        lambda w, x: torch.cholesky_solve(x.T, torch.linalg.cholesky(w @ w.T)).square().sum(),
        lambda w, x: torch.linalg.lu_solve(*torch.linalg.lu_factor(w), x.T).square().sum(),
    ],
    ids=["logdet", "solve", "cholesky", "cholesky_solve", "lu_solve"],
)
def test_what_refuses_tensors_made_for_measuring_is_measured_with_those_of_the_step(function) -> None:
    (fitted,) = within(OfMatrix(function), (torch.randn(256, 32),), ("100%",))
    assert fitted.remat.parts[0].unmeasured_ops == 0


class Merge(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.text, self.image = nn.Embedding(100, 32), nn.Linear(48, 32)

    def forward(self, ids: torch.Tensor, pixels: torch.Tensor) -> torch.Tensor:
        h = self.text(ids)
        return h.masked_scatter((ids == 9).unsqueeze(-1).expand_as(h), self.image(pixels)).pow(2).mean()


def test_a_mask_that_must_pick_as_many_as_there_are() -> None:
    ids = torch.randint(10, 100, (2, 64))
    ids[:, :16] = 9
    within(Merge(), (ids, torch.randn(2, 16, 48)), ("100%",))


class Bag(nn.Module):
    def __init__(self, mode: str) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(1000, 64, mode=mode)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.bag(ids).sin().float().square().sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mode", ["sum", "max"])
def test_the_workspace_of_bags_is_measured_with_the_ids_of_the_step(mode, dtype) -> None:
    within(Bag(mode).to(dtype), (torch.randint(1000, (64, 16)),), ("100%",))


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(64, 64, dtype=torch.cfloat))
        self.linear = nn.Linear(64, 64, dtype=torch.cfloat)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(torch.complex(x, x) @ self.w).real.square().mean()


def test_the_copies_of_conjugated_arguments_are_counted() -> None:
    model, x = Complex(), (torch.randn(512, 64),)
    within(model, x, ("100%", least(model, x)))


def broken(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """An op that cannot be measured at all."""
    measure = profile.measure_op

    def measured(node: Any, *args: Any, **kwargs: Any) -> Any:
        if name in str(node.target):
            raise remat.torch.UnsupportedModelError("not here")
        return measure(node, *args, **kwargs)

    monkeypatch.setattr(profile, "measure_op", measured)


def test_an_op_that_cannot_be_measured_is_estimated_and_the_report_says_so(monkeypatch, caplog) -> None:
    broken(monkeypatch, "aten.tanh.")
    model = OfMatrix(lambda w, x: w.sum())
    fitted = fit(model, torch.randn(64, 32), "100%")
    part = fitted.remat.parts[0]
    assert part.unmeasured_ops == 2
    assert "unmeasured_ops = 2" in str(part)
    said = [record.getMessage() for record in caplog.records if "cannot be measured" in record.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("2 ops cannot be measured here")
    assert "aten.tanh.default" in said[0]
    source.forget_measured()


def test_values_are_not_made_where_there_is_no_room_for_them() -> None:
    def visited(room: int | None) -> int:
        graph = torch.fx.experimental.proxy_tensor.make_fx(
            lambda x: torch.linalg.lu_solve(*torch.linalg.lu_factor(x.tanh()), x), tracing_mode="fake"
        )(torch.eye(64))
        placeholder, found = next(iter(graph.graph.nodes)), []
        (node,) = [n for n in graph.graph.nodes if n.target is torch.ops.aten.linalg_lu_solve.default]
        values = RealValues(graph, {placeholder: torch.eye(64)}, room)
        values.visit([node], lambda n, given: found.append(given))
        return len(found)

    assert visited(None) == visited(3 * 64 * 64 * 4) == 1
    assert visited(64 * 64 * 4) == 0


def of_image(function: Callable[[torch.Tensor], torch.Tensor]) -> nn.Module:
    class OfImage(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return function(torch.tanh(x * 1.01))

    return OfImage()


_LAST = torch.channels_last


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.bfloat16(memory_format=_LAST).sin().square().sum(),
        lambda x: x.contiguous(memory_format=_LAST).double().sin().square().sum(),
        lambda x: (
            (x.bfloat16(memory_format=_LAST) * torch.ones((), dtype=torch.bfloat16).expand(x.shape))
            .sin()
            .relu()
            .sum()
        ),
        lambda x: nn.functional.unfold(x, 2, 1, 0, 1).sin().square().sum(),
        lambda x: (
            nn.functional.unfold(x.sin(), 2, 1, 0, 1).square().sum() + x.permute(0, 2, 3, 1).exp().sum()
        ),
    ],
    ids=["bf16", "float64", "expanded", "unfold", "unfold and permute"],
)
def test_strides_and_storages_are_those_of_kernels(function) -> None:
    model, x = of_image(function), (torch.randn(8, 8, 32, 32, requires_grad=True),)
    within(model, x, ("100%", least(model, x)))


class LastImages(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Conv2d(3, 8, 4, 2, 1), nn.ConvTranspose2d(8, 3, 4, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.encode(x).permute(0, 2, 3, 1).contiguous() * 2
        return nn.functional.mse_loss(self.decode(z.permute(0, 3, 1, 2)), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_transposed_result_and_a_contiguous_target(dtype) -> None:
    model, x = LastImages().to(dtype), (torch.randn(20, 3, 32, 32, dtype=dtype),)
    within(model, x, ("100%", least(model, x)))


class LastConvolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (
            nn.Conv2d(8, 16, 3, padding=1),
            nn.Conv2d(16, 16, 3, padding=1),
            nn.Linear(16, 10),
        )

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.b(nn.functional.silu(self.a(x))))
        return nn.functional.cross_entropy(self.c(hidden.mean((2, 3))), y) + hidden.square().mean()


def test_convolutions_of_16_bit_images() -> None:
    model = LastConvolutions().bfloat16().to(memory_format=_LAST)
    x = torch.randn(8, 8, 32, 32, dtype=torch.bfloat16).to(memory_format=_LAST)
    given = (x, torch.randint(10, (8,)))
    within(model, given, ("100%", least(model, given)))
