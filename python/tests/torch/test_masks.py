"""Attention takes the kernels of eager mode, whichever masks transformers leaves out there."""

from __future__ import annotations

import copy

import pytest
import remat.torch
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from training import fit

transformers = pytest.importorskip("transformers")

BATCH, LENGTH = 2, 64
IDS = torch.randint(50, (BATCH, LENGTH), generator=torch.Generator().manual_seed(0))
BASE = {"input_ids": IDS, "labels": IDS}
HALF_PADDED = torch.ones(BATCH, LENGTH, dtype=torch.long)
HALF_PADDED[1, 40:] = 0
# What eager mode decides differently for the same shapes, next to each other.
BATCHES = {
    "without": BASE,
    "all ones": {**BASE, "attention_mask": torch.ones_like(HALF_PADDED)},
    "padded": {**BASE, "attention_mask": HALF_PADDED},
    "ones again": {**BASE, "attention_mask": torch.ones_like(HALF_PADDED)},
    "positions": {**BASE, "position_ids": torch.arange(LENGTH)[None]},
    "packed": {**BASE, "position_ids": torch.arange(LENGTH).remainder(37)[None]},
    "with gaps": {**BASE, "position_ids": 2 * torch.arange(LENGTH)[None]},
}


def language_model(kind: str, groups: int, **config: object) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "hidden_size": 128, "intermediate_size": 44, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 8, "num_key_value_heads": groups, "use_cache": False}
    made = getattr(transformers, f"{kind}Config")(**sizes, **heads, **config)
    return getattr(transformers, f"{kind}ForCausalLM")(made)


def gradients(model: nn.Module, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    model.zero_grad()
    loss = model(**batch).loss
    loss.backward()
    return [loss.detach().clone(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


def same(found: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    return len(found) == len(expected) and all(map(torch.equal, found, expected))


@pytest.mark.parametrize(
    ("kind", "groups", "config"),
    [
        ("Llama", 2, {}),
        pytest.param("Mistral", 2, {}, marks=pytest.mark.long),
        pytest.param("Mistral", 2, {"sliding_window": LENGTH}, marks=pytest.mark.long),
    ],
    ids=["causal", "wide window", "window as wide"],
)
def test_the_same_model_follows_each_batch_as_eager_mode_does(kind: str, groups: int, config: dict) -> None:
    eager = language_model(kind, groups, **config)
    fitted = fit(copy.deepcopy(eager), BASE, "100%", outputs="held", costs="roofline")
    for name, batch in BATCHES.items():
        assert same(gradients(fitted, batch), gradients(eager, batch)), name


@pytest.mark.filterwarnings("ignore:`gradient_checkpointing_enable` is deprecated")
def test_checkpoints_of_the_model_read_the_same_masks() -> None:
    eager = language_model("Llama", 2)
    fitted = fit(copy.deepcopy(eager), BASE, "100%", outputs="held", costs="roofline")
    for model in (eager, fitted):
        model.gradient_checkpointing_enable({"use_reentrant": False})
    for name in ("without", "padded"):
        assert same(gradients(fitted, BATCHES[name]), gradients(eager, BATCHES[name])), name


class Nested(nn.Module):
    """A checkpoint inside a checkpoint, with an op that has graphs of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (self.linear(x),))

    def outer(self, x: torch.Tensor, by: float) -> tuple[torch.Tensor, torch.Tensor]:
        made = checkpoint(self.inner, F.dropout(x, 0.5), use_reentrant=False)
        return made * by, x

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        made, given = checkpoint(self.outer, x, by=3.0, use_reentrant=False)
        made, given = checkpoint(self.outer, made + given, 2.0, use_reentrant=False)
        return (made + given).square().mean()


def test_checkpoints_inside_checkpoints_are_traced() -> None:
    torch.manual_seed(0)
    model, x = Nested(), torch.randn(8, 16)
    found = remat.torch.verify(model, x, executor="boxed", costs="roofline", work_limit=20_000)
    assert found.differences == ()


def test_torch_compile_follows_too() -> None:
    eager = language_model("Llama", 2)
    compiled = copy.deepcopy(eager)
    options = {"budget": "100%", "outputs": "held", "costs": "roofline", "work_limit": 20_000}
    compiled.compile(backend="remat", options=options, dynamic=False)
    for name in ("all ones", "padded"):
        assert same(gradients(compiled, BATCHES[name]), gradients(eager, BATCHES[name])), name


def test_an_encoder_without_padding_passes_no_mask_either() -> None:
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=64, intermediate_size=44, num_hidden_layers=1, num_attention_heads=4
    )
    eager = transformers.BertForMaskedLM(config).train()
    batch = BATCHES["all ones"]
    graph = remat.torch.capture(eager, batch, loss=lambda outputs: outputs.loss, costs="roofline")
    with_mask = remat.torch.capture(
        eager, BATCHES["padded"], loss=lambda outputs: outputs.loss, costs="roofline"
    )
    assert graph.num_ops < with_mask.num_ops


class Counting(nn.Module):
    """Writes that nobody reads, around attention without a mask: a count of calls, a slice."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm = language_model("Llama", 2), nn.BatchNorm1d(50)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = self.inner(input_ids=tokens).logits
        written = 2 * self.norm(logits.flatten(0, 1))
        written[0].copy_(written[1])
        return written.square().mean()


def test_what_is_written_beside_a_mask_that_is_left_out_is_written_all_the_same() -> None:
    found = remat.torch.verify(Counting(), IDS, costs="roofline", work_limit=20_000)
    assert found.differences == ()


class Grouped(nn.Module):
    """Attention by groups in plain PyTorch, with a mask that says what `is_causal` would, or without."""

    def __init__(self, mask: str) -> None:
        super().__init__()
        self.q, self.kv, self.mask = nn.Linear(64, 64), nn.Linear(64, 32), mask

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q = self.q(x).view(batch, length, 8, -1).transpose(1, 2)
        k, v = self.kv(x).view(batch, length, 4, -1).transpose(1, 2).chunk(2, 1)
        index = torch.arange(length)
        mask = index[None, :] <= index[:, None] if self.mask == "given" else None
        y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=self.mask == "causal", enable_gqa=True)
        return y.square().sum()


@pytest.mark.parametrize("mask", ["none", "causal", "given"])
def test_attention_by_groups_in_plain_pytorch_is_as_it_is_written(mask: str) -> None:
    torch.manual_seed(0)
    found = remat.torch.verify(Grouped(mask), torch.randn(2, 64, 64), costs="roofline", work_limit=20_000)
    assert found.differences == ()
