#!/usr/bin/env python3
"""Train a small GPT-2 with the Trainer of transformers, as it is and within 80 % of its memory.

The line that matters is `remat.torch.fit`: the Trainer gets the fitted model in place of the model.
Micro-batches are accumulated, gradients are clipped, the model is evaluated between steps; after three of
six steps training is saved and goes on from there in a new Trainer. Ends with exit code 1 if a loss or a
parameter differs in one bit.

Needs transformers and accelerate.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import remat.torch
import torch
from tiny_gpt import Run
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

BATCH = 4
TOKENS = torch.randint(500, (64, 64), generator=torch.Generator().manual_seed(0))
DATA = [{"input_ids": row, "labels": row} for row in TOKENS]


def make_model() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=500, n_positions=64, n_embd=64, n_layer=3, n_head=4, use_cache=False)
    )


def fitted(model: GPT2LMHeadModel) -> nn.Module:
    batch = {"input_ids": TOKENS[:BATCH], "labels": TOKENS[:BATCH]}
    return remat.torch.fit(model, batch, "80%", time_limit=1)


def train(model: nn.Module, folder: Path, bf16: bool, checkpoint: Path | None = None) -> Run:
    arguments = TrainingArguments(
        str(folder),
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=2,
        max_grad_norm=1.0,
        max_steps=6,
        save_steps=3,
        eval_strategy="steps",
        eval_steps=2,
        logging_steps=1,
        bf16=bf16,
        seed=0,
        use_cpu=not torch.cuda.is_available(),
        disable_tqdm=True,
        report_to=[],
    )
    trainer = Trainer(model, arguments, train_dataset=DATA, eval_dataset=DATA[:8])
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    return Run.of(trainer, model)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bf16", action="store_true", help="autocast to bfloat16")
    bf16 = parser.parse_args().bf16
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        eager = train(make_model(), folder / "eager", bf16)
        model = fitted(make_model())
        planned = train(model, folder / "remat", bf16)
        resumed = train(fitted(make_model()), folder / "again", bf16, folder / "remat" / "checkpoint-3")
    print(model.remat.parts[0].summary())
    differences = {
        "trained at once": planned.differs_from(eager),
        "resumed after three steps": resumed.differs_from(eager),
    }
    for what, differs in differences.items():
        print(f"{what}: {'DIFFERENT' if differs else 'losses and parameters equal bit for bit'}")
    return int(any(differences.values()))


if __name__ == "__main__":
    sys.exit(main())
