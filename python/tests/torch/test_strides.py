"""What is written in place has the strides of eager mode, and so do all that read it."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import remat.torch
import torch
import torch.nn.functional as F
from torch import nn
from training import step_peak

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
    found = remat.torch.verify(model, image, steps=1, costs="roofline", work_limit=20_000)
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
    found = remat.torch.verify(model, image, steps=1, costs="roofline", work_limit=20_000)
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
        NormedSequence(), torch.randn(2, 5, 8), steps=1, costs="roofline", work_limit=20_000
    )
    assert found.differences == ()


class DroppedSequence(nn.Module):
    """Dropout whose gradient comes back turned: so eager mode hands it on."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(8, 8), nn.GroupNorm(2, 8)
        self.mix = nn.Parameter(torch.randn(2, 8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.dropout(1.5 * (self.first(x) @ self.mix), 0.2, True)
        return self.norm(x.transpose(1, 2)).sin().sum()


def test_dropout_hands_a_turned_gradient_on_as_it_comes() -> None:
    torch.manual_seed(0)
    found = remat.torch.verify(
        DroppedSequence(), torch.randn(2, 8, 8), steps=1, costs="roofline", work_limit=20_000
    )
    assert found.differences == ()


class TurnedProduct(nn.Module):
    """A turned sequence times weights that are not trained: eager mode makes one matrix of it."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.first, self.weight = nn.Linear(8, 8), nn.Parameter(torch.randn(16, 8), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        turned = self.first(x).permute(2, 0, 1).contiguous().permute(1, 2, 0)
        product = F.linear(turned, self.weight) if self.form == "linear" else turned @ self.weight.t()
        return product.sin().sum()


@pytest.mark.parametrize("form", ["linear", "matmul"])
def test_products_of_turned_sequences_are_those_of_eager_mode(form: str) -> None:
    torch.manual_seed(0)
    model = TurnedProduct(form)
    found = remat.torch.verify(model, torch.randn(4, 32, 8), steps=1, costs="roofline", work_limit=20_000)
    assert found.differences == ()


class MarginLoss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.multi_margin_loss(self.linear(x), torch.arange(len(x)))


def test_a_margin_loss_is_that_of_eager_mode() -> None:
    torch.manual_seed(0)
    found = remat.torch.verify(
        MarginLoss(), torch.randn(32, 32), steps=1, costs="roofline", work_limit=20_000
    )
    assert found.differences == ()


class Scaled(nn.Module):
    """Returns an image, or a sequence that was turned, or a view of one: the loss is another's business."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.linear, self.norm = nn.Linear(16, 16), nn.BatchNorm1d(16)
        self.conv, self.scale = nn.Conv2d(3, 16, 3, padding=1), nn.Parameter(torch.randn(16))
        if kind == "image":
            self.to(memory_format=torch.channels_last)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "image":
            return self.conv(x) * self.scale[:, None, None]
        x = self.norm(self.linear(x).transpose(1, 2) * self.scale[:, None])
        return x.transpose(1, 2) if self.kind == "view" else x.transpose(1, 2) * self.scale

    def sample(self) -> torch.Tensor:
        if self.kind == "image":
            return torch.randn(4, 3, 32, 32).to(memory_format=torch.channels_last)
        return torch.randn(8, 24, 16)


LOSSES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "mean": lambda y: y.mean(),
    "square": lambda y: y.square().mean(),
    "cross entropy": lambda y: F.cross_entropy(
        y, torch.zeros(y.shape[0], *y.shape[2:], dtype=torch.long).fill_(3)
    ),
    "rows": lambda y: y.reshape(-1, y.shape[-1]).log_softmax(1)[:, 0].sum(),
    "part": lambda y: y[:, 1:].tanh().sum(),
}


def _gradients(
    model: nn.Module, x: torch.Tensor, loss: Callable[[torch.Tensor], torch.Tensor]
) -> list[torch.Tensor]:
    model.zero_grad()
    loss(model(x)).backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def _equal(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(x.equal(y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("kind", ["image", "turned", "view"])
def test_gradients_of_outputs_have_the_strides_that_the_loss_gives_them(
    kind: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    model, loss = Scaled(kind), LOSSES[name]
    x = model.sample()
    fitted = remat.torch.fit(copy.deepcopy(model), x, "120%", loss=loss, costs="roofline", work_limit=20_000)
    for _ in range(2):
        assert _equal(_gradients(fitted, x, loss), _gradients(model, x, loss))
    assert "strides" not in caplog.text


def test_strides_of_gradients_that_are_not_known_are_noticed(caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    model, loss = Scaled("image"), LOSSES["square"]
    x = model.sample()
    options = {"budget": "64MiB", "costs": "roofline", "work_limit": 20_000}
    planned = torch.compile(copy.deepcopy(model), backend="remat", options=options)
    for a, b in zip(_gradients(planned, x, loss), _gradients(model, x, loss), strict=True):
        torch.testing.assert_close(a, b)
    assert caplog.text.count("gradients of output[0] of graph 0 come with other strides") == 1
    for _ in range(2):
        assert _equal(_gradients(planned, x, loss), _gradients(model, x, loss))
    # Those of another loss are copied.
    for a, b in zip(
        _gradients(planned, x, lambda y: y.tanh().sum()),
        _gradients(model, x, lambda y: y.tanh().sum()),
        strict=True,
    ):
        torch.testing.assert_close(a, b)
    assert caplog.text.count("come with other strides") == 1


def test_views_of_dimensions_of_size_1_are_made() -> None:
    """A view that shows the same shape gives such a dimension another stride, by which a product goes."""

    class Pooling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pool, self.out = nn.Linear(96, 1), nn.Linear(96, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            weights = self.pool(x).squeeze(-1).softmax(1)
            y: torch.Tensor = self.out(torch.einsum("bn,bnd->bd", weights, x.tanh())).square().mean()
            return y

    torch.manual_seed(0)
    assert remat.torch.verify(Pooling(), torch.randn(16, 36, 96), "100%", steps=1).equal


class TokensAsImages(nn.Module):
    """Tokens of one sample that a convolution reads as an image."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(24, 24, 3, padding=1, bias=False) for _ in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for conv in self.convs:
            y = conv(x.transpose(1, 2).view(len(x), 24, 32, 32))
            x = x + torch.tanh(y.flatten(2).transpose(1, 2))
        return x.square().mean()


def test_a_batch_of_one_keeps_its_budget_where_a_view_has_other_strides_in_a_trace() -> None:
    model, x = TokensAsImages(), torch.randn(1, 1024, 24)
    eager = step_peak(copy.deepcopy(model), (x,))
    fitted = remat.torch.fit(model, x, "70%", work_limit=10_000)
    assert step_peak(fitted, (x,)) <= fitted.remat.budget < eager
