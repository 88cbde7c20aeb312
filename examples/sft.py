#!/usr/bin/env python3
"""Fine-tune a small GPT-2 with TRL's SFTTrainer, as it is and within 80 % of its memory.

The line that matters is `remat.torch.fit`: the model gets its fitted backbone in place of the backbone. (TRL
puts a head of its own on the model, which picks positions by their labels: that depends on data, so Dynamo
would break the graph there. The head does without kept logits by itself.) Micro-batches are accumulated,
gradients are clipped, the model is evaluated between steps; after three of six steps training is saved and
goes on from there in a new trainer. Ends with exit code 1 if a loss or a parameter differs in one bit.

Needs transformers, datasets and trl.
"""

from __future__ import annotations

import sys
from pathlib import Path

import remat.torch
import torch
from datasets import Dataset
from tiny_gpt import BATCH, DEVICE, EVALUATED, SAVED_AFTER, STEPS, TOKENS, Run, compare
from tokenizers import Tokenizer, models
from torch import nn
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer


def tokenizer() -> PreTrainedTokenizerFast:
    """Of numbers; texts come as tokens here."""
    words = {str(i): i for i in range(500)}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="0")), eos_token="1", pad_token="0"
    )


def fitted(model: GPT2LMHeadModel, plans: Path) -> nn.Module:
    tokens = TOKENS[:BATCH].to(DEVICE)
    batch = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    model.transformer = remat.torch.fit(model.transformer, batch, "80%", time_limit=1, cache_dir=plans)
    return model


def train(model: nn.Module, folder: Path, bf16: bool, checkpoint: Path | None = None) -> Run:
    data = Dataset.from_list([{"input_ids": row} for row in TOKENS.tolist()])
    arguments = SFTConfig(
        str(folder),
        per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=2,
        gradient_checkpointing=False,
        max_grad_norm=1.0,
        max_steps=STEPS,
        max_length=64,
        save_steps=SAVED_AFTER,
        eval_strategy="steps",
        eval_steps=2,
        logging_steps=1,
        bf16=bf16,
        seed=0,
        use_cpu=DEVICE == "cpu",
        disable_tqdm=True,
        report_to=[],
    )
    trainer = SFTTrainer(
        model,
        arguments,
        train_dataset=data,
        eval_dataset=data.select(range(EVALUATED)),
        processing_class=tokenizer(),
    )
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    return Run.of(trainer, model)


if __name__ == "__main__":
    sys.exit(compare(train, f"checkpoint-{SAVED_AFTER}", __doc__.splitlines()[0], fitted))
