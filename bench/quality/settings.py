#!/usr/bin/env python3
"""Measures the effect of a planner's setting: settings.py --planner auto --setting turn=0.2,0.3,0.5

Plans generated graphs with each value of a setting and prints how many plans were found and their mean
overhead over the cases in which every value found one. Limits are work units, so that a busy machine changes
nothing; settings that look at the clock (--clock) take seconds. Without --setting: all that
docs/planners/auto.md lists, each with its default in the middle.
"""

import argparse
import statistics
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import command

UNITS_PER_SECOND = 10_000_000

A100 = ["--durations", "roofline", "--device", "a100"]
GRAPHS = {
    "gpt_12": ["gpt", *A100],
    "gpt_96": ["gpt", "--depth", "96", *A100],
    "resnet_50": ["resnet", *A100],
    "transformer_6": ["transformer", *A100],
    "unet": ["unet", *A100],
    "mobilenet": ["mobilenet", *A100],
    "segnet": ["segnet", *A100],
    "random_100": ["random_layered", "--nodes", "100"],
    "random_500": ["random_layered", "--nodes", "500"],
}

# (graph, budget in percent of keep-all, order): cases in which a setting can matter.
CASES = {
    "any": [
        ("gpt_12", 60, "fixed"),
        ("resnet_50", 60, "fixed"),
        ("transformer_6", 50, "fixed"),
        ("unet", 60, "fixed"),
        ("mobilenet", 30, "fixed"),
        ("random_500", 80, "fixed"),
        ("random_100", 80, "free"),
        ("random_500", 80, "free"),
    ],
    # Few ops: the integer program is practical.
    "small": [
        ("unet", 60, "fixed"),
        ("mobilenet", 30, "fixed"),
        ("segnet", 60, "fixed"),
        ("random_100", 80, "fixed"),
    ],
    # Close to the least peak: plans are hard to find.
    "low": [
        ("gpt_12", 54, "fixed"),
        ("resnet_50", 23, "fixed"),
        ("transformer_6", 49, "fixed"),
        ("unet", 31, "fixed"),
        ("random_500", 79, "fixed"),
        ("random_500", 72, "free"),
    ],
    "large": [("gpt_96", 40, "fixed"), ("gpt_96", 60, "fixed")],
}

SETTINGS = {
    "auto": {
        "turn": ("low", [0.15, 0.3, 0.5]),
        "order": ("any", [0.05, 0.1, 0.25]),
        "round_seconds": ("any", [0.1, 0.25, 1]),
        "proof_ops": ("small", [0, 220, 500]),
        "large_ops": ("large", [500, 4000, 100_000]),
        "lns_ops": ("any", [0, 300, 20_000]),
    },
}


class Lab:
    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.args, self.folder = args, folder
        for name, kind in GRAPHS.items():
            command.generate(args.remat, self.file(name), kind)

    def file(self, name: str) -> Path:
        return self.folder / f"{name}.json"

    def plan(self, case: tuple[str, int, str], seed: int, setting: str) -> dict[str, float | None]:
        """Overhead in percent and, with the objective peak, the peak in percent of keep-all."""
        graph, budget, order = case
        words = ["plan", self.file(graph), "--planner", self.args.planner, "--order", order]
        words += ["--objective", "peak"] if self.args.peak else ["--budget", f"{budget}%"]
        words += ["--seed", seed, *(["--set", setting] if setting else [])]
        if self.args.clock:
            words += ["--time-limit", f"{self.args.seconds}s"]
        else:
            words += ["--work-limit", int(self.args.seconds * UNITS_PER_SECOND)]
        found = command.run(self.args.remat, *words).said
        if found["overhead"] is None:
            return {"overhead": None, "peak": None}
        return {"overhead": 100 * found["overhead"], "peak": 100 * found["peak"] / found["keep_all_peak"]}

    def measure(self, setting: str, cases: str, values: list[str]) -> None:
        runs = [(case, seed) for case in CASES[cases] for seed in range(self.args.seeds)]
        with ThreadPoolExecutor(self.args.jobs) as pool:
            results = [
                list(pool.map(lambda run, v=value: self.plan(*run, f"{setting}={v}"), runs))
                for value in values
            ]
        common = [i for i in range(len(runs)) if all(result[i]["overhead"] is not None for result in results)]
        for value, result in zip(values, results, strict=True):
            plans = sum(one["overhead"] is not None for one in result)
            overhead = statistics.fmean(result[i]["overhead"] for i in common)
            line = f"{setting:>24} = {value:<8} plans {plans:3}/{len(runs)}  mean overhead {overhead:8.4f} %"
            if self.args.peak:
                line += f"  mean peak {statistics.fmean(result[i]['peak'] for i in common):8.4f} %"
            print(line, flush=True)
            if self.args.verbose:
                for i in common:
                    print(f"{'':28}{runs[i]}: {result[i]['overhead']:.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--remat", default="build/remat")
    parser.add_argument("--planner", default="auto")
    parser.add_argument("--setting", action="append", metavar="NAME=A,B,...")
    parser.add_argument("--seconds", type=float, default=1, help="or ten million work units each")
    parser.add_argument("--clock", action="store_true", help="limits in seconds in place of work units")
    parser.add_argument("--peak", action="store_true", help="objective peak")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cases", choices=CASES, help="with --setting (default: any)")
    parser.add_argument("--verbose", action="store_true", help="every case")
    args = parser.parse_args()
    chosen = {
        name: (cases, [str(value) for value in values])
        for name, (cases, values) in SETTINGS.get(args.planner, {}).items()
    }
    if args.setting:
        chosen = {
            text.split("=")[0]: (args.cases or "any", text.split("=")[1].split(",")) for text in args.setting
        }
    with tempfile.TemporaryDirectory() as folder:
        lab = Lab(args, Path(folder))
        for setting, (cases, values) in chosen.items():
            lab.measure(setting, cases, values)


if __name__ == "__main__":
    main()
