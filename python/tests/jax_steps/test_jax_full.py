"""Full order: budgets that no saved names keep, same results, refusals in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

jax = pytest.importorskip("jax", reason="jax is not installed")
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import remat  # noqa: E402
import remat.jax as rj  # noqa: E402
from jax.extend.core import Literal  # noqa: E402
from remat.jax import api, full  # noqa: E402
from remat.jax.buffers import buffers  # noqa: E402
from remat.jax.capture import Joint  # noqa: E402
from steps import WORK, arguments, double, jitted, mlp, newer, same  # noqa: E402, F401


@pytest.fixture(scope="module")
def ordered() -> Any:
    """A plan that several tests look at."""
    jax.config.update("jax_enable_x64", True)  # before `double` does
    fn = rj.checkpoint(mlp, "80%", executor="full", work_limit=WORK)
    fn.plan(*arguments(4))
    return fn


@newer(reason="older XLA takes more for the plain step, or needs a second compile")
def test_the_prediction_is_what_xla_takes_and_results_are_those_of_the_plain_step(ordered: Any) -> None:
    args = arguments(4)
    report = ordered.plan(*args)
    assert (report.executor, report.compiles) == ("full", 1)
    assert report.compiled <= report.budget
    assert abs(report.predicted - report.compiled) < 0.03 * report.temporary
    assert report.overhead > 0
    assert all("(mlp)" in name.source for name in ordered.names)
    assert same(jitted(jax.value_and_grad(ordered))(*args), jax.jit(jax.value_and_grad(mlp))(*args))
    with jax.disable_jit():
        got, wanted = (jax.tree_util.tree_leaves(jax.value_and_grad(f)(*args)) for f in (ordered, mlp))
        assert all(np.array_equal(a, b) for a, b in zip(got, wanted, strict=True))


def test_what_comes_out_of_a_barrier_is_used(ordered: Any) -> None:
    """XLA for GPUs drops what is not, and with it the order: gradients of kernels ran at the end."""
    jaxpr = jax.make_jaxpr(jax.value_and_grad(ordered))(*arguments(4)).jaxpr
    used = {v for eqn in jaxpr.eqns for v in eqn.invars if not isinstance(v, Literal)} | set(jaxpr.outvars)
    barriers = [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "optimization_barrier"]
    assert len(barriers) > 20
    assert not [v for eqn in barriers for v in eqn.outvars if v.aval.shape and v not in used]


@newer(reason="JAX 0.4.35 has no such rules for barriers")
def test_vmap_and_derivatives_of_gradients_go_through(ordered: Any) -> None:
    weights, x = arguments(4)
    both = jnp.stack([x, 2 * x])
    assert same(jax.vmap(ordered, (None, 0))(weights, both), jax.vmap(mlp, (None, 0))(weights, both))

    def rows(fn: Any) -> Any:
        return jax.vmap(jax.grad(fn), (None, 0))(weights, both)

    def product(fn: Any) -> Any:
        return jax.jvp(lambda w: jax.grad(fn)(w, x), (weights,), (weights,))

    def norm(fn: Any) -> Any:
        return jax.grad(lambda w: sum((g**2).sum() for g in jax.grad(fn)(w, x)))(weights)

    for derived in (rows, product, norm):
        assert same(derived(ordered), derived(mlp))


def test_what_full_order_has_not_is_refused(ordered: Any, tmp_path: Path) -> None:
    weights, x = arguments(4)
    ordered.plan(weights, x)
    with pytest.raises(remat.UsageError, match='executor="names" has plans that can'):
        ordered.save(tmp_path / "policy.json")
    with pytest.raises(remat.UsageError, match=r"of argnums only, not of an array of shape \(512, 64\)"):
        jax.grad(ordered, argnums=1)(weights, x)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(lambda w: ordered(w, x), (weights,), (weights,))
    with pytest.raises(remat.UsageError, match="no executor 'both': 'auto', 'names', 'full'"):
        rj.checkpoint(mlp, "70%", executor="both")
    with pytest.raises(remat.UsageError, match='"full" needs iterations=1'):
        rj.policy(mlp, "80%", executor="full", iterations=8)


def test_constants_of_narrow_types_keep_their_types() -> None:
    def narrow(weights: Any, x: Any) -> Any:
        for w in weights:
            x = jax.nn.relu(0.5 * (x @ w) + 1).astype(jnp.bfloat16)
        return (x.astype(jnp.float32) ** 2).mean()

    weights, x = ([w.astype(jnp.bfloat16) for w in arguments(4)[0]], arguments(4)[1].astype(jnp.bfloat16))
    fn = rj.checkpoint(narrow, "85%", executor="full", work_limit=WORK)
    got, wanted = (jitted(jax.value_and_grad(f))(weights, x) for f in (fn, narrow))
    assert fn.report.executor == "full"
    for a, b in zip(jax.tree_util.tree_leaves(got), jax.tree_util.tree_leaves(wanted), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(np.asarray(a, float), np.asarray(b, float), rtol=0.1, atol=1e-2)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_constants_that_a_sum_with_zero_changes_are_left_alone(dtype: Any) -> None:
    def loss(weights: Any, x: Any) -> Any:
        for w in weights:
            x = jnp.tanh(x @ w)
        x = jax.nn.relu(x).astype(dtype)
        return jnp.mean(jnp.arctan2(x, jnp.asarray(-0.0, dtype))).astype(jnp.float32)  # of 0: pi, and not 0

    args = arguments(4)
    fn = rj.checkpoint(loss, "92%", executor="full", work_limit=WORK)
    got, wanted = (jitted(f)(*args) for f in (lambda *xs: jax.value_and_grad(fn)(*xs)[0], loss))
    assert fn.report.executor == "full"
    assert np.allclose(got, wanted, rtol=1e-2)
    tiny = float(jnp.finfo(dtype).tiny)
    assert [full.keeps_in_sums(x, dtype) for x in (0.0, 1.5, -tiny, float("-inf"))] == [True] * 4
    assert [full.keeps_in_sums(x, dtype) for x in (-0.0, tiny / 2, float("nan"))] == [False] * 3


def test_aux_is_no_part_of_the_gradients() -> None:
    def with_aux(weights: Any, x: Any) -> Any:
        return mlp(weights, x), {"norm": (weights[0] ** 2).sum(), "count": (x > 0).sum()}

    fn = rj.checkpoint(with_aux, "90%", executor="full", has_aux=True, work_limit=WORK)
    got = jitted(jax.value_and_grad(fn, has_aux=True))(*arguments(4))
    assert same(got, jax.jit(jax.value_and_grad(with_aux, has_aux=True))(*arguments(4)))
    with pytest.raises(remat.UsageError, match="has no gradients of aux"):
        jax.grad(lambda w, x: fn(w, x)[0] + fn(w, x)[1]["norm"])(*arguments(4))


def test_a_block_and_scans_within_run_in_full_order() -> None:
    def block(weights: Any, x: Any) -> Any:
        def body(x: Any, w: Any) -> Any:
            return jnp.tanh(x @ w), None

        return jax.lax.scan(body, mlp(weights, x) + x, jnp.stack(weights))[0]

    fn = rj.policy(block, "90%", executor="full", work_limit=WORK)
    weights, x = arguments(2)

    def loss(f: Any) -> Any:
        return lambda w: (f(w, x) ** 2).mean()

    got = jitted(jax.value_and_grad(loss(fn)))(weights)
    assert same(got, jax.value_and_grad(loss(block))(weights))
    assert fn.report.executor == "full"
    assert fn.report.compiled <= fn.report.budget


def test_a_budget_that_no_saved_names_keep_gets_full_order() -> None:
    """Skips cross everywhere, and what they are made of is dear."""

    def skips(weights: Any, x: Any) -> Any:
        kept = []
        for w in weights:
            x = jnp.tanh(x @ w)
            kept.append(x)
        for w, skip in zip(weights[::-1], kept[::-1], strict=True):
            x = jnp.tanh(x @ w + skip)
        return jnp.mean(x**2)

    args = arguments(4)
    fn = rj.checkpoint(skips, "80%", work_limit=3000)
    report = fn.plan(*args)
    assert (report.executor, report.compiled <= report.budget) == ("full", True)
    assert same(jitted(jax.value_and_grad(fn))(*args), jax.jit(jax.value_and_grad(skips))(*args))


def test_convolutions_that_read_concatenations_and_pooling() -> None:
    def loss(kernels: Any, x: Any) -> Any:
        def conv(x: Any, kernel: Any) -> Any:
            spec = ("NHWC", "HWIO", "NHWC")
            made = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=spec)
            return jax.nn.relu(made)

        skip = conv(conv(x, kernels[0]), kernels[1])
        x = jax.lax.reduce_window(skip, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        x = conv(x, kernels[1]).repeat(2, 1).repeat(2, 2)
        return (conv(jnp.concatenate([skip, x], -1), kernels[2]) ** 2).mean()

    r = np.random.RandomState(0)
    kernels = [jnp.asarray(r.randn(3, 3, *io) / 9) for io in ((4, 8), (8, 8), (16, 4))]
    x = jnp.asarray(r.randn(4, 16, 16, 4))
    fn = rj.checkpoint(loss, "60%", executor="full", work_limit=1000)
    report = fn.plan(kernels, x)
    assert abs(report.predicted - report.compiled) < 0.03 * report.temporary
    assert same(jitted(jax.value_and_grad(fn))(kernels, x), jax.jit(jax.value_and_grad(loss))(kernels, x))


@pytest.mark.parametrize("window", [(1, 2, 4, 1)])
def test_gradients_of_pooling_without_a_scatter(window: Any) -> None:
    r = np.random.RandomState(0)
    x = jnp.asarray(r.randint(3, size=(4, 8, 8, 3)), jnp.float32)  # with ties

    def pooled(x: Any) -> Any:
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")

    got, pull = jax.vjp(pooled, x)
    ct = jnp.asarray(r.randn(*got.shape), jnp.float32)
    assert np.array_equal(pull(ct)[0], full.unpooled(ct, x, window))


@newer(reason="older XLA was not looked at")
def test_dots_of_sixteen_bits_take_memory_for_thirty_two_on_a_cpu() -> None:
    weights, x = jax.tree_util.tree_map(lambda a: a.astype(jnp.bfloat16), arguments(4))
    report = rj.checkpoint(mlp, "70%", executor="full", work_limit=WORK).plan(weights, x)
    assert abs(report.predicted - report.compiled) < 0.15 * report.temporary


def recurrent(weights: Any, x: Any) -> Any:
    """Layers of h = tanh(x w + h u) by `scan`."""
    for w, u in weights:
        h = jnp.zeros((x.shape[1], u.shape[0]))
        _, x = jax.lax.scan(lambda h, row, u=u: (jnp.tanh(row + h @ u),) * 2, h, x @ w)
    return (x**2).mean()


@newer(reason="older XLA takes more for the plain step")
@pytest.mark.parametrize(("executor", "budget"), [("names", "86%"), ("full", "60%")])
def test_buffers_of_scans_are_there_from_the_beginning_but_in_full_order(executor: Any, budget: str) -> None:
    r = np.random.RandomState(0)
    weights = [tuple(jnp.asarray(r.randn(2, 64, 64) / 8)) for _ in range(2)]
    args = weights, jnp.asarray(r.randn(40, 16, 64))
    fn = rj.checkpoint(recurrent, budget, executor=executor, work_limit=WORK)
    report = fn.plan(*args)
    assert report.executor == executor
    assert abs(report.predicted - report.compiled) < 0.04 * report.temporary
    assert same(jitted(jax.value_and_grad(fn))(*args), jitted(jax.value_and_grad(recurrent))(*args))


def test_a_checkpoint_in_a_small_loop_compiles_on_a_cpu() -> None:
    """XLA ended the process."""
    body = jax.checkpoint(lambda c, row: (row * jnp.tanh(c) + jnp.sin(row),) * 2)
    loss = lambda rows: jax.lax.scan(body, jnp.zeros(()), rows)[1].sum()  # noqa: E731
    rows = jnp.arange(64.0)
    assert same(jitted(jax.grad(loss))(rows), jax.jit(jax.grad(loss))(rows))


def test_constants_in_full_order_wait_bit_for_bit() -> None:
    """XLA fills arrays with them when the program begins."""
    for number in (0.0, 2.5, -0.0, 1e-310, 3, 0.5 - 1e-3j, 0j, complex(-0.0, 1)):
        jaxpr = jax.make_jaxpr(lambda n=number: jnp.full((3,), n))()
        env: dict[Any, Any] = {}
        zero = jax.jit(lambda: jnp.zeros(()))()
        for op in full.primal_of_jaxpr(jaxpr).ops:
            args = [v.val if isinstance(v, Literal) else env[v] for v in op.ins]
            env.update(zip(op.outs, full.filled(op, args, zero), strict=True))
        made = np.asarray(list(env.values())[-1])
        assert made.tobytes() == np.asarray(jnp.full((3,), number)).tobytes()


def test_loops_of_full_order_are_those_of_scan_bit_for_bit() -> None:
    r = np.random.RandomState(0)

    def scanned(u: Any, h: Any, rows: Any, reverse: bool) -> Any:
        def body(h: Any, row: Any) -> Any:
            h = jnp.tanh(h @ u + row)
            return h, (h, h > 0, jnp.argmax(h), jnp.exp(1j * h))

        return jax.lax.scan(body, h, rows, reverse=reverse)

    args = [jnp.asarray(r.randn(*shape)) for shape in ((8, 8), (8,), (5, 8))]
    for reverse in (False, True):
        jaxpr = jax.make_jaxpr(lambda *args, way=reverse: scanned(*args, way))(*args)
        (op,) = full.primal_of_jaxpr(jaxpr).ops
        loop = jax.jit(lambda *args, op=op: full.looped(op, args, jnp.zeros(())))
        pairs = zip(jax.jit(lambda *args, op=op: op.run(args))(*args), loop(*args), strict=True)
        assert all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in pairs)
        tangents = [2 * x for x in args]
        wanted = jax.jvp(lambda *args, way=reverse: scanned(*args, way), args, tangents)
        assert same(jax.jvp(loop, args, tangents)[1][0], wanted[1][0])
        rows = jax.vmap(loop, (None, None, 0))(*args[:2], jnp.stack([args[2], -args[2]]))
        assert same(rows[0][0], wanted[0][0])


def in_full_order(layers: int, loss: Any = mlp) -> tuple[Any, Any, Any]:
    """Arrays of a step, its graph, and from an order to the step of the arrays."""
    args = arguments(layers)
    call = api.Call.of(args)
    primal, _ = api.traced(loss, call)
    diff = api.differentiated(call, (0,), len(args))

    def step(order: full.FullOrder) -> Any:
        run = full.ordered(primal, order, diff, [0])
        return api.gradient_step(lambda *leaves: run(leaves), diff)

    return call.arrays, Joint(primal, call.avals, diff).in_full_order(), step


def test_a_scan_without_an_iteration_is_left_as_it_is() -> None:
    """A loop of full order would take slices that are not there."""

    def loss(weights: Any, x: Any) -> Any:
        x, rows = jax.lax.scan(lambda c, w: (jnp.tanh(c @ w), c.sum(0)), x, jnp.stack(weights)[:0])
        return mlp(weights, x) + rows.sum()

    arrays, joint, step = in_full_order(2, loss)
    value, grads = jitted(step(full.FullOrder(joint, range(joint.graph.num_ops))))(*arrays)
    assert same((value[0], list(grads)), jax.value_and_grad(loss)(*arguments(2)))


def test_a_loss_that_a_plan_makes_again_is_there_for_the_forward_half() -> None:
    arrays, joint, step = in_full_order(2)
    loss = joint.graph.producers[next(iter(joint.made_for(joint.results)))]
    order = full.FullOrder(joint, [*range(joint.graph.num_ops), loss])
    assert order.live == list(range(joint.graph.num_ops))
    value, grads = step(order)(*arrays)
    assert same((value[0], list(grads)), jax.value_and_grad(mlp)(*arguments(2)))


def test_results_of_the_program_hold_what_is_no_larger_and_dead_by_then() -> None:
    sizes = [10, 10, 30, 10]
    ops = [{"name": f"op{i}", "duration": 1, "inputs": [i], "outputs": [i + 1]} for i in range(3)]
    graph = remat.Graph([{"bytes": b} for b in sizes], ops, [0], [3])
    # Value 1 lies where value 3 will be, value 2 is larger than that.
    found = buffers(graph, [0, 1, 2])
    assert found.temporary_size == 30
    assert (found.block[:3], found.empty[:3]) == ([0, 30, 30], [0, 0, 0])
    # A result that is filled with zeros when the program begins holds nothing else.
    assert buffers(graph, [0, 1, 2], early={3}).temporary_size == 40
    ops[2]["inputs"] = [1, 2]
    graph = remat.Graph([{"bytes": b} for b in sizes], ops, [0], [3])
    found = buffers(graph, [0, 1, 2])
    assert found.temporary_size == 40
    assert (found.block[:3], found.empty[:3]) == ([10, 40, 40], [10, 10, 0])


def test_stretches_end_after_dots_where_second_runs_begin_and_between_the_halves() -> None:
    steps, live, split = [0, 1, 2, 3, 0, 1, 4, 1, 5], [0, 1, 2, 3, 4, 5, 6, 7, 8], 4
    parts = lambda library: list(full.stretches(steps, live, split, library))  # noqa: E731
    assert parts(None) == [[i] for i in live]
    assert parts(set()) == [[0, 1, 2, 3], [4, 5, 6], [7, 8]]
    assert parts({0, 1}) == [[0, 1], [2, 3], [4, 5], [6], [7], [8]]
    assert list(full.stretches([0, 1, 0, 0], [1, 2, 3], 4, set())) == [[1, 2], [3]]


def test_a_coarse_order_has_fewer_barriers_and_the_same_results() -> None:
    arrays, joint, step = in_full_order(4)
    forward = [n for n, op in joint.stored.items() if op not in set(joint.backward)]
    rest = [n for n in range(joint.graph.num_ops) if n not in forward]
    steps = [*forward, *(n for n in forward if joint.graph.recomputable[n]), *rest]
    counts, results = [], []
    for coarse in (False, True):
        run = step(full.FullOrder(joint, steps, coarse))
        counts.append(str(jax.make_jaxpr(run)(*arrays)).count("optimization_barrier"))
        results.append(jitted(run)(*arrays))
    assert counts[1] < counts[0]
    assert same(*results)
