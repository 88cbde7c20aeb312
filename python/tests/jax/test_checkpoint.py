"""Checkpoints for a budget: same results, the budget kept in what XLA says, errors in one line."""

from __future__ import annotations

from typing import Any

import pytest

jax = pytest.importorskip("jax", reason="jax is not installed")
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import remat  # noqa: E402
import remat.jax as rj  # noqa: E402


@pytest.fixture(autouse=True)
def double() -> Any:
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def mlp(weights: Any, x: Any) -> Any:
    for w in weights:
        x = jnp.tanh(x @ w)
    return jnp.mean(x**2)


def arguments() -> Any:
    r = np.random.RandomState(0)
    return [jnp.array(r.randn(64, 64) * 0.1) for _ in range(6)], jnp.array(r.randn(512, 64))


def same(a: Any, b: Any) -> bool:
    pairs = zip(jax.tree_util.tree_leaves(a), jax.tree_util.tree_leaves(b), strict=True)
    return all(np.allclose(x, y, rtol=1e-12, atol=1e-14) for x, y in pairs)


def test_gradients_under_jit_equal_those_of_the_plain_step_and_the_budget_is_kept() -> None:
    args = arguments()
    fn = rj.checkpoint(mlp, "90%", time_limit=1)
    got = jax.jit(jax.value_and_grad(fn), compiler_options=rj.COMPILER_OPTIONS)(*args)
    assert same(got, jax.jit(jax.value_and_grad(mlp))(*args))
    assert fn.report is not None
    assert fn.report.compiled <= fn.report.budget < fn.report.plain


def test_jvp_and_vmap_go_through() -> None:
    weights, x = arguments()
    fn = rj.checkpoint(mlp, "95%", time_limit=1)
    assert same(jax.jvp(fn, (weights, x), (weights, x)), jax.jvp(mlp, (weights, x), (weights, x)))
    xs = jnp.stack([x, 2 * x])
    assert same(jax.vmap(fn, (None, 0))(weights, xs), jax.vmap(mlp, (None, 0))(weights, xs))


def test_auxiliary_results_come_back() -> None:
    def with_aux(weights: Any, x: Any) -> Any:
        return mlp(weights, x), {"mean": x.mean()}

    fn = rj.checkpoint(with_aux, "95%", has_aux=True, time_limit=1)
    got = jax.value_and_grad(fn, has_aux=True)(*arguments())
    assert same(got, jax.value_and_grad(with_aux, has_aux=True)(*arguments()))


def test_a_budget_that_nothing_keeps_is_an_error_with_the_least_that_was_reached() -> None:
    fn = rj.checkpoint(mlp, "1%", time_limit=1)
    with pytest.raises(remat.NoPlanError, match="arguments and outputs alone"):
        fn(*arguments())


def test_effects_are_refused() -> None:
    def prints(weights: Any, x: Any) -> Any:
        jax.debug.print("{x}", x=x[0, 0])
        return mlp(weights, x)

    with pytest.raises(remat.UsageError, match="debug_.*test_checkpoint.py.*cannot run it a second time"):
        rj.checkpoint(prints, "90%")(*arguments())
