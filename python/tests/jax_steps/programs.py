"""Random programs: `program(seed)` is (loss function, arguments). Same seed, same program."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

ROWS, WIDTH = 6, 8


@jax.custom_vjp
def clipped(x: Any) -> Any:
    return jnp.sin(x)


clipped.defvjp(lambda x: (jnp.sin(x), jnp.cos(x)), lambda cos, ct: (jnp.clip(ct * cos, -0.5, 0.5),))


@jax.custom_jvp
def softened(x: Any) -> Any:
    return jnp.log1p(jnp.exp(-jnp.abs(x))) + jnp.maximum(x, 0)


@softened.defjvp
def _softened_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return softened(x), t * jax.nn.sigmoid(x)


@jax.jit
def called(x: Any) -> Any:
    return x * jax.nn.sigmoid(x)


Values = list[Any]


def dot(v: Values, w: Any, r: random.Random, key: Any) -> Any:
    return pick(v, r) @ w


def scores(v: Values, w: Any, r: random.Random, key: Any) -> Any:
    return jax.nn.softmax(pick(v, r) @ pick(v, r).T / WIDTH, -1) @ pick(v, r)


def norm(v: Values, w: Any, r: random.Random, key: Any) -> Any:
    x = pick(v, r)
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-3)


def elementwise(v: Values, w: Any, r: random.Random, key: Any) -> Any:
    f = r.choice([jnp.tanh, jnp.sin, called, clipped, softened, jax.nn.gelu, jax.nn.relu])
    return f(pick(v, r))


def add(v: Values, w: Any, r: random.Random, key: Any) -> Any:
    return pick(v, r) + 0.5 * pick(v, r)


def product(v: Values, w: Any, r: random.Random, key: Any) -> Any:
    return pick(v, r) * jnp.tanh(pick(v, r))


def named(v: Values, w: Any, r: random.Random, key: Any) -> Any:
    return checkpoint_name(jnp.cos(pick(v, r)), "own")


def inner_checkpoint(v: Values, w: Any, r: random.Random, key: Any) -> Any:
    return jax.checkpoint(lambda x: jnp.tanh(x @ w) + jnp.sin(x))(pick(v, r))


def dropout(v: Values, w: Any, r: random.Random, key: Any) -> Any:
    keep = jax.random.bernoulli(jax.random.fold_in(key, r.randrange(100)), 0.8, (ROWS, WIDTH))
    return jnp.where(keep, pick(v, r) / 0.8, 0)


def convolution(v: Values, w: Any, r: random.Random, key: Any) -> Any:
    kernel = w[:3].reshape(3, WIDTH, 1) * jnp.ones((1, 1, WIDTH))
    return jax.lax.conv_general_dilated(
        pick(v, r)[None], kernel, (1,), "SAME", dimension_numbers=("NHC", "HIO", "NHC")
    )[0]


def shuffle(v: Values, w: Any, r: random.Random, key: Any) -> Any:
    return jnp.concatenate([pick(v, r)[1:], pick(v, r)[:1]]) * jnp.sort(pick(v, r), 0)


def pooled(v: Values, w: Any, r: random.Random, key: Any) -> Any:
    x = pick(v, r)
    size, stride = r.choice([((2, 2), (2, 2)), ((2, 1), (2, 1)), ((3, 3), (1, 1))])
    x = jax.lax.reduce_window(jax.nn.relu(x), -jnp.inf, jax.lax.max, size, stride, "SAME")
    return x.repeat(ROWS // x.shape[0], 0).repeat(WIDTH // x.shape[1], 1)


def gathered(v: Values, w: Any, r: random.Random, key: Any) -> Any:
    rows = jnp.asarray([r.randrange(ROWS) for _ in range(ROWS)])
    return pick(v, r)[rows] - jnp.cumsum(pick(v, r), 1) / WIDTH


def powers(v: Values, w: Any, r: random.Random, key: Any) -> Any:
    x = jnp.tanh(pick(v, r))
    return (1 + x * x) ** 1.5 + x**3 - jax.nn.logsumexp(x, 0)


def rows(v: Values, w: Any, r: random.Random, key: Any) -> Any:
    return jax.vmap(lambda x: jnp.sin(w @ x) + jnp.max(x))(pick(v, r))


def scan(v: Values, w: Any, r: random.Random, key: Any) -> Any:
    out, each = jax.lax.scan(lambda c, x: (jnp.tanh(c @ w) + x, c.sum(0)), pick(v, r), jnp.ones((3, WIDTH)))
    return out * each.sum(0)


def branch(v: Values, w: Any, r: random.Random, key: Any) -> Any:
    x = pick(v, r)
    return jax.lax.cond(x.sum() > 0, lambda y: jnp.sin(y @ w), lambda y: y * y, x)


def loop(v: Values, w: Any, r: random.Random, key: Any) -> Any:
    x = pick(v, r)
    steps = jax.lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] * 0.5), (0, x[0, 0]))[1]
    return x * jax.lax.stop_gradient(steps)


RULES: list[Callable[..., Any]] = [
    dot, dot, scores, norm, elementwise, elementwise, add, add, product, named, inner_checkpoint, dropout,
    convolution, shuffle, pooled, gathered, powers, rows,
]  # fmt: skip
LOOPS: list[Callable[..., Any]] = [scan, branch, loop]


def pick(v: Values, r: random.Random) -> Any:
    """Mostly a late value: programs are deep, and some values cross far."""
    return v[-1] if r.random() < 0.5 else r.choice(v)


def program(seed: int, loops: bool = True) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A loss with aux of (weights, x, key), and arguments in the default float type."""
    r = random.Random(seed)
    rules = [r.choice(RULES + (LOOPS if loops else [])) for _ in range(r.randint(4, 14))]
    choices = r.getrandbits(32)

    def loss(weights: Any, x: Any, key: Any) -> Any:
        pick_from = random.Random(choices)
        values = [x]
        for rule, w in zip(rules, weights, strict=True):
            values.append(rule(values, w, pick_from, key))
        return sum((y * y).mean() for y in values[-2:]), {
            "last": values[-1], "first": x.sum(), "count": (values[-1] > 0).sum(), "number": 3,
        }  # fmt: skip

    random_arrays = np.random.RandomState(seed)
    weights = [jnp.asarray(random_arrays.randn(WIDTH, WIDTH) / WIDTH**0.5) for _ in rules]
    return loss, (weights, jnp.asarray(random_arrays.randn(ROWS, WIDTH)), jax.random.key(seed))
