"""Models of flax, equinox and updates of optax, whose steps keep their budget with the same results."""

from __future__ import annotations

from typing import Any

import pytest

jax = pytest.importorskip("jax", reason="jax is not installed")
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import remat.jax as rj  # noqa: E402
from steps import WORK, double, jitted  # noqa: E402, F401

X = np.random.RandomState(1).randn(256, 64).astype(np.float64)


def check(loss: Any, *args: Any) -> Any:
    """The planned loss, whose gradients are those of the plain one."""
    fn = rj.checkpoint(loss, "85%", work_limit=WORK)
    got, wanted = (jitted(jax.value_and_grad(f))(*args) for f in (fn, loss))
    for a, b in zip(jax.tree_util.tree_leaves(got), jax.tree_util.tree_leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
    assert fn.report.executor == "names"
    assert fn.report.compiled <= fn.report.budget
    return fn


def test_flax_linen_with_dropout_and_an_optax_update() -> None:
    nn = pytest.importorskip("flax.linen", reason="flax is not installed")
    optax = pytest.importorskip("optax", reason="optax is not installed")

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            for _ in range(5):
                y = nn.LayerNorm(param_dtype=jnp.float64)(x)
                y = nn.gelu(nn.Dense(128, param_dtype=jnp.float64)(y))
                y = nn.Dropout(0.1, deterministic=False)(y)
                x = x + nn.Dense(64, param_dtype=jnp.float64)(y)
            return x

    model = Model()
    params = model.init({"params": jax.random.key(0), "dropout": jax.random.key(1)}, X)

    def loss(params: Any, x: Any, key: Any) -> Any:
        return (model.apply(params, x, rngs={"dropout": key}) ** 2).mean()

    fn = check(loss, params, jnp.asarray(X), jax.random.key(2))
    optimizer = optax.adamw(1e-2)

    @jitted
    def step(params: Any, state: Any, key: Any) -> Any:
        value, grads = jax.value_and_grad(fn)(params, X, key)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    state, values = optimizer.init(params), []
    for i in range(3):
        params, state, value = step(params, state, jax.random.key(i))
        values.append(float(value))
    assert values[2] < values[0]


def test_flax_nnx_split_into_state_and_graph() -> None:
    nnx = pytest.importorskip("flax.nnx", reason="flax is not installed")

    class Model(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.layers = nnx.List(nnx.Linear(64, 64, param_dtype=jnp.float64, rngs=rngs) for _ in range(6))

        def __call__(self, x: Any) -> Any:
            for layer in self.layers:
                x = jnp.tanh(layer(x))
            return x

    graph, state = nnx.split(Model(nnx.Rngs(0)))
    check(lambda state, x: (nnx.merge(graph, state)(x) ** 2).mean(), state, jnp.asarray(X))


def test_equinox_by_filtered_gradients() -> None:
    eqx = pytest.importorskip("equinox", reason="equinox is not installed")
    model = eqx.nn.MLP(64, 64, 64, 6, activation=jnp.tanh, dtype=jnp.float64, key=jax.random.key(0))

    def loss(model: Any, x: Any) -> Any:
        return (jax.vmap(model)(x) ** 2).mean()

    fn = rj.checkpoint(loss, "85%", work_limit=WORK)
    got = eqx.filter_value_and_grad(fn)(model, jnp.asarray(X))
    wanted = eqx.filter_value_and_grad(loss)(model, jnp.asarray(X))
    for a, b in zip(jax.tree_util.tree_leaves(got), jax.tree_util.tree_leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
    assert fn.report.compiled <= fn.report.budget
