"""What the examples of training loops share: a small GPT-2, its data, and the comparison with eager mode."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import remat.torch
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, Trainer

BATCH, STEPS, SAVED_AFTER = 4, 6, 3
TOKENS = torch.randint(500, (64, 64), generator=torch.Generator().manual_seed(0))
EVALUATED = 8
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def make_model() -> GPT2LMHeadModel:
    """Without dropout in its attention: in bf16 on the CPU PyTorch's tracing rounds that in another way."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 500, "n_positions": 64, "n_embd": 64, "n_layer": 2, "n_head": 4, "attn_pdrop": 0.0}
    config = GPT2Config(**sizes, use_cache=False, bos_token_id=1, eos_token_id=1)
    config.loss_type = "ForCausalLM"
    return GPT2LMHeadModel(config).to(DEVICE)


def fitted(model: GPT2LMHeadModel, plans: Path) -> nn.Module:
    """The line that matters, with a micro-batch as the loop makes it. The second start finds its plans."""
    tokens = TOKENS[:BATCH].to(DEVICE)
    batch = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens}
    return remat.torch.fit(model, batch, "80%", time_limit=1, cache_dir=plans)


@dataclass
class Run:
    """What training came to: losses of steps, of evaluations, and the parameters."""

    losses: list[float]
    evaluated: list[float]
    parameters: list[torch.Tensor]

    @classmethod
    def of(cls, trainer: Trainer, model: nn.Module) -> Run:
        history = trainer.state.log_history
        return cls(
            [row["loss"] for row in history if "loss" in row],
            [row["eval_loss"] for row in history if "eval_loss" in row],
            [p.detach() for p in model.parameters()],
        )

    def differs_from(self, other: Run) -> bool:
        same = all(a.equal(b) for a, b in zip(self.parameters, other.parameters, strict=True))
        return not same or (self.losses, self.evaluated) != (other.losses, other.evaluated)


# Makes a model that trains within a budget, with a folder for plans.
Fit = Callable[[GPT2LMHeadModel, Path], nn.Module]
# Trains a model in a folder, in bf16 or not, from a checkpoint or from the start.
Train = Callable[[nn.Module, Path, bool, "Path | None"], Run]


def compare(train: Train, checkpoint: str, description: str, fitted: Fit = fitted) -> int:
    """Trains in eager mode and with a plan, at once and from a checkpoint on; 1 if a bit differs.

    checkpoint: its name in the folder.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--bf16", action="store_true", help="autocast to bfloat16")
    bf16 = parser.parse_args().bf16
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        eager = train(make_model(), folder / "eager", bf16, None)
        eager_resumed = train(make_model(), folder / "more", bf16, folder / "eager" / checkpoint)
        model = fitted(make_model(), folder / "plans")
        planned = train(model, folder / "remat", bf16, None)
        again = fitted(make_model(), folder / "plans")
        resumed = train(again, folder / "again", bf16, folder / "remat" / checkpoint)
    report = getattr(model, "remat", None) or model.base_model.remat
    print(report.parts[0].summary())
    assert eager.evaluated
    assert eager_resumed.losses
    differences = {
        "trained at once": planned.differs_from(eager),
        "resumed after three steps": resumed.differs_from(eager_resumed),
    }
    for what, differs in differences.items():
        print(f"{what}: {'DIFFERENT' if differs else 'losses and parameters equal bit for bit'}")
    return int(any(differences.values()))
