"""Data-parallel training on two ranks: one plan, the gradients of eager mode, each rank within the budget."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import torch

WORKER = """
    import copy, os, sys
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    sys.path.insert(0, {tests!r})
    import torch, torch.distributed as dist
    import remat.torch
    from models import Encoder
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    rank = int(sys.argv[1])
    dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
    torch.manual_seed(0)
    model = Encoder(depth=2)
    x = torch.randn(8, 64, 64, generator=torch.Generator().manual_seed(rank))

    def train(m):
        m.zero_grad()
        torch.manual_seed(5 + rank)
        for _ in range(2):
            m(x).backward()
        return [p.grad.clone() for p in m.parameters()]

    expected = train(DistributedDataParallel(copy.deepcopy(model)))
    fitted = remat.torch.fit(
        model, x, "60%", group=dist.group.WORLD, time_limit=0.5, accumulate=True
    )
    mine = train(DistributedDataParallel(fitted))
    assert all(a.equal(b) for a, b in zip(expected, mine, strict=True))
    plans = [None, None]
    dist.all_gather_object(plans, list(fitted.remat.plan.steps))
    assert plans[0] == plans[1]
    assert fitted.remat.parts[0].recomputed_steps > 0
    model.zero_grad(set_to_none=False)
    peak = remat.torch.measure_peak(lambda: fitted(x).backward(), resident=[model, x])
    assert peak <= fitted.remat.budget, (peak, fitted.remat.budget)
    try:
        remat.torch.fit(copy.deepcopy(model), x, 1000, group=dist.group.WORLD)
    except remat.InfeasibleError as error:
        print("infeasible", error.floor)
    dist.destroy_process_group()
    print("done")
"""


def test_data_parallel_training_on_two_ranks_equals_eager_mode_with_one_plan(tmp_path) -> None:
    assert torch.distributed.is_available()
    script = tmp_path / "worker.py"
    script.write_text(textwrap.dedent(WORKER).format(tests=str(Path(__file__).parent)))
    command = [sys.executable, str(script)]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "meeting")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    for rank in ranks:
        said, _ = rank.communicate(timeout=300)
        assert rank.returncode == 0, said
        assert "infeasible" in said
        assert said.rstrip().endswith("done")
