"""The architectures users bring: from `transformers` with random weights, from PyTorch, or written here.

Each factory takes its sizes, so that the tests run them small and `bench/torch` large. A case says how its
loss is computed, because most of these models return outputs, not a loss.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional

Inputs = tuple[torch.Tensor, ...] | dict[str, torch.Tensor]


@dataclass(frozen=True)
class Zoo:
    """A model of the zoo.

    make: the model, by its sizes; inputs: what it is called with, by its sizes.
    small, large: sizes for tests and for benchmarks.
    loss: of the model's outputs.
    dropout: does the model draw random numbers?
    layers: pattern of the modules that checkpointing by layer would wrap.
    budget: of the tests, as a share of the eager peak.
    """

    name: str
    make: Callable[..., nn.Module]
    inputs: Callable[..., Inputs]
    small: Mapping[str, Any] = field(default_factory=dict)
    large: Mapping[str, Any] = field(default_factory=dict)
    loss: Callable[[Any], torch.Tensor] = lambda outputs: outputs.square().mean()
    dropout: bool = False
    layers: str = ""
    budget: float = 0.75

    def build(self, size: str = "small") -> tuple[nn.Module, Inputs]:
        sizes = dict(self.small if size == "small" else self.large)
        torch.manual_seed(0)
        return self.make(**_taken_by(self.make, sizes)), self.inputs(**_taken_by(self.inputs, sizes))


def _taken_by(function: Callable[..., Any], sizes: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in sizes.items() if k in inspect.signature(function).parameters}


def hf_loss(outputs: Any) -> torch.Tensor:
    return outputs.loss


def gpt2(layers: int, width: int, vocabulary: int = 211) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=vocabulary,
            n_positions=512,
            n_embd=width,
            n_layer=layers,
            n_head=4,
            bos_token_id=None,
            eos_token_id=None,
        )
    )


def llama(layers: int, width: int, vocabulary: int = 211) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=width,
            intermediate_size=3 * width,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=512,
        )
    )


def bert(layers: int, width: int, vocabulary: int = 211) -> nn.Module:
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(
        BertConfig(
            vocab_size=vocabulary,
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=4,
            intermediate_size=4 * width,
        )
    )


def t5(layers: int, width: int, vocabulary: int = 211) -> nn.Module:
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=vocabulary,
            d_model=width,
            d_kv=width // 4,
            d_ff=4 * width,
            num_layers=layers,
            num_heads=4,
            decoder_start_token_id=0,
        )
    )


def vit(layers: int, width: int, side: int = 32) -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(
        ViTConfig(
            hidden_size=width,
            num_hidden_layers=layers,
            num_attention_heads=4,
            intermediate_size=4 * width,
            image_size=side,
            patch_size=4,
            num_labels=10,
        )
    )


def tokens(batch: int, length: int, vocabulary: int = 211) -> dict[str, torch.Tensor]:
    ids = torch.randint(vocabulary, (batch, length))
    return {"input_ids": ids, "labels": ids}


def masked(batch: int, length: int, vocabulary: int = 211) -> dict[str, torch.Tensor]:
    ids = torch.randint(vocabulary, (batch, length))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


def pictures_and_labels(batch: int, side: int = 32) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(batch, 3, side, side), "labels": torch.randint(10, (batch,))}


def pictures(batch: int, side: int) -> Inputs:
    return (torch.randn(batch, 3, side, side),)


class Translator(nn.Module):
    """`nn.Transformer`, encoder and decoder, between an embedding and a head."""

    def __init__(self, layers: int, width: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.embed = nn.Embedding(97, width)
        self.body = nn.Transformer(width, 4, layers, layers, 4 * width, dropout, batch_first=True)
        self.head = nn.Linear(width, 97)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return self.head(self.body(self.embed(source), self.embed(target), tgt_mask=mask, tgt_is_causal=True))


def sentences(batch: int, length: int) -> Inputs:
    return torch.randint(97, (batch, length)), torch.randint(97, (batch, length))


class Bottleneck(nn.Module):
    """The block of ResNet, and of RegNet with groups. He et al. 2016; Radosavovic et al. 2020."""

    def __init__(self, into: int, out: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        middle = max(groups, out // (4 if groups == 1 else 1))
        self.body = nn.Sequential(
            nn.Conv2d(into, middle, 1, bias=False),
            nn.BatchNorm2d(middle),
            nn.ReLU(inplace=True),
            nn.Conv2d(middle, middle, 3, stride, 1, groups=groups, bias=False),
            nn.BatchNorm2d(middle),
            nn.ReLU(inplace=True),
            nn.Conv2d(middle, out, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        self.skip: nn.Module = nn.Identity()
        if stride > 1 or into != out:
            self.skip = nn.Sequential(nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.body(x) + self.skip(x), inplace=True)


class ResNet(nn.Module):
    def __init__(self, width: int, blocks: tuple[int, ...], groups: int = 1) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1), nn.BatchNorm2d(width), nn.ReLU(inplace=True))
        self.blocks = nn.ModuleList()
        into = width
        for stage, count in enumerate(blocks):
            out = 2 * width * 2**stage
            for i in range(count):
                self.blocks.append(Bottleneck(into, out, 2 if stage and not i else 1, groups and groups))
                into = out
        self.head = nn.Linear(into, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(self.stem(x), 2)
        for block in self.blocks:
            x = block(x)
        return self.head(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class UNet(nn.Module):
    """Down, up, and skip connections across; group norm. Ronneberger et al. 2015."""

    def __init__(self, width: int, depth: int = 2) -> None:
        super().__init__()
        sizes = [width * 2**i for i in range(depth + 1)]
        self.down = nn.ModuleList(self.block(a, b) for a, b in zip([3, *sizes[:-1]], sizes, strict=True))
        self.rise = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in itertools.pairwise(sizes))
        self.up = nn.ModuleList(self.block(2 * a, a) for a in sizes[:-1])
        self.head = nn.Conv2d(width, 2, 1)

    @staticmethod
    def block(into: int, out: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(into, out, 3, padding=1),
            nn.GroupNorm(4, out),
            nn.SiLU(),
            nn.Conv2d(out, out, 3, padding=1),
            nn.GroupNorm(4, out),
            nn.SiLU(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for i, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if i else x)
            skips.append(x)
        for i in reversed(range(len(self.up))):
            x = self.up[i](torch.cat((skips[i], self.rise[i](x)), 1))
        return self.head(x)


class DenseNet(nn.Module):
    """Every layer reads all before it. Huang et al. 2017."""

    def __init__(self, growth: int, blocks: tuple[int, ...]) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 2 * growth, 3, padding=1)
        self.blocks, self.narrow = nn.ModuleList(), nn.ModuleList()
        channels = 2 * growth
        for count in blocks:
            layers = nn.ModuleList()
            for _ in range(count):
                layers.append(
                    nn.Sequential(
                        nn.BatchNorm2d(channels),
                        nn.ReLU(),
                        nn.Conv2d(channels, 4 * growth, 1, bias=False),
                        nn.BatchNorm2d(4 * growth),
                        nn.ReLU(),
                        nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
                    )
                )
                channels += growth
            self.blocks.append(layers)
            self.narrow.append(nn.Conv2d(channels, channels // 2, 1))
            channels //= 2
        self.head = nn.Linear(channels, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for layers, narrow in zip(self.blocks, self.narrow, strict=True):
            seen = [x]
            for layer in layers:
                seen.append(layer(torch.cat(seen, 1)))
            x = functional.avg_pool2d(narrow(torch.cat(seen, 1)), 2)
        return self.head(x.mean((2, 3)))


class MixerBlock(nn.Module):
    def __init__(self, patches: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(
            nn.Linear(patches, 2 * patches), nn.GELU(), nn.Linear(2 * patches, patches)
        )
        self.channels = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class Mixer(nn.Module):
    """Perceptrons over patches and channels in turn. Tolstikhin et al. 2021."""

    def __init__(self, layers: int, width: int, side: int = 32) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.layers = nn.ModuleList(MixerBlock((side // 4) ** 2, width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(1))


class SpectralLayer(nn.Module):
    """Multiplies the lowest modes of the Fourier transform by complex weights. Li et al. 2021."""

    def __init__(self, width: int, modes: int, dimensions: int) -> None:
        super().__init__()
        self.modes, self.dimensions = modes, dimensions
        self.weight = nn.Parameter(
            torch.randn(width, width, *[modes] * dimensions, dtype=torch.cfloat) / width
        )
        conv: Any = {1: nn.Conv1d, 3: nn.Conv3d}[dimensions]
        self.local = conv(width, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        axes = tuple(range(2, 2 + self.dimensions))
        spectrum = torch.fft.rfftn(x, dim=axes)
        low = (slice(None), slice(None), *[slice(self.modes)] * self.dimensions)
        mixed = torch.zeros_like(spectrum)
        mixed[low] = torch.einsum("bi...,io...->bo...", spectrum[low], self.weight)
        return functional.gelu(torch.fft.irfftn(mixed, s=x.shape[2:], dim=axes) + self.local(x))


class FNO(nn.Module):
    def __init__(self, layers: int, width: int, modes: int, dimensions: int) -> None:
        super().__init__()
        conv: Any = {1: nn.Conv1d, 3: nn.Conv3d}[dimensions]
        self.lift, self.project = conv(1, width, 1), conv(width, 1, 1)
        self.layers = nn.ModuleList(SpectralLayer(width, modes, dimensions) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.lift(x)
        for layer in self.layers:
            x = layer(x)
        return self.project(x)


def fields(batch: int, side: int, dimensions: int) -> Inputs:
    return (torch.randn(batch, 1, *[side] * dimensions),)


class Recurrent(nn.Module):
    """An LSTM over embedded words, with dropout between its layers."""

    def __init__(self, layers: int, width: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.embed = nn.Embedding(97, width)
        self.body = nn.LSTM(width, width, layers, batch_first=True, dropout=dropout)
        self.head = nn.Linear(width, 97)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.embed(x))[0])


def words(batch: int, length: int) -> Inputs:
    return (torch.randint(97, (batch, length)),)


_TEXT = {"layers": 2, "width": 32, "batch": 4, "length": 48}
_TEXT_LARGE = {"layers": 4, "width": 256, "batch": 8, "length": 128, "vocabulary": 2048}
_PICTURE = {"batch": 4, "side": 24}

ZOO = (
    Zoo("gpt2", gpt2, tokens, _TEXT, _TEXT_LARGE, hf_loss, True, r"transformer\.h\.\d+"),
    Zoo("bert", bert, masked, _TEXT, _TEXT_LARGE, hf_loss, True, r"bert\.encoder\.layer\.\d+"),
    Zoo("t5", t5, tokens, {**_TEXT, "layers": 1}, _TEXT_LARGE, hf_loss, True, r"(en|de)coder\.block\.\d+"),
    Zoo("llama", llama, tokens, _TEXT, _TEXT_LARGE, hf_loss, False, r"model\.layers\.\d+"),
    Zoo(
        "vit",
        vit,
        pictures_and_labels,
        {"layers": 2, "width": 32, "batch": 4, "side": 32},
        {"layers": 6, "width": 192, "batch": 16, "side": 48},
        hf_loss,
        False,
        r"vit\.(encoder\.)?layers?\.\d+",
    ),
    Zoo(
        "transformer",
        Translator,
        sentences,
        {"layers": 1, "width": 32, "batch": 4, "length": 32},
        {"layers": 3, "width": 256, "batch": 8, "length": 128},
        dropout=True,
        layers=r"body\.(en|de)coder\.layers\.\d+",
    ),
    Zoo(
        "resnet",
        ResNet,
        pictures,
        {"width": 8, "blocks": (2, 2), **_PICTURE},
        {"width": 32, "blocks": (2, 3, 3), "batch": 16, "side": 64},
        layers=r"blocks\.\d+",
    ),
    Zoo(
        "regnet",
        ResNet,
        pictures,
        {"width": 8, "blocks": (1, 2), "groups": 4, **_PICTURE},
        {"width": 24, "blocks": (1, 2, 4), "groups": 8, "batch": 16, "side": 64},
        layers=r"blocks\.\d+",
    ),
    Zoo(
        "unet",
        UNet,
        pictures,
        {"width": 8, "depth": 2, **_PICTURE},
        {"width": 16, "depth": 3, "batch": 16, "side": 64},
        layers=r"(down|up)\.\d+",
    ),
    Zoo(
        "densenet",
        DenseNet,
        pictures,
        {"growth": 4, "blocks": (3, 3), **_PICTURE},
        {"growth": 12, "blocks": (5, 5), "batch": 16, "side": 48},
        layers=r"blocks\.\d+\.\d+",
    ),
    Zoo(
        "mixer",
        Mixer,
        pictures,
        {"layers": 2, "width": 32, "batch": 8, "side": 32},
        {"layers": 8, "width": 192, "batch": 16, "side": 48},
        layers=r"layers\.\d+",
    ),
    Zoo(
        "fno1d",
        FNO,
        fields,
        {"layers": 4, "width": 16, "modes": 8, "dimensions": 1, "batch": 16, "side": 128},
        {"layers": 4, "width": 64, "modes": 16, "dimensions": 1, "batch": 64, "side": 512},
        layers=r"layers\.\d+",
    ),
    Zoo(
        "fno3d",
        FNO,
        fields,
        {"layers": 4, "width": 8, "modes": 3, "dimensions": 3, "batch": 2, "side": 12},
        {"layers": 4, "width": 16, "modes": 4, "dimensions": 3, "batch": 8, "side": 24},
        layers=r"layers\.\d+",
    ),
    Zoo(
        "lstm",
        Recurrent,
        words,
        {"layers": 2, "width": 16, "batch": 4, "length": 12},
        {"layers": 2, "width": 256, "batch": 32, "length": 64},
        dropout=True,
        budget=0.85,
    ),
)


def animal(name: str) -> Zoo:
    return next(z for z in ZOO if z.name == name)
