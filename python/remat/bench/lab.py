"""Graphs and runs: made once, stored in files, measured in separate processes."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import remat
from remat.bench import interrupts

AUTO_SECONDS = 1.0
# Features that a paper lacks are off, so that published planners do not profit from Remat's search.
AS_PUBLISHED: dict[str, dict[str, str]] = {
    "checkmate_milp": {"warm_start": "none"},
    "hiremate": {"search": "off"},
}
WORK_PER_SECOND = 10_000_000  # docs/benchmarking.md: somewhat less than a second of a quiet core


class BenchError(Exception):
    """An error that stops the command, in one line."""


@dataclass(frozen=True)
class GraphSpec:
    """The graph of a row: how to generate it, and which files hold the published one.

    Attributes:
        name: as the tables name it.
        arguments: of ``remat generate``.
        real: prefixes of the file name of a published instance.
    """

    name: str
    arguments: str
    real: tuple[str, ...] = ()


@dataclass(frozen=True)
class Graph:
    """A loaded graph. Bytes and durations are integers, `edges` counts pairs of ops."""

    name: str
    path: str
    origin: str
    is_real: bool
    ops: int
    edges: int
    keep_all_peak: int
    base_duration: int
    floor: int
    resident: int

    def share(self, percent: float) -> int:
        """A percentage of the keep-all peak, in bytes."""
        return int(self.keep_all_peak * percent / 100)


@dataclass(frozen=True)
class Run:
    """One planner on one graph: arguments and results. Overhead is a ratio."""

    graph: str
    planner: str
    budget: int | None
    limit: float
    status: str
    fits: bool = False
    peak: int | None = None
    duration: int | None = None
    overhead: float | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    note: str = ""
    made_by: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    curve: list[list[float]] = field(default_factory=list)
    duration_lower_bound: int | None = None

    @property
    def time_to_best(self) -> float:
        """Seconds until the best plan within the budget was found."""
        return self.curve[-1][0] if self.curve else self.seconds


def published_planners() -> list[str]:
    """Registered planners from papers, without the trivial one and the one that needs a host."""
    own = ("Remat", "practice")
    left_out = ("keep_all", "pofo")
    return [p.name for p in remat.planners() if not p.source.startswith(own) and p.name not in left_out]


class Lab:
    """Makes graphs and runs planners; reads earlier results from `folder`.

    Args:
        folder: results, one file a run, and graphs.
        instances: folder with published instances, or None.
        limit: seconds for each published planner; None: what the suite suggests.
        work: limits of `auto` in work units, for busy machines.
        say: prints progress.
        planners: a file that registers a user's planners, or None.
    """

    def __init__(
        self,
        folder: Path,
        instances: Path | None = None,
        limit: float | None = None,
        work: bool = False,
        say: Callable[[str], None] = lambda text: None,
        planners: Path | None = None,
    ) -> None:
        self.planners = planners
        self.folder, self.instances, self.work, self.say = folder, instances, work, say
        self.asked_limit = limit
        self.suite, self.suggested_limit = "", 60.0
        self.pending: list[float] = []  # limits of the runs to come
        self.spent, self.spent_limits = 0.0, 0.0
        self.executed = 0
        self.graphs: dict[str, Graph] = {}
        # Of the current suite, in the order of their first use.
        self.used: list[Graph] = []
        self.runs: list[Run] = []

    @property
    def limit(self) -> float:
        """Seconds for each published planner."""
        return self.asked_limit if self.asked_limit is not None else self.suggested_limit

    def begin(self, suite: str, suggested_limit: float, pending: list[float]) -> None:
        """Starts a suite whose runs will have the limits `pending`."""
        self.suite, self.suggested_limit, self.pending = suite, suggested_limit, pending
        self.spent, self.spent_limits, self.runs, self.used = 0.0, 0.0, [], []

    def graph(self, spec: GraphSpec) -> Graph:
        """The published instance if given, else a similar generated graph."""
        if spec.name not in self.graphs:
            self.graphs[spec.name] = self._load(spec)
        graph = self.graphs[spec.name]
        if graph not in self.used:
            self.used.append(graph)
        return graph

    def plan(
        self,
        graph: Graph,
        planner: str,
        budget: int | None = None,
        *,
        limit: float | None = None,
        options: Mapping[str, Any] | None = None,
        objective: str = "time",
        order: str = "fixed",
        seed: int = 0,
        host: str | None = None,
    ) -> Run:
        """Runs a planner, or reads the result of an earlier run with the same arguments.

        Without `options` a published planner runs as published.
        """
        if options is None:
            options = AS_PUBLISHED.get(planner)
        seconds = float(limit or (AUTO_SECONDS if planner == "auto" else self.limit))
        asked = {
            "graph": graph.name,
            "planner": planner,
            "budget": budget,
            "limit": seconds,
            "options": dict(options or {}),
            "objective": objective,
            "order": order,
            "seed": seed,
            "work": int(seconds * WORK_PER_SECOND) if self.work and planner == "auto" else None,
        }
        if host is not None:  # keeps the names of results without a host
            asked["host"] = host
        digest = hashlib.sha256(json.dumps([asked, graph.origin], sort_keys=True).encode()).hexdigest()[:10]
        path = self.folder / self.suite / f"{graph.name}-{planner}-{digest}.json"
        if self.pending:
            self.pending.pop(0)
        if path.exists():
            found = json.loads(path.read_text())
        else:
            self._announce(graph, planner, budget)
            found = {**asked, **self._execute({**asked, "path": graph.path, **self._own()}, seconds)}
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".part")
            partial.write_text(json.dumps(found, indent=1) + "\n")
            partial.replace(path)
            self.executed += 1
        known = {name: found[name] for name in Run.__dataclass_fields__ if name in found}
        run = Run(**known)
        self.runs.append(run)
        return run

    def _own(self) -> dict[str, str]:
        return {} if self.planners is None else {"planners": str(self.planners)}

    def _execute(self, run: dict[str, Any], seconds: float) -> dict[str, Any]:
        interrupts.raise_if_seen()
        begun = time.monotonic()
        grace = 20 * seconds + 60  # for loading, and for planners that overrun their limit
        try:
            done = subprocess.run(
                [sys.executable, "-m", "remat.bench.worker"],
                input=json.dumps(run),
                capture_output=True,
                text=True,
                timeout=grace,
            )
        except subprocess.TimeoutExpired:
            return {"status": "not run", "note": f"still running after {grace:.0f} s", "seconds": grace}
        finally:
            self.spent += time.monotonic() - begun
            self.spent_limits += seconds
        interrupts.raise_if_seen()
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or [f"exit {done.returncode}"]
            return {"status": "not run", "note": lines[-1]}
        said: dict[str, Any] = json.loads(done.stdout)
        return said

    def _announce(self, graph: Graph, planner: str, budget: int | None) -> None:
        ratio = self.spent / self.spent_limits if self.spent_limits else 0.5
        left = sum(self.pending) * ratio
        room = f" in {budget:,} bytes" if budget is not None else ""
        self.say(
            f"{self.suite}: {graph.name}: {planner}{room}; then {len(self.pending)} runs, "
            f"about {left / 60:.0f} min"
        )

    def _load(self, spec: GraphSpec) -> Graph:
        real = self._real_file(spec)
        path = real or self.folder / "graphs" / f"{spec.name}.json"
        if real is None:
            self.say(f"{self.suite}: {spec.name}: remat generate {spec.arguments}")
            path.parent.mkdir(parents=True, exist_ok=True)
            command_line("generate", *spec.arguments.split(), "-o", str(path))
        facts = json.loads(command_line("info", str(path), "--top", "1", "--json"))
        return Graph(
            name=spec.name,
            path=str(path),
            origin=f"file {real.name}" if real else f"remat generate {spec.arguments}",
            is_real=real is not None,
            ops=facts["ops"],
            edges=edges_between_ops(path),
            keep_all_peak=facts["keep_all_peak"],
            base_duration=facts["base_duration"],
            floor=facts["floor"],
            resident=facts["resident"],
        )

    def _real_file(self, spec: GraphSpec) -> Path | None:
        if self.instances is None:
            return None
        for stem in spec.real:
            exact = self.instances / f"{stem}.json"
            found = [exact] if exact.exists() else sorted(self.instances.glob(f"{stem}_*.json"))
            if found:
                return found[0]
        return None


class Rehearsal(Lab):
    """Counts the runs of a suite without running any."""

    def __init__(self, lab: Lab) -> None:
        super().__init__(lab.folder, lab.instances, lab.asked_limit)
        self.limits: list[float] = []

    def graph(self, spec: GraphSpec) -> Graph:
        return Graph(spec.name, "", "none", False, 1, 1, 1_000_000, 1000, 1, 0)

    def plan(self, graph: Graph, planner: str, budget: int | None = None, **asked: Any) -> Run:
        limit = asked.get("limit") or (AUTO_SECONDS if planner == "auto" else self.limit)
        self.limits.append(limit)
        # A plan that fits, with a distinct peak, so that suites request all runs that they may need.
        peak = 1_000_000 - len(self.limits)
        return Run(
            *(graph.name, planner, budget, limit, "feasible"),
            fits=True,
            peak=peak,
            duration=1000,
            overhead=0.0,
            counters={"parts": 1},
        )


def command_line(*arguments: str) -> str:
    """Standard output of this package's command line."""
    program = Path(remat.__file__).parent / "bin" / "remat"
    done = subprocess.run([str(program), *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchError(done.stderr.strip() or f"{program}: exit {done.returncode}")
    return done.stdout


def edges_between_ops(path: Path) -> int:
    """Number of pairs of ops in which the second reads an output of the first."""
    graph = remat.load_graph(path).to_dict()
    maker = {value: index for index, op in enumerate(graph["ops"]) for value in op["outputs"]}
    return sum(len({maker[v] for v in op["inputs"] if v in maker}) for op in graph["ops"])


def facts_of(graphs: list[Graph]) -> list[dict[str, Any]]:
    """Graphs as JSON objects, without their paths."""
    return [{name: value for name, value in asdict(graph).items() if name != "path"} for graph in graphs]
