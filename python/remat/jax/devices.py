"""Devices that steps are planned and compiled for, there or not."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import numpy as np

from remat.errors import UsageError


def is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def flags_with(passes: dict[str, str], flags: str) -> str:
    """`XLA_FLAGS` with passes disabled beside those that are already; of one flag the last counts."""
    ((name, value),) = passes.items()
    words = [word for word in flags.split() if not word.startswith(f"--{name}=")]
    before = [word.partition("=")[2] for word in flags.split() if word.startswith(f"--{name}=")]
    return " ".join([*words, f"--{name}={','.join([*before[-1:], value])}"])


#: XLA on the CPU drops optimization barriers, and with them every checkpoint, unless it is told not to. Small
#: loops with barriers in them end the process where it hoists them.
COMPILER_OPTIONS: dict[str, Any] = {
    "xla_disable_hlo_passes": "cse_barrier_expander,small-while-loop-hoisting"
}
#: Before JAX 0.6.2 XLA takes that option from the environment only, when the first computation starts. It
#: then holds for all devices, and others need their barriers dropped.
BY_ENVIRONMENT = jax.__version_info__ < (0, 6, 2)
if BY_ENVIRONMENT:
    FLAGS, COMPILER_OPTIONS = flags_with(COMPILER_OPTIONS, os.environ.get("XLA_FLAGS", "")), {}
    if jax.config.jax_platforms == "cpu" or not any(map(is_there, ("jax_plugins", "libtpu"))):  # type: ignore[attr-defined]
        os.environ["XLA_FLAGS"] = FLAGS
#: XLA's scheduler for GPUs that runs copies beside kernels keeps more in memory than the copies free.
OFFLOAD_OPTIONS: dict[str, Any] = {"xla_disable_hlo_passes": "latency-hiding-scheduler"}
GPU_PLUGINS = ("jax_plugins.xla_cuda13", "jax_plugins.xla_cuda12")
KIB, GIB = 1 << 10, 1 << 30


@dataclass(frozen=True)
class Chip:
    """What XLA:GPU asks of a device: the limits of its compute capability, and its size."""

    capability: tuple[int, int]
    cores: int
    lanes: int
    """Units for float32 in each core."""
    shared: int
    """Bytes of shared memory in each core; a block may have a KiB less."""
    threads: int
    """In each core at most."""
    cache: int
    """Bytes of L2."""
    clock: float
    """GHz, the highest."""


@dataclass(frozen=True)
class Habits:
    """Where XLA takes memory that the ops do not show, by platform."""

    pooled_by_indices: bool = False
    """Max-pooling has the indices of all its elements from the beginning, and scatters by them."""
    transposed_operands: bool = False
    """Convolutions that have not the one layout that runs get transposed operands."""
    transposed_kernels: bool = False
    """Convolutions read transposed kernels; the forward half's are made when the program begins."""
    early_stacks: bool = False
    """Buffers of what scans stack are filled with zeros when the program begins."""
    copied_slices: bool = False
    """Bodies of scans read and write copies of the slices of an iteration."""
    wide_dots: bool = False
    """Dots of floats of 16 bits run in 32: operands and results are converted."""
    dense_groups: bool = False
    """Dots of groups are one dot of as many masked copies of the rows."""
    split_dots: bool = False
    """Dots with few tiles and a long sum are sums of partial results."""
    one_pass: bool = False
    """Sums and maxima of rows are made in the kernel that reads the rows once more: softmax, norms."""
    costly_cuts: bool = False
    """Kernels end where regions do: what would be fused across goes through memory."""
    views: frozenset[str] = frozenset()
    """Kinds of ops that take nothing here only, also where dots and convolutions read them."""


@dataclass(frozen=True)
class Device:
    """Figures for rooflines, per second, and what XLA needs to compile where the device is not."""

    name: str
    platform: str
    """As JAX calls it: "cpu", "cuda" or "tpu"."""
    kind: str
    """`jax.Device.device_kind`."""
    dots: Mapping[int, float]
    """Flops of dots and convolutions, by the bytes of an element; none: those of all else."""
    flops: float
    bandwidth: float
    """Bytes to and from the device's memory."""
    memory: int
    """Bytes; 0: not known."""
    chip: Chip | None = None
    link: float = 0
    """Bytes to the host, and as many back; 0: not known."""

    @property
    def habits(self) -> Habits:
        return HABITS[self.platform]

    def options(self, offload: bool = False) -> dict[str, Any]:
        """Options that XLA needs to keep checkpoints and, with `offload`, copies to the host."""
        if self.platform == "cpu":
            return COMPILER_OPTIONS
        return OFFLOAD_OPTIONS if offload and self.platform == "cuda" else {}

    def seconds(self, flops: float, width: int, dots: bool) -> float:
        return flops / (self.dots.get(width, self.flops) if dots else self.flops)


HABITS = {
    "cpu": Habits(
        pooled_by_indices=True, transposed_operands=True, early_stacks=True, wide_dots=True, dense_groups=True
    ),
    "cuda": Habits(
        transposed_kernels=True,
        copied_slices=True,
        split_dots=True,
        one_pass=True,
        costly_cuts=True,
        views=frozenset(["rev"]),
    ),
    "tpu": Habits(),
}
#: A few cores of a CPU.
CPU = Device("cpu", "cpu", "cpu", {}, 50e9, 10e9, 0)

# Rates are of dense matrices, accumulated in float32, at the highest clock: float32 is TF32, as XLA takes it
# by default. Limits of compute capabilities: CUDA C++ Programming Guide, table "Technical Specifications per
# Compute Capability". Sizes and rates, by device:
# H100 SXM5: "NVIDIA H100 Tensor Core GPU Architecture" and data sheet. H200 SXM: data sheet.
# A100 SXM4 80 GB: "NVIDIA A100 Tensor Core GPU Architecture" and data sheet.
# L4: data sheet, and "NVIDIA Ada GPU Architecture" for AD104. RTX 4090: the same, its appendix.
# TPU v5e: Google Cloud's page "TPU v5e"; float32 is one pass in bfloat16, as XLA takes it by default.
# Links to the host: the PCI Express x16 of the same data sheets, each way.
PCIE4, PCIE5 = 32e9, 64e9
HOPPER = Chip((9, 0), 132, 128, 228 * KIB, 2048, 50 << 20, 1.98)
DEVICES = {
    device.name: device
    for device in [
        Device("h100", "cuda", "NVIDIA H100 80GB HBM3", {2: 989e12, 4: 494e12, 8: 67e12}, 67e12, 3.35e12,
               80 * GIB, HOPPER, PCIE5),
        Device("h200", "cuda", "NVIDIA H200", {2: 989e12, 4: 494e12, 8: 67e12}, 67e12, 4.8e12, 141 * 10**9,
               HOPPER, PCIE5),
        Device("a100", "cuda", "NVIDIA A100-SXM4-80GB", {2: 312e12, 4: 156e12, 8: 19.5e12}, 19.5e12, 2.039e12,
               80 * GIB, Chip((8, 0), 108, 64, 164 * KIB, 2048, 40 << 20, 1.41), PCIE4),
        Device("l4", "cuda", "NVIDIA L4", {2: 121e12, 4: 60e12, 8: 0.47e12}, 30.3e12, 300e9, 24 * GIB,
               Chip((8, 9), 58, 128, 100 * KIB, 1536, 48 << 20, 2.04), PCIE4),
        Device("rtx4090", "cuda", "NVIDIA GeForce RTX 4090", {2: 165.2e12, 4: 82.6e12, 8: 1.29e12}, 82.6e12,
               1008e9, 24 * GIB, Chip((8, 9), 128, 128, 100 * KIB, 1536, 72 << 20, 2.52), PCIE4),
        Device("tpu_v5e", "tpu", "TPU v5 lite", {2: 197e12, 4: 197e12}, 197e12 / 32, 819e9, 16 * GIB),
    ]
}  # fmt: skip


def target_config(device: Device) -> str:
    """XLA's `GpuTargetConfigProto` as text."""
    chip = device.chip
    assert chip is not None
    major, minor = chip.capability
    # Hopper's own instructions, which XLA takes where they are.
    feature = "ACCELERATED_FEATURES" if major == 9 else "NONE"
    return f"""
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: {48 * KIB}
  shared_memory_per_core: {chip.shared}
  shared_memory_per_block_optin: {chip.shared - KIB}
  threads_per_core_limit: {chip.threads}
  core_count: {chip.cores}
  fpus_per_core: {chip.lanes}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {int(device.bandwidth)}
  l2_cache_size: {chip.cache}
  clock_rate_ghz: {chip.clock}
  device_memory_size: {device.memory}
  cuda_compute_capability {{ major: {major} minor: {minor} feature_extension: {feature} }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
runtime_version {{ major: 12 minor: 8 }}
device_description_str: "{device.kind}"
"""


@dataclass(frozen=True)
class Target:
    """A device that steps are compiled for, for `device=`; `compile_for` makes it."""

    device: Device
    sharding: Any = None
    """Where arrays are, for a device that is not there. None: where JAX puts them."""

    @property
    def name(self) -> str:
        return self.device.name

    @property
    def devices(self) -> list[Any]:
        """For `jax.sharding.Mesh`."""
        return jax.devices() if self.sharding is None else list(self.sharding.mesh.devices.flat)

    def compile(
        self, fn: Callable[..., Any], *args: Any, donate_argnums: Sequence[int] = (), offload: bool = False
    ) -> Any:
        """`fn` under `jax.jit` as a `jax.stages.Compiled`, which cannot run where the device is not.

        Args:
            args: pytrees of arrays or `jax.ShapeDtypeStruct`.
            donate_argnums: as for `jax.jit`.
            offload: with options for copies to the host.

        Raises:
            UsageError: XLA cannot compile it, or lacks a wheel.
        """
        options = self.device.options(offload)
        if BY_ENVIRONMENT and self.device.platform == "cpu" and not keeps_barriers():
            raise UsageError(
                "XLA drops checkpoints on this CPU: import remat.jax before JAX computes anything, or set "
                f'JAX_PLATFORMS=cpu and XLA_FLAGS="{FLAGS}"'
            )
        if self.sharding is None:
            return lowered(fn, args, donate_argnums).compile(compiler_options=options)

        def placed(x: Any) -> Any:
            weak = bool(getattr(getattr(x, "aval", x), "weak_type", False))
            return jax.ShapeDtypeStruct(
                x.shape, x.dtype, weak_type=weak, sharding=sharding_of(x) or self.sharding
            )

        try:
            there = jax.tree_util.tree_map(placed, args)
            return lowered(fn, there, donate_argnums).compile(compiler_options=options)
        except jax.errors.JaxRuntimeError as error:
            line = str(error).strip().partition("\n")[0]
            if "PTX compilation provider" in line or "libdevice" in line:
                line = missing(self.device)
            raise UsageError(f"compiling for {self.name}: {line}") from None


@cache
def keeps_barriers() -> bool:
    """Does XLA compile checkpoints as such here?"""
    kept = jax.jit(lambda x: jax.lax.optimization_barrier(x + 1) * 2).lower(1.0).compile()
    return "opt-barrier" in kept.as_text()


def sharding_of(x: Any) -> Any:
    """Of an array or `jax.ShapeDtypeStruct` that is spread over several devices; None for all others, and
    for what is traced, since JAX does not say then."""
    if isinstance(x, jax.core.Tracer):
        return None
    sharding = getattr(x, "sharding", None)
    return sharding if sharding is not None and len(sharding.device_set) > 1 else None


def lowered(fn: Callable[..., Any], args: Sequence[Any], donate_argnums: Sequence[int]) -> Any:
    with warnings.catch_warnings():
        # The step that is compiled may have no result to write over an argument that the user's has.
        warnings.filterwarnings("ignore", "Some donated buffers were not usable")
        return jax.jit(fn, donate_argnums=tuple(donate_argnums)).lower(*args)


def missing(device: Device) -> str:
    """The line for wheels that are not there."""
    if device.platform == "tpu":
        return "a wheel is missing: pip install --no-deps libtpu"
    ours = f"jax-cuda13-plugin=={jax.__version__} jax-cuda13-pjrt=={jax.__version__}"
    return f'wheels are missing: pip install --no-deps {ours} "nvidia-cuda-nvcc==13.*" "nvidia-nvvm==13.*"'


def compile_for(device: str, count: int = 1) -> Target:
    """A device to plan and compile for, there or not, for `device=` of `checkpoint` and the others.

    Args:
        device: "h100", "h200", "a100" (80 GB), "l4", "rtx4090" or "tpu_v5e".
        count: how many of these GPUs there are in one machine, for meshes of its `devices`.

    Raises:
        UsageError: no such device or count, or wheels that JAX compiles for it with are missing.
    """
    if device not in DEVICES:
        raise UsageError(f"device {device!r} is not one of {', '.join(DEVICES)}")
    if count < 1 or (count > 1 and DEVICES[device].platform != "cuda"):
        raise UsageError(f"count is {count}: it has to be 1, or more for GPUs")
    return compiled_for(device, count)


@cache
def compiled_for(name: str, count: int) -> Target:
    from jax.experimental import topologies

    device = DEVICES[name]
    plugins: Sequence[str] = GPU_PLUGINS if device.platform == "cuda" else ("libtpu",)
    if not any(map(is_there, plugins)):
        raise UsageError(f"compiling for {name}: {missing(device)}")
    try:
        if device.platform == "cuda":
            topology = topologies.get_topology_desc(
                platform="cuda", topology_name=name, target_config=target_config(device),
                topology=f"1x1x{count}",
            )  # fmt: skip
        else:
            topology = topologies.get_topology_desc(platform="tpu", topology_name="v5e:1x1x1")
    except (NotImplementedError, RuntimeError) as error:
        line = str(error).strip().partition("\n")[0]
        if "not implemented" in line:
            line += "; JAX takes its plugin for GPUs without one with JAX_PLATFORMS=cpu in the environment"
        raise UsageError(f"compiling for {name}: {line}") from None
    mesh = jax.sharding.Mesh(np.array(topology.devices[:count]), ("device",))
    return Target(device, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))


def here() -> Target:
    """The device that JAX runs on, with figures of its kind where they are known."""
    if jax.default_backend() == "cpu":
        return Target(CPU)
    kind = jax.devices()[0].device_kind
    words = kind.upper().replace("-", " ").split()
    for name, device in DEVICES.items():
        if kind == device.kind or name.upper() in words or name.removeprefix("rtx") in words:
            return Target(device)
    return Target(DEVICES["tpu_v5e" if jax.default_backend() == "tpu" else "a100"])


def target_of(device: str | Target | None) -> Target:
    """Of what `device=` takes. Raises UsageError."""
    if device is None:
        return here()
    if isinstance(device, str):
        return compile_for(device)
    if not isinstance(device, Target):
        raise UsageError(f"device is of type {type(device).__name__}: a name or what compile_for returns")
    return device


def figures_of(device: str | Target | None) -> Device:
    """The same for what compiles nothing: no wheels are needed."""
    if isinstance(device, str) and device in DEVICES:
        return DEVICES[device]
    return target_of(device).device
