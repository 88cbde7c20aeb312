"""Programs that run on several ranks."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

HEAD = """
import copy, logging, os, sys
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
sys.path.insert(0, {tests!r})
import torch, torch.distributed as dist
import remat.torch

torch.set_num_threads(1)
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
"""

TAIL = """
dist.barrier()
dist.destroy_process_group()
print("done")
"""


def run_on_two_ranks(program: str, folder: Path, timeout_s: float = 300) -> list[str]:
    """What a program prints on each rank; `rank` and the usual modules are there. Fails if a rank does."""
    script = folder / "worker.py"
    head = HEAD.format(tests=str(Path(__file__).parent))
    script.write_text(head + textwrap.dedent(program) + TAIL)
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(folder / "meeting")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    said = []
    try:
        for rank in ranks:
            text, _ = rank.communicate(timeout=timeout_s)
            said.append(text)
            assert rank.returncode == 0, text
            assert text.rstrip().endswith("done"), text
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    return said
