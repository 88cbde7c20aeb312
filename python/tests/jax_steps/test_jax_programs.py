"""Random programs with random saved sets, and in random full orders: results are those of the plain step.

    python test_jax_programs.py FIRST COUNT bits|digits

checks many by hand; with XLA_FLAGS=--xla_force_host_platform_device_count=4 arguments are on four devices.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest

jax = pytest.importorskip("jax", reason="jax is not installed")
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from programs import ROWS, WIDTH, program  # noqa: E402
from remat.jax import api, cuts, devices, full, regions  # noqa: E402
from remat.jax.capture import Joint  # noqa: E402
from steps import jitted  # noqa: E402


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
    again = [n for n in primal.number.values() if r.random() < 0.5] if r.random() < 0.5 else None
    policy = cuts.Cuts(runnable, saved, once, again=again).policy()

    def run(*given: Any) -> Any:
        made = regions.run_regions(runnable, policy, jax.tree_util.tree_leaves(given))
        return jax.tree_util.tree_unflatten(out_tree, made)

    assert len(outs) == len(primal.outputs)
    return run


def in_full_order(loss: Any, args: Any, seed: int) -> Any:
    """The function in a random order, in which what is read is made again or not."""
    call = api.Call.of(args)
    primal, tree = api.traced(loss, call)
    diff = api.differentiated(call, (0, 1), len(args))
    # For a GPU other ops are fused with those that read them; what runs here is the same either way.
    device = devices.DEVICES["h100"] if seed % 2 else devices.CPU
    joint = Joint(primal, call.avals, diff, device=device).in_full_order()
    order = full.FullOrder(joint, random_steps(joint.graph, seed), coarse=seed % 4 > 1)
    run = full.ordered(primal, order, diff, [0])
    return lambda *given: jax.tree_util.tree_unflatten(tree, run(jax.tree_util.tree_leaves(given)))


def random_steps(graph: Any, seed: int) -> list[int]:
    r = random.Random(seed)
    loss_rate = r.choice([0.0, 0.05, 0.2, 0.5])
    once = {n for n in range(graph.num_ops) if not graph.recomputable[n]}
    made: set[int] = set()
    steps: list[int] = []

    def make(op: int) -> None:
        pending = [op]
        while pending:
            top = pending[-1]
            before = [graph.producers[v] for v in graph.op_inputs(top) if v not in held and v not in made]
            if before:
                pending += before
            else:
                steps.append(pending.pop())
                made.update(graph.op_outputs(top))

    held = set(graph.inputs)
    for op in range(graph.num_ops):
        made = {v for v in made if graph.producers[v] in once or r.random() >= loss_rate}
        make(op)
    return steps


def step(fn: Any) -> Any:
    return jax.value_and_grad(fn, argnums=(0, 1), has_aux=True)


def leaves(x: Any) -> list[Any]:
    return [np.asarray(y) for y in jax.tree_util.tree_leaves(x)]


def spread(arrays: Any, *axes: Any) -> Any:
    if jax.device_count() != 4:
        return arrays
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("rows",))
    return jax.device_put(arrays, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes)))


def wrong_bits(seed: int, *ways: Any) -> list[int]:
    """How many results differ in any bit, op by op; programs have loops for names only, as full order may sum
    their gradients in another order."""
    found = []
    for way in ways:
        loss, args = program(seed, loops=way is planned)
        fn = way(loss, args, seed)
        with jax.disable_jit():
            pairs = zip(leaves(step(loss)(*args)), leaves(step(fn)(*args)), strict=True)
        found.append(sum(not equal(a, b) for a, b in pairs))
    return found


def equal(a: Any, b: Any) -> bool:
    """Before JAX 0.7 a region adds the gradients of what it reads twice before others are added."""
    if jax.__version_info__ < (0, 7):
        return bool(np.allclose(a, b, rtol=1e-13, atol=1e-14, equal_nan=True))
    return np.array_equal(a, b, equal_nan=True)


def difference(seed: int, *ways: Any) -> list[float]:
    """The largest relative difference of a result under jit, whose second argument is donated; with four
    devices, arguments are spread over them."""
    loss, args = program(seed)
    fns = [way(loss, args, seed) for way in ways]

    def run(fn: Any) -> Any:
        done = jitted(step(fn), donate_argnums=1)
        weights, x, key = args
        return leaves(done(spread(weights, "rows"), spread(x.copy(), None, "rows"), key))

    plain, *others = map(run, (loss, *fns))
    return [
        max(
            float(np.max(np.abs(a - b)) / (1e-3 + np.max(np.abs(a))))
            for a, b in zip(plain, other, strict=True)
        )
        for other in others
    ]


@pytest.mark.parametrize("seed", range(4))
def test_results_op_by_op_are_equal_bit_for_bit(seed: int) -> None:
    assert wrong_bits(seed, in_full_order if seed % 2 else planned) == [0]


def loops(weights: Any, x: Any) -> Any:
    """A stack of layers and a recurrent one by `scan`, with a `while`, a `cond`, a scan within a scan and a
    checkpoint inside."""
    stack, recurrent = weights

    def layer(c: Any, w: Any) -> Any:
        c, _ = jax.lax.scan(lambda c, v: (c + 0.1 * jnp.tanh(c @ v), None), c, jnp.stack([w, w.T]))
        return c, jax.lax.cond(c[0, 0] > 0, jnp.sin, jnp.cos, c[0] / 3)

    y, sides = jax.lax.scan(jax.checkpoint(layer), x, stack)
    share = jax.lax.while_loop(lambda c: c > 0.3, lambda c: c / 1.7, jax.lax.stop_gradient(sides[-1, 0]))
    h, hs = jax.lax.scan(lambda h, row: (jnp.tanh(h @ recurrent) + row / 7,) * 2, y[0], y)
    return (h * share).sum() + (hs**2).mean() / 3, {"sides": sides}


@pytest.mark.parametrize("way", [planned, in_full_order])
def test_loops_run_op_by_op_where_jit_is_disabled(way: Any) -> None:
    r = np.random.RandomState(0)
    args = (jnp.asarray(r.randn(5, 8, 8) / 3), jnp.asarray(r.randn(8, 8) / 3)), jnp.asarray(r.randn(6, 8))
    for seed in range(3):
        fn = way(loops, args, seed)
        with jax.disable_jit():
            plain, other = leaves(step(loops)(*args)), leaves(step(fn)(*args))
        assert [equal(a, b) for a, b in zip(plain, other, strict=True)] == [True] * len(plain)


def spectra(weights: Any, x: Any) -> Any:
    """Complex values, which JAX cannot save by name as they are."""
    w, phase = weights
    z = jnp.exp(1j * (x @ w))
    f = jnp.fft.fft(z * jnp.conj(z) * z) * phase
    return ((f @ (w + 1j * w.T)).real ** 2 + f.imag).mean(), {"phase": f[0]}


def test_complex_values_are_saved() -> None:
    r = np.random.RandomState(0)
    args = (jnp.asarray(r.randn(8, 8) / 3), jnp.asarray(r.randn(8) + 1j)), jnp.asarray(r.randn(6, 8))
    for seed in range(4):
        fn = planned(spectra, args, seed)
        with jax.disable_jit():
            plain, other = leaves(step(spectra)(*args)), leaves(step(fn)(*args))
        assert [equal(a, b) for a, b in zip(plain, other, strict=True)] == [True] * len(plain)
        plain, other = leaves(jitted(step(spectra))(*args)), leaves(jitted(step(fn))(*args))
        assert all(np.allclose(a, b, rtol=1e-12, atol=1e-12) for a, b in zip(plain, other, strict=True))


@pytest.mark.parametrize("seed", range(100, 103))
def test_results_under_jit_are_equal_to_twelve_digits(seed: int) -> None:
    assert difference(seed, in_full_order if seed % 2 else planned)[0] < 1e-12


def largest(z: Any) -> Any:
    return z.max(-1, keepdims=True)


def where_largest(z: Any) -> Any:
    return jnp.where(z == z.max(-1, keepdims=True), z, 0)


def where_near_largest(z: Any) -> Any:
    return jnp.where(z - jax.lax.stop_gradient(z.max(-1, keepdims=True)) >= 0, z, 0)


def three_largest(z: Any) -> Any:
    return jnp.where(z >= jax.lax.top_k(z, 3)[0][:, -1:], z, 0)


def running(z: Any) -> Any:
    return jax.lax.cummax(z, axis=1)


def scattered(z: Any) -> Any:
    return jnp.zeros((3, WIDTH)).at[jnp.arange(ROWS) % 3].max(z)[jnp.arange(ROWS) % 3]


def clipped_at(z: Any) -> Any:
    return jnp.maximum(z, 0) + jnp.minimum(z, z.T[:ROWS, :1])


@pytest.mark.skipif(not regions.HOLDS, reason="barriers have no rules")
@pytest.mark.parametrize(
    "choose",
    [largest, where_largest, where_near_largest, three_largest, running, scattered, clipped_at],
)
def test_what_is_compared_with_what_was_chosen_from_it_is_decided_once(choose: Any) -> None:
    """The sum of two products has other last bits where XLA fuses it with others of their readers."""

    def loss(weights: Any, x: Any, key: Any) -> Any:
        for w in weights:
            h = jnp.tanh(x @ w)
            p, q = h * w[:1], x * w[1:2]
            x = jnp.sin(p) * q + choose(p + q) * h + h
        return (x * x).mean(), {"row": x[0]}

    r = np.random.RandomState(0)
    args = [jnp.asarray(r.randn(WIDTH, WIDTH) / 2) for _ in range(3)], jnp.asarray(r.randn(ROWS, WIDTH)), None
    with jax.disable_jit():
        plain = leaves(step(loss)(*args))
    for seed in (2, 3, 6):
        for way in (planned, in_full_order):
            fn = way(loss, args, seed)
            with jax.disable_jit():
                assert all(map(equal, plain, leaves(step(fn)(*args))))
            for a, b in zip(plain, leaves(jitted(step(fn))(*args)), strict=True):
                assert np.max(np.abs(a - b)) < 1e-12 * (1e-3 + np.max(np.abs(a))), (seed, way)


def main() -> None:
    first, count = int(sys.argv[1]), int(sys.argv[2])
    jax.config.update("jax_enable_x64", True)
    cuts.SMALL = 16
    check, wrong = {"bits": wrong_bits, "digits": difference}[sys.argv[3]], 0
    for seed in range(first, first + count):
        found = check(seed, planned, in_full_order)
        if not all(bad < 1e-12 for bad in found):
            wrong += 1
            print(f"{seed}: names {found[0]}, full {found[1]}", flush=True)
        if (seed - first) % 10 == 9:
            if (seed - first) % 50 == 49:
                jax.clear_caches()
            print(f"{seed - first + 1} programs, {wrong} wrong", flush=True)


if __name__ == "__main__":
    main()
