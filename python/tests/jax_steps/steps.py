"""A small step, and how its results are compared."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import remat.jax as rj
from remat import Host
from remat.jax import api
from remat.jax.devices import CPU, Device
from remat.jax.plans import Program

WORK = 300  # enough for steps of this size, the same on every machine
#: For tests of what older versions of JAX have not, or do in another way.
newer = partial(pytest.mark.skipif, jax.__version_info__ < (0, 7))


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


def jitted(fn: Any, **options: Any) -> Any:
    if rj.COMPILER_OPTIONS:  # before JAX 0.6.2 there are none, and 0.4.35 does not take the argument
        options["compiler_options"] = rj.COMPILER_OPTIONS
    return jax.jit(fn, **options)


def program_of(loss: Any, args: Any, device: Device = CPU, host: Host | None = None) -> tuple[Program, Any]:
    """What plans are sought for, and the tree of the function's results."""
    call = api.Call.of(args)
    primal, tree = api.traced(loss, call)
    diff = api.differentiated(call, (0,), len(args))
    return Program(
        primal, call.avals, diff, [0], {"time_limit": None, "work_limit": WORK}, device, host
    ), tree


def same(a: Any, b: Any) -> bool:
    pairs = zip(jax.tree_util.tree_leaves(a), jax.tree_util.tree_leaves(b), strict=True)
    return all(np.allclose(x, y, rtol=1e-12, atol=1e-14) for x, y in pairs)
