#!/usr/bin/env python3
"""Train a small GPT-2 with Lightning, as it is and within 80 % of its memory.

The line that matters is `remat.torch.fit`: the LightningModule holds the fitted model in place of the model.
(Not the LightningModule itself: its training step logs and asks the trainer, which breaks graphs.)
Micro-batches are accumulated, gradients are clipped, the model is evaluated between steps; after three of six
steps training is saved and goes on from there. Ends with exit code 1 if a loss or a parameter differs in one
bit.

Needs transformers and pytorch-lightning.
"""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import pytorch_lightning as lightning
import torch
from tiny_gpt import BATCH, DEVICE, EVALUATED, SAVED_AFTER, STEPS, TOKENS, Run, compare
from torch import nn
from torch.utils.data import DataLoader


class LanguageModel(lightning.LightningModule):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.run = Run([], [], [])

    def loss(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=tokens, attention_mask=torch.ones_like(tokens), labels=tokens).loss

    def training_step(self, tokens: torch.Tensor, index: int) -> torch.Tensor:
        loss = self.loss(tokens)
        self.log("loss", loss)
        self.run.losses.append(loss.detach().item())
        return loss

    def validation_step(self, tokens: torch.Tensor, index: int) -> None:
        self.run.evaluated.append(float(self.loss(tokens)))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def train(model: nn.Module, folder: Path, bf16: bool, checkpoint: Path | None = None) -> Run:
    lightning.seed_everything(0, verbose=False)
    saved = lightning.callbacks.ModelCheckpoint(
        folder, "at-{step}", every_n_train_steps=SAVED_AFTER, save_top_k=-1
    )
    options: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(
        accelerator="gpu" if DEVICE == "cuda" else "cpu",
        devices=1,
        max_steps=STEPS,
        accumulate_grad_batches=2,
        gradient_clip_val=1.0,
        val_check_interval=4,
        num_sanity_val_steps=0,
        precision="bf16-mixed" if bf16 else "32-true",
        callbacks=[saved],
        **options,
    )
    module = LanguageModel(model.train())
    loaders = DataLoader(TOKENS, batch_size=BATCH), DataLoader(TOKENS[:EVALUATED], batch_size=BATCH)
    trainer.fit(module, *loaders, ckpt_path=str(checkpoint) if checkpoint else None, weights_only=False)
    module.run.parameters = [p.detach() for p in model.parameters()]
    return module.run


if __name__ == "__main__":
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    sys.exit(compare(train, f"at-step={SAVED_AFTER}.ckpt", __doc__.splitlines()[0]))
