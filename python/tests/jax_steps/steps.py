"""A small step, and how its results are compared."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import remat.jax as rj

WORK = 300  # enough for steps of this size, the same on every machine


@pytest.fixture(autouse=True)
def double() -> Any:
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def mlp(weights: Any, x: Any) -> Any:
    for w in weights:
        x = jnp.tanh(x @ w)
    return jnp.mean(x**2)


def arguments(layers: int = 6) -> Any:
    r = np.random.RandomState(0)
    return [jnp.array(r.randn(64, 64) * 0.1) for _ in range(layers)], jnp.array(r.randn(512, 64))


def jitted(fn: Any) -> Any:
    return jax.jit(fn, compiler_options=rj.COMPILER_OPTIONS)


def same(a: Any, b: Any) -> bool:
    pairs = zip(jax.tree_util.tree_leaves(a), jax.tree_util.tree_leaves(b), strict=True)
    return all(np.allclose(x, y, rtol=1e-12, atol=1e-14) for x, y in pairs)
