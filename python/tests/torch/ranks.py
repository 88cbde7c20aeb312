"""Programs that run on several ranks."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
import textwrap
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path

HEAD = """
import copy, faulthandler, logging, os, sys
faulthandler.dump_traceback_later({dump_s}, exit=False)
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
sys.path.insert(0, {tests!r})
import torch, torch.distributed as dist
import remat.torch

torch.set_num_threads(1)
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size={count})
"""

TAIL = """
dist.barrier()
dist.destroy_process_group()
faulthandler.cancel_dump_traceback_later()
print("done")
"""


# Ranks are forked from one process that has imported what they need: to import PyTorch and its compiler takes
# longer than most of the programs.
_forked = multiprocessing.get_context("forkserver")
_forked.set_forkserver_preload(["remat.torch", "torch.nn.parallel", "torch.distributed.fsdp"])


def run_on_two_ranks(program: str, folder: Path, timeout_s: float = 600) -> list[str]:
    """`run_on_ranks` with two."""
    return run_on_ranks(2, program, folder, timeout_s)


def run_on_ranks(count: int, program: str, folder: Path, timeout_s: float = 600) -> list[str]:
    """What a program prints on each rank; `rank` and the usual modules are there.

    Fails with the words of every rank if one fails, or says nothing of its end within the time: a rank that
    waits for one that failed is not its cause. One that is late says where it stands.
    """
    script = folder / "worker.py"
    head = HEAD.format(tests=str(Path(__file__).parent), dump_s=0.9 * timeout_s, count=count)
    script.write_text(head + textwrap.dedent(program) + TAIL)
    words = [folder / f"rank_{rank}.txt" for rank in range(count)]
    ranks = [_start(script, rank, folder / "meeting", words[rank]) for rank in range(count)]
    try:
        _wait(ranks, timeout_s)
    finally:
        for process in ranks:
            process.kill()
            process.join()
    said = [path.read_text() for path in words]
    ends = [
        "done" if process.exitcode == 0 and text.rstrip().endswith("done") else process.exitcode
        for process, text in zip(ranks, said, strict=True)
    ]
    assert ends == ["done"] * count, "".join(
        f"\n--- rank {rank}, {end}:\n{text}" for rank, (end, text) in enumerate(zip(ends, said, strict=True))
    )
    return said


def _start(script: Path, rank: int, meeting: Path, words: Path) -> ForkServerProcess:
    words.touch()
    process = _forked.Process(target=_run, args=(str(script), str(rank), str(meeting), str(words)))
    process.start()
    return process


def _run(script: str, rank: str, meeting: str, words: str) -> None:
    """In the process of a rank: as `python SCRIPT RANK MEETING > WORDS` would."""
    file = os.open(words, os.O_WRONLY)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.stdout = os.fdopen(1, "w", buffering=1)
    sys.stderr = os.fdopen(2, "w", buffering=1)
    sys.argv = [script, rank, meeting]
    runpy.run_path(script, run_name="__main__")


# What a rank may need to end after the other one failed.
_GRACE_S = 10.0


def _wait(ranks: list[ForkServerProcess], timeout_s: float) -> None:
    """Until all ended, but no longer than a moment for the others of one that failed."""
    end = time.monotonic() + timeout_s
    while any(process.exitcode is None for process in ranks) and time.monotonic() < end:
        if any(process.exitcode not in (None, 0) for process in ranks):
            end = min(end, time.monotonic() + _GRACE_S)
        time.sleep(0.05)
