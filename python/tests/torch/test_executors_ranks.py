"""Checkpoint policies under FSDP2, tensor parallelism and both: gradients of the same run without them."""

from __future__ import annotations

from pathlib import Path

import pytest
from ranks import run_on_ranks

PROGRAM = """
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils._python_dispatch import TorchDispatchMode
from test_executors import Net, batch, made

data, tensor = {data}, {tensor}
mesh = init_device_mesh("cpu", (data, tensor), mesh_dim_names=("data", "tensor"))


def split(model):
    for block in model.blocks:
        if tensor > 1:
            parallelize_module(block, mesh["tensor"], {{"up": ColwiseParallel(), "down": RowwiseParallel()}})
    if data > 1:
        for block in model.blocks:
            fully_shard(block, mesh=mesh["data"])
        fully_shard(model, mesh=mesh["data"])
    return model


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


class Counted(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten.gelu.default
        return func(*args, **(kwargs or {{}}))


def run(model):
    torch.manual_seed(3)
    x = batch(256) + mesh.get_coordinate()[0]
    with Counted() as products:
        for _ in range(2):
            model(x).backward()
    return [whole(p.grad) for p in model.parameters()], products.count


plain = made(dropout=0.0)
policies = remat.torch.checkpoint_policy(plain, batch(256), "72%", compare=False)
expected, once = run(split(copy.deepcopy(plain)))
found, again = run(split(policies.apply(copy.deepcopy(plain))))
assert all(map(torch.equal, expected, found)) and len(expected) == len(found)
saved = sum(r is None or 0 in r.save.get("aten.gelu.default", ()) for r in policies.regions.values())
assert again == once + 2 * (4 - saved), (once, again, saved)
"""


@pytest.mark.parametrize(
    ("data", "tensor"), [(2, 2), *(pytest.param(*each, marks=pytest.mark.long) for each in ((2, 1), (1, 2)))]
)
def test_gradients_on_ranks_are_those_without_checkpoints(data: int, tensor: int, tmp_path: Path) -> None:
    run_on_ranks(data * tensor, PROGRAM.format(data=data, tensor=tensor), tmp_path)
