"""Copies to a host and back that all come late, against eager mode.

`python delayed_copies.py --copies 10000` runs steps of random plans with random copies, each up to 50 ms
late, until there were so many; every copy must have been waited for, and nothing may differ in any bit.
"""

from __future__ import annotations

import argparse
import copy
import random
import sys
import threading
import time
from typing import Any

import remat.torch
import torch
from models import CASES
from plans import random_plan, with_random_copies
from remat.torch.run import channels
from training import fit, train


class Late:
    """Makes copies late, and counts those that were issued and those that somebody waited for."""

    def __init__(self, most: float, seed: int) -> None:
        self.most, self.random = most, random.Random(seed)
        self.issued = self.waited = 0
        self.moved = 0
        self._lock = threading.Lock()
        move, wait, put = channels.move, channels._Job.wait, channels._Worker.put

        def late_move(target: int, source: int, size: int) -> None:
            with self._lock:
                seconds = self.most * self.random.random()
                self.moved += 1
            time.sleep(seconds)
            move(target, source, size)

        def counted_wait(job: Any) -> float:
            self.waited += not hasattr(job, "was_waited_for")
            job.was_waited_for = True
            return wait(job)

        def counted_put(worker: Any, job: Any) -> Any:
            self.issued += 1
            return put(worker, job)

        channels.move = late_move
        channels._Job.wait = counted_wait  # type: ignore[method-assign]
        channels._Worker.put = counted_put  # type: ignore[method-assign]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--copies", type=int, default=10_000)
    parser.add_argument("--most", type=float, default=0.05, help="seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    late = Late(given.most, given.seed)
    wrong = plans = 0
    seed = given.seed
    while late.moved < given.copies:
        case = CASES[seed % len(CASES)]
        model, inputs = case.build()
        eager = train(copy.deepcopy(model), inputs, given.steps)
        torch._dynamo.reset()
        graph = remat.torch.capture(model, inputs, accumulate=False, host="2GB/s")
        plan = with_random_copies(graph, random_plan(graph, seed), seed)
        torch._dynamo.reset()
        fitted = fit(model, inputs, 1 << 40, plan=plan, accumulate=False, host="2GB/s")
        before = late.issued, late.waited
        differences = eager.differences(train(fitted, inputs, given.steps))
        issued, waited = late.issued - before[0], late.waited - before[1]
        expected = given.steps * len(plan.copies)
        good = not differences and issued == waited == expected
        wrong += not good
        plans += 1
        print(
            f"seed {seed} {case.name}: {issued} copies, {waited} waited for, "
            f"{'equal' if good else differences or 'NOT ALL WAITED FOR'}; {late.moved} in all",
            flush=True,
        )
        seed += 1
    print(f"{late.moved} late copies in {plans} plans, {wrong} plans wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
