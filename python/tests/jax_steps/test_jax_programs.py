"""Random programs with random saved sets: losses, aux and gradients are those of the plain step."""

from __future__ import annotations

import random
from typing import Any

import pytest

jax = pytest.importorskip("jax", reason="jax is not installed")
import numpy as np  # noqa: E402
from programs import program  # noqa: E402
from remat.jax import cuts, regions  # noqa: E402


@pytest.fixture(autouse=True)
def every_value_counts(monkeypatch: Any) -> Any:
    """Values of the programs are small; the cuts are to treat them as large ones."""
    monkeypatch.setattr(cuts, "SMALL", 16)
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def planned(loss: Any, args: Any, seed: int) -> Any:
    """The function with a random part of its results saved, scans among them run in regions too."""
    leaves, tree = jax.tree_util.tree_flatten(args)
    r = random.Random(seed)
    with jax.disable_jit(False):
        outs, out_tree = jax.tree_util.tree_flatten(jax.eval_shape(loss, *args))
    flat = lambda *xs: jax.tree_util.tree_leaves(loss(*jax.tree_util.tree_unflatten(tree, xs)))  # noqa: E731
    primal = regions.primal_of(flat, leaves)
    share = r.choice([0.0, 0.2, 0.5, 0.9])
    saved = [n for n in primal.number.values() if r.random() < share]
    scans = {}
    for i, op in enumerate(primal.ops):
        if op.kind == "scan" and r.random() < 0.5:
            body = regions.primal_of_jaxpr(op.params["jaxpr"])
            scans[str(i)] = cuts.Cuts(body, [n for n in body.number.values() if r.random() < share]).policy()
    runnable = regions.with_scans(primal, scans)
    once = [i for i, op in enumerate(primal.ops) if op.kind == "scan" and r.random() < 0.5]
    policy = cuts.Cuts(runnable, saved, once).policy()

    def run(*given: Any) -> Any:
        made = regions.run_regions(runnable, policy, jax.tree_util.tree_leaves(given))
        return jax.tree_util.tree_unflatten(out_tree, made)

    assert len(outs) == len(primal.outputs)
    return run


def step(fn: Any) -> Any:
    return jax.value_and_grad(fn, argnums=(0, 1), has_aux=True)


def leaves(x: Any) -> list[Any]:
    return [np.asarray(y) for y in jax.tree_util.tree_leaves(x)]


def wrong_bits(seed: int) -> int:
    """How many results differ in any bit, op by op."""
    loss, args = program(seed, loops=False)
    fn = planned(loss, args, seed)
    with jax.disable_jit():
        pairs = zip(leaves(step(loss)(*args)), leaves(step(fn)(*args)), strict=True)
        return sum(not np.array_equal(a, b, equal_nan=True) for a, b in pairs)


def difference(seed: int) -> float:
    """The largest relative difference of a result under jit."""
    loss, args = program(seed)
    fn = planned(loss, args, seed)
    pairs = zip(leaves(jax.jit(step(loss))(*args)), leaves(jax.jit(step(fn))(*args)), strict=True)
    return max(float(np.max(np.abs(a - b)) / (1e-3 + np.max(np.abs(a)))) for a, b in pairs)


@pytest.mark.parametrize("seed", range(6))
def test_results_op_by_op_are_equal_bit_for_bit(seed: int) -> None:
    assert wrong_bits(seed) == 0


@pytest.mark.parametrize("seed", range(100, 104))
def test_results_under_jit_are_equal_to_twelve_digits(seed: int) -> None:
    assert difference(seed) < 1e-12
