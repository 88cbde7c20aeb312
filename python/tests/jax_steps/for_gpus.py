"""Compiles for GPUs that are not there. test_jax.py runs it where the wheels of docs/jax.md are."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
import remat
import remat.jax as rj
from remat.jax.devices import DEVICES

GPUS = [device for device in DEVICES.values() if device.platform == "cuda"]


def loss(weights: Any, x: Any) -> Any:
    for w in weights:
        x = jnp.tanh(x @ w)
    return (x**2).mean()


def shapes(layers: int = 8, batch: int = 4096) -> Any:
    weights = [jax.ShapeDtypeStruct((256, 256), jnp.float32)] * layers
    return weights, jax.ShapeDtypeStruct((batch, 256), jnp.float32)


@pytest.mark.parametrize("device", GPUS, ids=lambda d: d.name)
def test_every_device_compiles(device: Any) -> None:
    target = rj.compile_for(device.name)
    assert target.sharding.mesh.devices.item().device_kind == device.kind
    assert target.compile(loss, *shapes(1, 64)).memory_analysis().argument_size_in_bytes >= 4 * 256 * 256


@pytest.mark.parametrize("executor", ["names", "full"])
def test_the_budget_is_kept_by_what_xla_says_for_the_device(executor: str) -> None:
    planned = rj.checkpoint(loss, "75%", device="h100", work_limit=1000, executor=executor)
    report = planned.plan(*shapes())
    assert (report.device, report.executor) == ("h100", executor)
    assert report.compiled <= report.budget < report.plain
    sizes = rj.compile_for("h100").compile(jax.value_and_grad(planned), *shapes()).memory_analysis()
    got = sizes.temp_size_in_bytes + sizes.argument_size_in_bytes + sizes.output_size_in_bytes
    assert got == report.compiled


def test_a_budget_that_names_keep_with_a_host_only() -> None:
    args = shapes(12)
    with pytest.raises(remat.NoPlanError) as none:
        rj.checkpoint(loss, "20%", device="h100", work_limit=300, executor="names").plan(*args)
    host = remat.Host(1e12, 1e12)
    planned = rj.checkpoint(
        loss, none.value.smallest_known - 1, device="h100", work_limit=3000, host=host, executor="names"
    )
    report = planned.plan(*args)
    assert report.compiled <= report.budget < none.value.smallest_known
    assert report.host == sum(name.bytes for name in planned.names if name.host) > 0
    assert "host" in str(report)
    step = jax.value_and_grad(planned)
    sizes = rj.compile_for("h100").compile(step, *args, offload=True).memory_analysis()
    assert sizes.host_temp_size_in_bytes == report.host
    assert report.compiler_options == {"xla_disable_hlo_passes": "latency-hiding-scheduler"}


def test_copies_over_a_slow_link_are_not_taken_where_full_order_is_faster() -> None:
    args = shapes(12)
    with pytest.raises(remat.NoPlanError) as none:
        rj.checkpoint(loss, "20%", device="h100", work_limit=300, executor="names").plan(*args)
    budget = none.value.smallest_known - 1
    slow = remat.Host(1e9, 1e9)
    alone = rj.checkpoint(loss, budget, device="h100", work_limit=3000, host=slow, executor="names")
    report = rj.checkpoint(loss, budget, device="h100", work_limit=3000, host=slow).plan(*args)
    assert report.executor == "full"
    assert report.host == 0
    assert report.compiled <= report.budget
    copying = alone.plan(*args)
    assert copying.host > 0
    assert report.overhead < copying.overhead


def test_two_gpus_with_half_of_a_batch_each() -> None:
    two = rj.compile_for("h100", 2)
    mesh = jax.sharding.Mesh(two.devices, ("batch",))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    weights, x = shapes(4)
    half = jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=spread)
    alone = rj.checkpoint(loss, "75%", device="h100", work_limit=300).plan(weights, x)
    planned = rj.checkpoint(loss, "75%", device=two, work_limit=300)
    report = planned.plan(weights, half)
    assert report.plain < alone.plain
    assert report.compiled <= report.budget < report.plain
    sizes = two.compile(jax.value_and_grad(planned), weights, half).memory_analysis()
    got = sizes.temp_size_in_bytes + sizes.argument_size_in_bytes + sizes.output_size_in_bytes
    assert got == report.compiled
    with pytest.raises(remat.UsageError, match="count is 0: it has to be 1, or more for GPUs"):
        rj.compile_for("h100", 0)


def test_a_block_and_a_budget_that_nothing_keeps() -> None:
    def body(x: Any, w: Any) -> Any:
        return jnp.tanh(jnp.sin(x @ w) @ w), None

    block = rj.policy(body, "80%", iterations=4, device="l4", work_limit=300)
    carry, w = jax.ShapeDtypeStruct((4096, 64), jnp.float32), jax.ShapeDtypeStruct((64, 64), jnp.float32)
    report = block.plan(carry, w)
    assert report.compiled <= report.budget
    with pytest.raises(remat.NoPlanError, match="least was"):
        rj.checkpoint(loss, "20%", device="h100", work_limit=300).plan(*shapes())
