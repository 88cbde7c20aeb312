"""Five models in plain JAX: (loss function, arguments) by name; sizes that a CPU compiles in seconds."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Loss = Callable[..., jax.Array]
Model = tuple[Loss, tuple[Any, ...]]
#: What is put around every block: nothing, or a checkpoint with a policy chosen by hand.
Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


def bare(block: Callable[..., Any]) -> Callable[..., Any]:
    return block


class Weights:
    """Arrays from one generator with a fixed seed."""

    def __init__(self) -> None:
        self.random = np.random.RandomState(0)

    def __call__(self, *shape: int) -> jax.Array:
        fan_in = int(np.prod(shape[:-1])) or 1
        return jnp.asarray(self.random.randn(*shape) / fan_in**0.5, jnp.float32)


def normed(x: jax.Array, gain: jax.Array) -> jax.Array:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * gain


def cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    picked = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return (jax.nn.logsumexp(logits, -1) - picked).mean()


def gpt_block(p: dict[str, jax.Array], x: jax.Array, heads: int) -> jax.Array:
    batch, length, width = x.shape
    qkv = normed(x, p["norm1"]) @ p["qkv"]
    q, k, v = qkv.reshape(batch, length, 3, heads, width // heads).transpose(2, 0, 3, 1, 4)
    scores = q @ k.swapaxes(-1, -2) / (width // heads) ** 0.5
    mask = jnp.tril(jnp.ones((length, length), bool))
    weights = jax.nn.softmax(jnp.where(mask, scores, -1e9), -1)
    x = x + (weights @ v).swapaxes(1, 2).reshape(x.shape) @ p["out"]
    return x + jax.nn.gelu(normed(x, p["norm2"]) @ p["up"]) @ p["down"]


def gpt_weights(w: Weights, width: int) -> dict[str, jax.Array]:
    return {
        "norm1": jnp.ones(width), "qkv": w(width, 3 * width), "out": w(width, width),
        "norm2": jnp.ones(width), "up": w(width, 4 * width), "down": w(4 * width, width),
    }  # fmt: skip


def gpt(wrap: Wrap = bare, layers: int = 8, scan: bool = False) -> Model:
    w, width, length, batch, heads, words = Weights(), 256, 256, 4, 4, 512
    blocks: Any = [gpt_weights(w, width) for _ in range(layers)]
    if scan:
        blocks = jax.tree_util.tree_map(lambda *each: jnp.stack(each), *blocks)
    params = {"words": w(words, width), "places": w(length, width), "blocks": blocks, "norm": jnp.ones(width)}
    tokens = jnp.asarray(w.random.randint(words, size=(batch, length + 1)))

    block = wrap(lambda p, x: gpt_block(p, x, heads))

    def loss(params: Any, tokens: jax.Array) -> jax.Array:
        x = params["words"][tokens[:, :-1]] + params["places"]
        if scan:
            x, _ = jax.lax.scan(lambda x, p: (block(p, x), None), x, params["blocks"])
        else:
            for p in params["blocks"]:
                x = block(p, x)
        return cross_entropy(normed(x, params["norm"]) @ params["words"].T, tokens[:, 1:])

    return loss, (params, tokens)


def conv(x: jax.Array, kernel: jax.Array, stride: int = 1) -> jax.Array:
    return jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def batch_norm(x: jax.Array, gain: jax.Array) -> jax.Array:
    mean = x.mean((0, 1, 2))
    variance = ((x - mean) ** 2).mean((0, 1, 2))
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * gain


def resnet(wrap: Wrap = bare) -> Model:
    w = Weights()
    widths = [32, 32, 64, 64, 128, 128, 256, 256]
    blocks, before = [], 32
    for width in widths:
        blocks.append({
            "conv1": w(3, 3, before, width), "norm1": jnp.ones(width),
            "conv2": w(3, 3, width, width), "norm2": jnp.ones(width),
            **({"skip": w(1, 1, before, width)} if width != before else {}),
        })  # fmt: skip
        before = width
    params = {"stem": w(3, 3, 3, 32), "norm": jnp.ones(32), "blocks": blocks, "head": w(before, 10)}
    images = w(32, 32, 32, 3)
    labels = jnp.asarray(w.random.randint(10, size=32))

    @wrap
    def block(p: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        stride = 2 if "skip" in p else 1
        y = jax.nn.relu(batch_norm(conv(x, p["conv1"], stride), p["norm1"]))
        y = batch_norm(conv(y, p["conv2"]), p["norm2"])
        return jax.nn.relu(y + (conv(x, p["skip"], stride) if "skip" in p else x))

    def loss(params: Any, images: jax.Array, labels: jax.Array) -> jax.Array:
        x = jax.nn.relu(batch_norm(conv(images, params["stem"]), params["norm"]))
        for p in params["blocks"]:
            x = block(p, x)
        return cross_entropy(x.mean((1, 2)) @ params["head"], labels)

    return loss, (params, images, labels)


def unet(wrap: Wrap = bare) -> Model:
    w = Weights()
    widths = [16, 32, 64, 128]

    def pair(a: int, b: int) -> list[jax.Array]:
        return [w(3, 3, a, b), w(3, 3, b, b)]

    down = [pair(a, b) for a, b in zip([3, *widths[:-1]], widths, strict=True)]
    up = [pair(a + b, a) for a, b in pairwise(widths)]
    params = {"down": down, "up": up, "head": w(1, 1, widths[0], 2)}
    images = w(8, 64, 64, 3)
    labels = jnp.asarray(w.random.randint(2, size=(8, 64, 64)))

    @wrap
    def both(x: jax.Array, kernels: Any) -> jax.Array:
        for kernel in kernels:
            x = jax.nn.relu(conv(x, kernel))
        return x

    def loss(params: Any, images: jax.Array, labels: jax.Array) -> jax.Array:
        x, skips = images, []
        for i, kernels in enumerate(params["down"]):
            x = both(x, kernels)
            if i < len(widths) - 1:
                skips.append(x)
                x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        for kernels, skip in zip(params["up"][::-1], skips[::-1], strict=True):
            x = jnp.concatenate([skip, x.repeat(2, 1).repeat(2, 2)], -1)
            x = both(x, kernels)
        return cross_entropy(conv(x, params["head"]), labels)

    return loss, (params, images, labels)


def mixer(wrap: Wrap = bare, layers: int = 8) -> Model:
    w, tokens, width, batch = Weights(), 64, 256, 16
    blocks = [
        {
            "norm1": jnp.ones(width), "token_up": w(tokens, 2 * tokens), "token_down": w(2 * tokens, tokens),
            "norm2": jnp.ones(width), "up": w(width, 4 * width), "down": w(4 * width, width),
        }
        for _ in range(layers)
    ]  # fmt: skip
    params = {"stem": w(48, width), "blocks": blocks, "head": w(width, 10)}
    patches = w(batch, tokens, 48)
    labels = jnp.asarray(w.random.randint(10, size=batch))

    @wrap
    def block(p: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        y = normed(x, p["norm1"]).swapaxes(1, 2)
        x = x + (jax.nn.gelu(y @ p["token_up"]) @ p["token_down"]).swapaxes(1, 2)
        return x + jax.nn.gelu(normed(x, p["norm2"]) @ p["up"]) @ p["down"]

    def loss(params: Any, patches: jax.Array, labels: jax.Array) -> jax.Array:
        x = patches @ params["stem"]
        for p in params["blocks"]:
            x = block(p, x)
        return cross_entropy(x.mean(1) @ params["head"], labels)

    return loss, (params, patches, labels)


MODELS: dict[str, Callable[..., Model]] = {
    "gpt": gpt,
    "gpt_scan": lambda wrap=bare: gpt(wrap, scan=True),
    "resnet": resnet,
    "unet": unet,
    "mixer": mixer,
}
