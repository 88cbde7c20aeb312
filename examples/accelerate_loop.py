#!/usr/bin/env python3
"""Train a small GPT-2 in a plain loop with accelerate, as it is and within 80 % of its memory.

The line that matters is `remat.torch.fit` before `accelerator.prepare`. Micro-batches are accumulated,
gradients are clipped, the model is evaluated between steps; after three of six steps the state is saved and
loaded again. Ends with exit code 1 if a loss or a parameter differs in one bit.

Needs transformers and accelerate.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import set_seed
from tiny_gpt import BATCH, DEVICE, EVALUATED, SAVED_AFTER, STEPS, TOKENS, Run, compare
from torch import nn
from torch.utils.data import DataLoader


def evaluate(model: nn.Module) -> float:
    model.eval()
    with torch.no_grad():
        tokens = TOKENS[:EVALUATED].to(DEVICE)
        loss = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), labels=tokens).loss
    model.train()
    return float(loss)


def train(model: nn.Module, folder: Path, bf16: bool, checkpoint: Path | None = None) -> Run:
    AcceleratorState._reset_state(reset_partial_state=True)
    set_seed(0)
    accelerator = Accelerator(
        gradient_accumulation_steps=2, mixed_precision="bf16" if bf16 else "no", cpu=DEVICE == "cpu"
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(
        model.train(), optimizer, DataLoader(TOKENS, batch_size=BATCH)
    )
    run, begin = Run([], [], []), 0
    if checkpoint is not None:
        accelerator.load_state(str(checkpoint))
        begin = SAVED_AFTER
    for number, tokens in enumerate(accelerator.skip_first_batches(loader, 2 * begin), 2 * begin):
        with accelerator.accumulate(model):
            loss = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), labels=tokens).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        run.losses.append(loss.detach().item())
        step, is_end = divmod(number + 1, 2)
        if is_end == 0 and step % 2 == 0:
            run.evaluated.append(evaluate(model))
        if is_end == 0 and step == SAVED_AFTER:
            accelerator.save_state(str(folder / "checkpoint"))
        if is_end == 0 and step == STEPS:
            break
    run.parameters = [p.detach() for p in model.parameters()]
    return run


if __name__ == "__main__":
    sys.exit(compare(train, "checkpoint", __doc__.splitlines()[0]))
