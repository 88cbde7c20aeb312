"""Devices that are not there: descriptions, rooflines, and errors of one line. Needs no wheels."""

from __future__ import annotations

import functools
import re
from types import SimpleNamespace
from typing import Any

import pytest

jax = pytest.importorskip("jax", reason="jax is not installed")
import jax.numpy as jnp  # noqa: E402
import remat  # noqa: E402
import remat.jax as rj  # noqa: E402
from remat.jax import costs, cuts, devices, regions  # noqa: E402
from remat.jax.api import joint_of  # noqa: E402


def loss(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w).sum()


def shapes(width: int = 512, dtype: Any = jnp.float32) -> Any:
    return jax.ShapeDtypeStruct((width, width), dtype), jax.ShapeDtypeStruct((width, width), dtype)


@pytest.mark.parametrize("device", [d for d in devices.DEVICES.values() if d.chip], ids=lambda d: d.name)
def test_descriptions_have_what_xla_asks_for(device: devices.Device) -> None:
    text = devices.target_config(device)
    assert text.count("{") == text.count("}") == 4
    fields = dict(re.findall(r"(\w+): (\S+)", text))
    assert int(fields["memory_bandwidth"]) == device.bandwidth > 1e11
    assert int(fields["device_memory_size"]) == device.memory >= 24 << 30
    assert int(fields["shared_memory_per_block_optin"]) < int(fields["shared_memory_per_core"])
    assert f'device_description_str: "{device.kind}"' in text
    # Two flops for each unit of float32 and cycle: what the data sheets give for all but matrices.
    chip = device.chip
    assert chip is not None
    assert device.flops == pytest.approx(2e9 * chip.cores * chip.lanes * chip.clock, rel=0.02)


def test_durations_are_rooflines_of_the_device() -> None:
    def longest(device: str, dtype: Any) -> int:
        graph = rj.capture(loss, *shapes(4096, dtype), device=device)
        return max(op.duration for op in graph.ops if op.kind == "dot_general")

    assert longest("h100", jnp.float32) == pytest.approx(2e9 * 4096**3 / 494e12, rel=0.01)
    assert longest("h100", jnp.bfloat16) == pytest.approx(2e9 * 4096**3 / 989e12, rel=0.01)
    assert longest("l4", jnp.float32) > 8 * longest("h100", jnp.float32)


def test_on_gpus_rows_of_norms_and_softmax_are_read_once() -> None:
    def norm(x: Any) -> Any:
        x = x - x.mean(-1, keepdims=True)
        return x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-5)

    def attention(w: Any, x: Any) -> Any:
        return (jax.nn.softmax(norm(x) @ w) @ x).sum()

    def sums(loss: Any, device: str | None) -> int:
        graph = rj.capture(loss, *shapes(), device=device)
        # A maximum is one to the graph, though it runs with a rule of Remat's own (`regions.choose`).
        assert all(op.kind != "custom_jvp_call" for op in graph.ops)
        return sum(op.kind in ("reduce_sum", "reduce_max") for op in graph.ops)

    assert sums(attention, "h100") == 1  # the loss
    assert sums(attention, None) >= 5
    # Sums that something else reads too are stored, and so are those of columns.
    spread = lambda w, x: jnp.linalg.norm(x @ w, axis=-1).sum()  # noqa: E731
    columns = lambda w, x: jnp.tanh(x @ w - (x @ w).mean(0)).sum()  # noqa: E731
    assert sums(spread, "h100") == sums(spread, None)
    assert sums(columns, "h100") == sums(columns, None) >= 2


def test_on_gpus_regions_end_only_where_something_is_stored_again_between() -> None:
    primal = regions.primal_of(
        lambda *ws: jnp.sum(functools.reduce(lambda x, w: jnp.tanh(x @ w), ws)), [shapes()[0]] * 6
    )
    dots = [primal.number[op.outs[0]] for op in primal.ops if op.kind == "dot_general"]
    everywhere = cuts.Cuts(primal, dots).places()
    assert len(everywhere) == len(dots) + 1
    tanhs = [primal.number[op.outs[0]] for op in primal.ops if op.kind == "tanh"]
    assert cuts.Cuts(primal, dots, again=[]).places() == [len(primal.ops)]
    # What is read on both sides would be summed in two kernels: here nothing is, and the first place does.
    some = cuts.Cuts(primal, dots, again=[tanhs[1], tanhs[3]])
    assert some.places() == [everywhere[2], everywhere[4], len(primal.ops)]
    assert cuts.Cuts(primal, dots, once=[4], again=[]).places() == [4, 5, len(primal.ops)]


def test_scans_cost_what_their_bodies_store_and_barriers_cost_nothing() -> None:
    figures = devices.DEVICES["h100"]

    def seconds(body: Any) -> float:
        jaxpr = jax.make_jaxpr(body)(*shapes()).jaxpr
        return costs.body_seconds(figures, jaxpr)

    size = 512 * 512 * 4
    dot = lambda w, x: w @ x  # noqa: E731
    assert seconds(dot) == pytest.approx(3 * size / figures.bandwidth)
    assert seconds(lambda w, x: jax.lax.optimization_barrier(w @ x)) == seconds(dot)
    # An operand that would be fused elsewhere is stored for the dot.
    operand = seconds(lambda w, x: w @ jnp.tanh(x)) - seconds(dot)
    assert operand == pytest.approx(2 * size / figures.bandwidth, rel=0.05)


def test_the_device_that_is_there_has_the_figures_of_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    assert devices.here().name == "cpu"
    for platform, kind, name in [
        ("gpu", "NVIDIA H100 80GB HBM3", "h100"),
        ("gpu", "NVIDIA H100 PCIe", "h100"),
        ("gpu", "NVIDIA H200", "h200"),
        ("gpu", "NVIDIA A100-SXM4-40GB", "a100"),
        ("gpu", "NVIDIA L4", "l4"),
        ("gpu", "NVIDIA L40", "a100"),  # not known
        ("gpu", "NVIDIA GeForce RTX 4090", "rtx4090"),
        ("tpu", "TPU v5 lite", "tpu_v5e"),
    ]:
        monkeypatch.setattr(jax, "default_backend", lambda p=platform: p)
        monkeypatch.setattr(jax, "devices", lambda k=kind: [SimpleNamespace(device_kind=k)])
        assert devices.here().name == name
        assert devices.here().sharding is None


def test_devices_that_cannot_be_compiled_for_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(remat.UsageError, match="device 'h900' is not one of h100, h200, a100, l4, rtx4090"):
        rj.checkpoint(loss, "60%", device="h900")
    with pytest.raises(remat.UsageError, match="device is of type int: a name or what compile_for returns"):
        rj.capture(loss, *shapes(), device=3)
    monkeypatch.setattr(devices, "is_there", lambda module: False)
    devices.compiled_for.cache_clear()
    wheels = (
        r"compiling for l4: .*jax-cuda13-plugin==\S+ jax-cuda13-pjrt==\S+ .*nvidia-cuda-nvcc.*nvidia-nvvm"
    )
    for call in (lambda: rj.compile_for("l4"), lambda: rj.policy(loss, "60%", device="l4")):
        with pytest.raises(remat.UsageError, match=wheels) as raised:
            call()
        assert "\n" not in str(raised.value)
    with pytest.raises(remat.UsageError, match="libtpu"):
        rj.compile_for("tpu_v5e")


def test_errors_of_xla_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    for said, line in [
        ("INTERNAL: libdevice not found at ./libdevice.10.bc", "wheels are missing: pip install --no-deps"),
        ("UNAVAILABLE: No PTX compilation provider is available.\n - Has", "wheels are missing"),
        ("INVALID: no\nmore", "compiling for h100: INVALID: no$"),
    ]:

        def fails(fn: Any, said: str = said, **options: Any) -> Any:
            raise jax.errors.JaxRuntimeError(said)

        monkeypatch.setattr(jax, "jit", fails)
        with pytest.raises(remat.UsageError, match=line):
            devices.Target(devices.DEVICES["h100"], sharding).compile(loss, *shapes())


def test_what_xla_takes_beside_values_is_that_of_the_platform() -> None:
    def pooled(kernel: Any, x: Any) -> Any:
        y = jax.lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID").sum()

    args = jax.ShapeDtypeStruct((3, 3, 8, 8), jnp.float32), jax.ShapeDtypeStruct((4, 32, 32, 8), jnp.float32)
    on_cpu, on_gpu = (rj.capture(pooled, *args, device=device) for device in (None, "h100"))
    assert [op.kind for op in on_cpu.ops if not op.inputs] == ["iota"]
    assert [op.kind for op in on_gpu.ops if not op.inputs] == ["kernel"]
    assert (
        max(op.workspace for op in on_gpu.ops) == 4 * 3 * 3 * 8 * 8 < max(op.workspace for op in on_cpu.ops)
    )


@pytest.mark.parametrize(
    ("rows", "columns", "length", "parts"),
    [
        (1024, 256, 256, 1),
        (1024, 256, 512, 4),
        (256, 256, 4096, 16),
        (1024, 1024, 4096, 2),
        (128, 64, 512, 16),
    ],
)
def test_dots_with_few_tiles_are_sums_of_partial_results(
    rows: int, columns: int, length: int, parts: int
) -> None:
    shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((rows, length), (length, columns))]
    graph = rj.capture(lambda a, b: (a @ b).sum(), *shapes, device="h100")
    dots = [op.workspace for op in graph.ops if op.kind == "dot_general" and op.phase == "forward"]
    assert dots == [0 if parts == 1 else 4 * parts * rows * columns]


def test_equal_results_are_one_value_and_saved_under_all_their_names() -> None:
    def twice(w: Any, x: Any) -> Any:
        for _ in range(6):
            y, z = jnp.sort(x, 0), jnp.sort(x, 0)
            x = jnp.tanh((y * z) @ w)
        return (x**2).mean()

    joint = joint_of(twice, shapes(64), 0, None)
    sorts = [op for op in joint.graph.ops if op.kind == "sort" and op.phase == "forward"]
    assert len(sorts) == 6
    assert [len(joint.numbers([sort.outputs[0]])) for sort in sorts] == [2] * 6
