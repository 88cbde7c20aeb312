#!/usr/bin/env python3
"""Train a small GPT of flax on the CPU twice: as JAX does it, and within half of that step's memory.

Same seed, same data, AdamW of optax. The text is the source code of Python's own standard library. Prints
what XLA says of both steps, the losses, and the processor time. Ends with exit code 1 if the budget was
exceeded, or if a loss is further from the plain one than rounding explains.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import remat
import remat.jax

LENGTH, WIDTH, HEADS, LAYERS, BATCH = 128, 192, 4, 6, 8


class Block(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        mask = nn.make_causal_mask(jnp.ones(x.shape[:2]))
        x = x + nn.MultiHeadDotProductAttention(HEADS)(nn.LayerNorm()(x), mask=mask)
        return x + nn.Dense(WIDTH)(nn.gelu(nn.Dense(4 * WIDTH)(nn.LayerNorm()(x))))


class GPT(nn.Module):
    @nn.compact
    def __call__(self, tokens: Any) -> Any:
        x = nn.Embed(256, WIDTH)(tokens) + nn.Embed(LENGTH, WIDTH)(jnp.arange(LENGTH))
        for _ in range(LAYERS):
            x = Block()(x)
        return nn.Dense(256)(nn.LayerNorm()(x))


def batches(steps: int) -> Any:
    """Bytes of Python's library, of shape (steps, BATCH, LENGTH + 1)."""
    folder = Path(argparse.__file__).parent
    text = b"".join(path.read_bytes() for path in sorted(folder.glob("*.py"))[:40])
    data = np.frombuffer(text, np.uint8)
    places = np.random.RandomState(0).randint(len(data) - LENGTH - 1, size=(steps, BATCH))
    return jnp.asarray(data[places[..., None] + np.arange(LENGTH + 1)], jnp.int32)


def train(loss: Any, params: Any, data: Any) -> tuple[list[float], float]:
    """Losses, and processor seconds of the steps after the first."""
    optimizer = optax.adamw(1e-3)

    def step(params: Any, state: Any, batch: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, batch)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    # Without the options XLA drops all checkpoints on the CPU.
    compiled = jax.jit(step, compiler_options=remat.jax.COMPILER_OPTIONS)
    state, losses, begin = optimizer.init(params), [], 0.0
    for i, batch in enumerate(data):
        params, state, value = compiled(params, state, batch)
        losses.append(float(value))
        if i == 0:
            begin = time.process_time()
    return losses, time.process_time() - begin


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--budget", default="50%", help='of the step: "50%%", "300MB"')
    given = parser.parse_args()
    data = batches(given.steps)
    model = GPT()
    params = model.init(jax.random.key(0), data[0][:, :-1])

    def loss(params: Any, batch: Any) -> Any:
        logits = model.apply(params, batch[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch[:, 1:]).mean()

    count = sum(x.size for x in jax.tree_util.tree_leaves(params))
    print(f"A GPT of {count:,} parameters, {given.steps} steps")
    planned = remat.jax.checkpoint(loss, given.budget)
    report = planned.plan(params, data[0])
    print(report)
    plain_losses, plain_seconds = train(loss, params, data)
    losses, seconds = train(planned, params, data)
    off = max(abs(a - b) for a, b in zip(losses, plain_losses, strict=True))
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, at most {off:.1e} from that of the plain steps")
    print(f"time of the processor: {seconds / max(plain_seconds, 1e-9):.2f} of the plain steps")
    return int(report.compiled > report.budget or off > 1e-2)


if __name__ == "__main__":
    sys.exit(main())
