"""Steps whose arguments are spread over four devices of the host: sizes are those of one of them.
test_jax.py runs it in a process of its own."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import remat
import remat.jax as rj
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from remat.jax.api import joint_of
from steps import double, jitted, same  # noqa: F401

WIDTH, HEADS, LENGTH = 32, 4, 32
#: How weights are spread, by name: data parallel, tensor parallel, fully sharded data parallel.
WAYS: dict[str, Any] = {
    "data": {},
    "tensor": {"up": (None, "d"), "down": ("d", None), "qkv": (None, "d"), "out": ("d", None)},
    "full": {"up": ("d",), "down": ("d",), "qkv": ("d",), "out": ("d",)},
}


def mesh(kind: AxisType = AxisType.Auto) -> Any:
    return jax.make_mesh((4,), ("d",), axis_types=(kind,))


def spread(*spec: Any, kind: AxisType = AxisType.Auto) -> NamedSharding:
    return NamedSharding(mesh(kind), PartitionSpec(*spec))


def mlp_block(p: Any, x: Any) -> Any:
    return x + jnp.tanh(x @ p["up"]) @ p["down"]


def gpt_block(p: Any, x: Any) -> Any:
    batch, length, width = x.shape
    q, k, v = (
        (x @ p["qkv"]).reshape(batch, length, HEADS, 3, width // HEADS).transpose(3, 0, 2, 1, 4)
    )
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


@pytest.mark.parametrize("executor", ["names", "full"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("model", ["mlp", "gpt"])
def test_the_budget_of_one_device_is_kept(model: str, way: str, executor: str) -> None:
    loss, args = step(model, way)
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


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    for model in ("mlp", "gpt"):
        for way in WAYS:
            for executor in ("names", "full"):
                for share in ("85%", "70%", "60%"):
                    loss, args = step(model, way)
                    fn = rj.checkpoint(loss, share, executor=executor, work_limit=1000)
                    try:
                        r = fn.plan(*args)
                    except remat.RematError as e:
                        print(model, way, executor, share, e, flush=True)
                        continue
                    print(model, way, executor, share, r.executor, r.plain, r.budget, "predicted", r.predicted, "compiled", r.compiled, f"{100*(r.predicted/r.compiled-1):+.1f}%", "compiles", r.compiles, flush=True)
