"""Steps whose arguments are spread over four devices of the host: sizes are those of one of them.
test_jax.py runs it in a process of its own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import remat.jax as rj
from jax.sharding import NamedSharding, PartitionSpec
from remat.jax.api import joint_of
from steps import double, jitted, newer, same  # noqa: F401

WIDTH, HEADS, LENGTH = 32, 4, 32
#: How weights are spread, by name: data parallel, tensor parallel, fully sharded data parallel.
WAYS: dict[str, Any] = {
    "data": {},
    "tensor": {"up": (None, "d"), "down": ("d", None), "qkv": (None, "d"), "out": ("d", None)},
    "full": {"up": ("d",), "down": ("d",), "qkv": ("d",), "out": ("d",)},
}


def spread(*spec: Any) -> NamedSharding:
    return NamedSharding(jax.sharding.Mesh(np.array(jax.devices()), ("d",)), PartitionSpec(*spec))


def mlp_block(p: Any, x: Any) -> Any:
    return x + jnp.tanh(x @ p["up"]) @ p["down"]


def gpt_block(p: Any, x: Any) -> Any:
    batch, length, width = x.shape
    q, k, v = (x @ p["qkv"]).reshape(batch, length, HEADS, 3, width // HEADS).transpose(3, 0, 2, 1, 4)
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), q @ k.swapaxes(-1, -2), -1e9)
    x = x + (jax.nn.softmax(scores, -1) @ v).swapaxes(1, 2).reshape(x.shape) @ p["out"]
    return mlp_block(p, x)


def step(model: str, way: str, layers: int = 6) -> Any:
    """A loss and its arguments, spread."""
    r = np.random.RandomState(0)
    specs = WAYS[way]
    names = {"up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    if model == "gpt":
        names |= {"qkv": (WIDTH, 3 * WIDTH), "out": (WIDTH, WIDTH)}

    def weight(name: str) -> Any:
        x = jnp.asarray(r.randn(*names[name]) / names[name][0] ** 0.5)
        return jax.device_put(x, spread(*specs.get(name, ())))

    weights = [{name: weight(name) for name in names} for _ in range(layers)]
    shape = (16, LENGTH, WIDTH) if model == "gpt" else (1024, WIDTH)
    x = jax.device_put(jnp.asarray(r.randn(*shape)), spread(*(() if way == "tensor" else ("d",))))
    block = {"gpt": gpt_block, "mlp": mlp_block}[model]

    def loss(weights: Any, x: Any) -> Any:
        for p in weights:
            if way == "full":
                p = {name: jax.lax.with_sharding_constraint(w, spread(*specs[name])) for name, w in p.items()}
            x = block(p, x)
        return jnp.mean(x**2)

    return loss, (weights, x)


@pytest.mark.parametrize(
    ("model", "way", "executor"),
    [
        ("mlp", "data", "full"),
        ("mlp", "tensor", "names"),
        ("mlp", "full", "full"),
        ("gpt", "data", "names"),
        pytest.param("gpt", "tensor", "full", marks=pytest.mark.long),
        pytest.param("gpt", "full", "names", marks=pytest.mark.long),
    ],
)
def test_the_budget_of_one_device_is_kept(model: str, way: str, executor: str) -> None:
    loss, args = step(model, way, 6 if model == "mlp" else 3)
    fn = rj.checkpoint(loss, "70%", executor=executor, work_limit=1000)
    report = fn.plan(*args)
    compiled = jitted(jax.value_and_grad(fn)).lower(*args).compile()
    sizes = compiled.memory_analysis()
    got = sizes.temp_size_in_bytes + sizes.argument_size_in_bytes + sizes.output_size_in_bytes
    assert (report.executor, report.compiled) == (executor, got)
    assert got <= report.budget < report.plain
    assert abs(report.predicted - got) <= 0.05 * got
    assert same(compiled(*args), jax.jit(jax.value_and_grad(loss))(*args))
    with jax.disable_jit():
        made, wanted = (jax.tree_util.tree_leaves(jax.value_and_grad(f)(*args)) for f in (fn, loss))
        assert all(np.array_equal(a, b) for a, b in zip(made, wanted, strict=True))


@pytest.mark.parametrize("way", WAYS)
def test_values_count_as_what_one_device_holds(way: str) -> None:
    loss, args = step("mlp", way, 2)
    on_all, on_one = (joint_of(loss, given, 0, None).graph for given in (jax.device_get(args), args))
    hidden = 8 * 1024 * 4 * WIDTH
    assert max(on_all.bytes) == hidden
    assert max(on_one.bytes) == hidden // 4
    # A device of data parallel steps has all weights and a part of the batch.
    assert on_one.bytes[0] == 8 * 4 * WIDTH * WIDTH // (1 if way == "data" else 4)
    assert on_one.base_duration < on_all.base_duration / 2


def test_gradients_that_devices_sum_are_in_memory_in_parts_too() -> None:
    loss, args = step("mlp", "data", 2)
    joint = joint_of(loss, args, 0, None)
    (summed,) = [op for op in joint.graph.ops if op.kind == "psum"]
    assert sorted(joint.graph.bytes[v] for v in summed.outputs) == 4 * [8 * 4 * WIDTH * WIDTH]
    assert not [op for op in joint.in_full_order().graph.ops if op.kind == "psum"]


def scan_step() -> tuple[Any, Any, Any]:
    """A loss, its weights and its batch."""
    (weights, x) = step("gpt", "data", 4)[1]
    stacked = jax.tree_util.tree_map(lambda *each: jnp.stack(each), *weights)

    def scanned(stacked: Any, x: Any) -> Any:
        return jnp.mean(jax.lax.scan(lambda x, p: (gpt_block(p, x), None), x, stacked)[0] ** 2)

    return scanned, stacked, x


def test_scans_count_as_what_one_device_holds() -> None:
    scanned, stacked, x = scan_step()
    whole, part = (
        joint_of(scanned, given, 0, None).graph for given in (jax.device_get((stacked, x)), (stacked, x))
    )
    peaks = [max(op.workspace for op in graph.ops if op.kind == "scan") for graph in (whole, part)]
    assert 0 < peaks[1] < peaks[0] / 2


@pytest.mark.long
def test_the_budget_of_one_device_is_kept_by_a_scan() -> None:
    scanned, stacked, x = scan_step()
    fn = rj.checkpoint(scanned, "70%", work_limit=300)
    report = fn.plan(stacked, x)
    assert report.compiled <= report.budget
    assert report.overhead < 0.5
    made, wanted = (
        jax.tree_util.tree_leaves(jitted(jax.value_and_grad(f))(stacked, x)) for f in (fn, scanned)
    )
    assert all(abs(a - b).max() <= 1e-12 * abs(b).max() for a, b in zip(made, wanted, strict=True))


def test_a_trace_gets_the_last_plan_for_its_shapes() -> None:
    loss, args = step("mlp", "data")
    fn = rj.checkpoint(loss, "70%", work_limit=300)
    spread_out = fn.plan(*args)
    assert fn.plan(*jax.device_get(args)).plain > 2 * spread_out.plain
    assert fn.plan(*args) is spread_out
    jax.eval_shape(fn, *args)  # shapes only
    jax.make_jaxpr(fn)(*args)
    assert fn.report is spread_out


@newer(reason="older JAX has no such types, or others")
def test_types_that_say_how_values_are_spread() -> None:
    loss, (weights, x) = step("mlp", "data")
    where = jax.make_mesh((4,), ("d",), axis_types=(jax.sharding.AxisType.Explicit,))
    with jax.set_mesh(where):
        args = jax.tree_util.tree_map(
            lambda a: jax.device_put(jax.device_get(a), NamedSharding(where, a.sharding.spec)), (weights, x)
        )
        fn = rj.checkpoint(loss, "70%", work_limit=300)
        report = fn.plan(*args)
        assert report.compiled <= report.budget < report.plain
        assert same(jitted(jax.value_and_grad(fn))(*args), jax.jit(jax.value_and_grad(loss))(*args))
