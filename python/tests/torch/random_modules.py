"""Random modules from a grammar, for what nobody thought of.

`python random_modules.py --modules 100` compares that many with eager mode, each within a random budget.
`--to FILE` keeps what came of each, and a later run goes on from there; `--jobs` are processes.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from grammar.check import OUTCOMES, Outcome, check

# Modules of a process, and seconds after which one of them hangs.
EACH, HANGS_S = 25, 900
STARTS = "  module "


def run_here(numbers: Iterable[int], executor: str, host: str | None) -> None:
    """One line before and one after each module, for the process that waits for them."""
    torch.set_num_threads(1)
    for number in numbers:
        print(f"{STARTS}{number}", flush=True)
        faulthandler.dump_traceback_later(HANGS_S, exit=True)
        outcome = check(number, executor, host)
        print(json.dumps([number, outcome.kind, outcome.line]), flush=True)


def run_apart(numbers: list[int], executor: str, host: str | None) -> Iterator[tuple[int, Outcome]]:
    """In processes of their own: where one dies the next goes on behind the module that it died of."""
    while numbers:
        how = ["--executor", executor, *([] if host is None else ["--host", host])]
        command = [sys.executable, __file__, *how, "--numbers", *map(str, numbers)]
        done, begun = [], numbers[0]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
            assert child.stdout is not None
            for line in child.stdout:
                if line.startswith(STARTS):
                    begun = int(line.removeprefix(STARTS))
                elif line.startswith("["):
                    number, kind, said = json.loads(line)
                    done.append(number)
                    yield number, Outcome(kind, said)
        numbers = numbers[numbers.index(done[-1]) + 1 :] if done else numbers
        if numbers:
            yield begun, Outcome("wrong", f"module {begun}: its process ended with {child.returncode}")
            numbers = numbers[numbers.index(begun) + 1 :]


def known(path: Path | None) -> dict[int, Outcome]:
    if path is None or not path.exists():
        return {}
    lines = (json.loads(line) for line in path.read_text().splitlines())
    return {number: Outcome(kind, said) for number, kind, said in lines}


def run(numbers: list[int], jobs: int, to: Path | None, executor: str, host: str | None) -> Counter[str]:
    """Shows what is wrong as it is found; returns how many came to what."""
    found = known(to)
    counted = Counter(found[number].kind for number in numbers if number in found)
    left = [number for number in numbers if number not in found]
    parts = [left[i : i + EACH] for i in range(0, len(left), EACH)]

    def run_part(part: list[int]) -> None:
        for number, outcome in run_apart(part, executor, host):
            counted[outcome.kind] += 1
            if to is not None:
                with to.open("a") as file:
                    file.write(json.dumps([number, outcome.kind, outcome.line]) + "\n")
            if outcome.kind == "wrong":
                print(outcome.line, flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run_part, parts))
    return counted


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--modules", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--to", type=Path, help="a file of lines that a later run goes on from")
    parser.add_argument("--numbers", type=int, nargs="*", help="these modules, in this process")
    parser.add_argument(
        "--executor", choices=("auto", "eager"), default="auto", help="that fit is told to take"
    )
    parser.add_argument("--host", help='where values may go, with the executor "eager": "1GB/s"')
    asked = parser.parse_args()
    if asked.numbers:
        run_here(asked.numbers, asked.executor, asked.host)
        return 0
    numbers = list(range(asked.first, asked.first + asked.modules))
    counted = run(numbers, asked.jobs, asked.to, asked.executor, asked.host)
    print(f"{asked.modules} modules: " + ", ".join(f"{counted[kind]} {kind}" for kind in OUTCOMES))
    return int(counted["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
