#!/usr/bin/env python3
"""Is `auto` behind one of its planners? portfolio.py --remat build/remat --shared ../shared -o auto.json

A row is a shared graph, a budget of 90, 80, ..., 30 % of keep-all and a seed. `auto` plans it, and so does
every other registered planner, with the same work limit (10,000,000 units: some two seconds of `auto` on a
core that it has for itself). Rows where `auto` proves the optimum, or that there is no plan, need no others.
A row is behind where another planner's plan takes less by more than a millionth (the base included), or
where it has a plan and `auto` has none. Planners that draw get the same seed, or one of fewer (--other-
seeds). Plans of others are reused from the output of an earlier run (--others).
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import command

BUDGETS = range(90, 20, -10)
# Random planners. The others give the same plan with every seed, or nearly (checkmate_milp, moccasin).
SEEDED = ("search", "lns", "evict")
# Only for graphs with a host.
LEFT_OUT = ("auto", "keep_all", "offload_only", "offload_all", "pofo")
TIGHT = 1e-6
KEPT = ("status", "duration", "base_duration", "planner")
NOT_ITS_PROBLEM = 64


class Bench:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.runs: dict[str, dict] = {}
        if args.others:
            known = json.loads(Path(args.others).read_text())
            if known["work"] != args.work:
                raise SystemExit(f"{args.others}: made with {known['work']} units, asked for are {args.work}")
            self.runs = {key: run for key, run in known["runs"].items() if not key.startswith("auto ")}
        self.others = (
            args.planners.split(",")
            if args.planners
            else [name for name in command.planners(args.remat) if name not in LEFT_OUT]
        )

    def plan(self, planner: str, graph: Path, budget: int, seed: int) -> dict:
        key = f"{planner} {graph.stem} {budget} {seed}"
        if key not in self.runs:
            words = ["plan", graph, "--planner", planner, "--gap", "0"]
            words += ["--budget", f"{budget}%", "--seed", seed, "--work-limit", self.args.work]
            for option in self.args.set if planner == "auto" else []:
                words += ["--set", option]
            said = command.run(self.args.remat, *words, codes=(0, 2, 3, NOT_ITS_PROBLEM)).said
            self.runs[key] = {name: said.get(name) for name in KEPT}
            if self.args.output:
                known = {"work": self.args.work, "set": self.args.set, "runs": self.runs}
                Path(self.args.output).write_text(json.dumps(known, indent=1) + "\n")
        return self.runs[key]

    def row(self, graph: Path, budget: int, seed: int) -> tuple[dict, dict[str, int]]:
        """The run of auto, and the durations of the others that found a plan."""
        ours = self.plan("auto", graph, budget, seed)
        if ours["status"] in ("optimal", "infeasible"):
            return ours, {}
        durations = {}
        for name in self.others:
            seeds = self.args.other_seeds if name in SEEDED else 1
            duration = self.plan(name, graph, budget, 1 + (seed - 1) % seeds)["duration"]
            if duration is not None:
                durations[name] = duration
        return ours, durations

    def run(self) -> None:
        graphs = sorted((Path(self.args.shared) / "instances").glob("*.json"))
        graphs = [graph for graph in graphs if self.args.only in graph.stem]
        ratios: list[float] = []
        rows = behind = proved = 0
        for graph in graphs:
            for budget in BUDGETS:
                for seed in range(1, self.args.seeds + 1):
                    ours, others = self.row(graph, budget, seed)
                    rows += 1
                    proved += ours["status"] in ("optimal", "infeasible")
                    own = ours["duration"]
                    if own is not None:
                        ratios.append(own / min([own, *others.values()]))
                    if others and (own is None or ratios[-1] > 1 + TIGHT):
                        behind += 1
                        winner = min(others, key=lambda name: others[name])
                        ratio = "no plan" if own is None else f"{ratios[-1]:.6f}"
                        print(
                            f"{graph.stem:20} {budget:>3}% seed {seed}  behind {winner:15} {ratio}",
                            flush=True,
                        )
        mean = f"{statistics.fmean(ratios):.6f}" if ratios else "-"
        print(f"{behind} of {rows} rows behind, mean ratio {mean}, plans {len(ratios)}, proved {proved}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--remat", default="build/remat")
    parser.add_argument("--shared", default="../shared")
    parser.add_argument("--work", type=int, default=10_000_000, help="units for every planner")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--other-seeds", type=int, default=5, help="of planners that draw, beside auto's")
    parser.add_argument("--planners", help="compare with these alone: A,B,...")
    parser.add_argument("--only", default="", help="graphs whose name contains this")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="option of auto")
    parser.add_argument("--others", help="an earlier output, whose plans of other planners are good still")
    parser.add_argument("-o", "--output", help="writes all runs as one JSON file")
    Bench(parser.parse_args()).run()


if __name__ == "__main__":
    main()
