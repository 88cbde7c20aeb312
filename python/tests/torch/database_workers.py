"""Processes that check entries of databases; one that is lost does not end the others."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from database_cases import Case

# From a case to its row.
Check = Callable[[Case], dict[str, Any]]


class Worker:
    """A process that checks cases, one after another, and can be lost."""

    def __init__(self, check: Check) -> None:
        context = multiprocessing.get_context("fork")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, check), daemon=True)
        self.process.start()
        theirs.close()
        self.case: Case | None = None
        self.started = 0.0
        self.done = 0

    def begin(self, case: Case) -> None:
        self.case, self.started = case, time.monotonic()
        self.connection.send(case)

    def row(self, limit: float) -> dict[str, Any] | None:
        """Of the case, if that has ended in whatever way."""
        assert self.case is not None
        try:
            if self.connection.poll():
                self.done += 1
                return dict(self.connection.recv())
        except (EOFError, ConnectionError):
            self.process.join()
            return self.lost("crash", f"exit code {self.process.exitcode}")
        if time.monotonic() - self.started > limit:
            return self.lost("no end", f"ended after {limit:.0f} s")
        return None

    def lost(self, outcome: str, line: str) -> dict[str, Any]:
        assert self.case is not None
        self.stop()
        seconds = round(time.monotonic() - self.started, 2)
        return {"case": self.case, "outcome": outcome, "seconds": seconds, "lines": [f"{outcome}: {line}"]}

    @property
    def alive(self) -> bool:
        return self.process.is_alive()

    def stop(self) -> None:
        self.process.kill()
        self.process.join()


def work(connection: Connection, check: Check) -> None:
    """Of a process: checks what it is sent until nothing comes."""
    torch.set_num_threads(1)
    while True:
        try:
            case = Case(*connection.recv())
        except EOFError:
            return
        start = time.process_time()
        row = check(case)
        connection.send({**row, "seconds": round(time.process_time() - start, 2)})


# Cases after which a process ends, with what it has piled up.
EACH = 60


def run_all(cases: list[Case], check: Check, jobs: int, limit: float, out: Path) -> Iterator[dict[str, Any]]:
    """Append a row for each case.

    limit: seconds after which a case is ended.
    """
    waiting = list(reversed(cases))
    workers: list[Worker] = []
    with out.open("a") as file:
        while waiting or any(w.case for w in workers):
            workers = [w for w in workers if w.case or (w.alive and w.done < EACH) or w.stop()]
            while len(workers) < min(jobs, len(waiting) + sum(w.case is not None for w in workers)):
                workers.append(Worker(check))
            for worker in workers:
                if worker.case is None and waiting and worker.done < EACH:
                    worker.begin(waiting.pop())
                elif worker.case is not None and (row := worker.row(limit)):
                    worker.case = None
                    file.write(json.dumps(row) + "\n")
                    file.flush()
                    yield row
            time.sleep(0.05)
    for worker in workers:
        worker.stop()
