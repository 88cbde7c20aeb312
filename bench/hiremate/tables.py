#!/usr/bin/env python3
"""The tables of the HiREmate paper on generated graphs: tables.py [--remat build/remat] [--tables 4,3,6,10]

Table 4: partition, planning time, memory and time at half of the keep-all peak, with other planners on the
same graphs, budgets and time limit. Table 3: overhead beside the optimum of checkmate_milp on small
networks, where that proves one. Figure 6: the hierarchy made deeper by smaller groups. Figure 10: alpha.
`hiremate` here is the published method: no polishing, no search, H-ILP with rk_rotor and tw_remat at the
top; `+polish` and `+search` switch the last passes on. All in fixed order unless --order says otherwise.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import tempfile
from pathlib import Path

NETWORKS = {
    "GPT 24": "gpt --variant medium --batch 8",
    "GPT 96": "gpt --depth 96 --batch 4",
    "U-Net": "unet",
    "MLP-Mixer": "mlp_mixer",
    "ResNet101": "resnet --depth 101",
    "Transformer 6+6": "transformer",
    "Transformer 36+36": "transformer --depth 36",
    "FNO": "fno",
}
# Small enough for checkmate_milp.
SMALL = {
    "ResNet20": "resnet --depth 20 --variant cifar",
    "U-Net": "unet --depth 2 --resolution 128",
    "1+1 Transformer": "transformer --depth 1 --vocabulary 1000 --dropout 0",
    "MLP-Mixer": "mlp_mixer --depth 3",
    "1-layer GPT": "gpt --depth 1 --vocabulary 1000 --batch 8 --dropout 0",
    "2-layer GPT": "gpt --depth 2 --vocabulary 1000 --batch 8",
    "FNO": "fno",
}
PUBLISHED = {"polish": "off"}
PLANNERS = {
    "hiremate": ("hiremate", PUBLISHED),
    "+polish": ("hiremate", {}),
    "+search": ("hiremate", {"search": "on"}),
    "tw_remat": ("tw_remat", {}),
    "search": ("search", {}),
    "auto": ("auto", {}),
}


class Bench:
    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.args = args
        self.folder = folder

    def call(self, *words: str) -> dict:
        done = subprocess.run([self.args.remat, *words, "--json"], capture_output=True, text=True)
        if done.returncode not in (0, 2, 3):
            raise SystemExit(f"{' '.join(words)}: {done.stderr}")
        return json.loads(done.stdout)

    def graph(self, settings: str) -> str:
        path = self.folder / (settings.replace(" ", "_").replace("-", "") + ".json")
        if not path.exists():
            words = ["generate", *settings.split(), "--durations", "roofline", "--device", "a100"]
            subprocess.run([self.args.remat, *words, "-o", str(path)], check=True, capture_output=True)
        return str(path)

    def plan(self, graph: str, budget: str, planner: str, options: dict[str, str]) -> dict:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        words = ["plan", graph, "--budget", budget, "--planner", planner, "--order", self.args.order]
        words += ["--time-limit", self.args.time_limit, "--gap", "0", "--threads", str(self.args.threads)]
        for key, value in options.items():
            words += ["--set", f"{key}={value}"]
        result = self.call(*words)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        result["cpu"] = after.ru_utime - before.ru_utime
        return result


def overhead(result: dict) -> str:
    if result["status"] not in ("optimal", "feasible"):
        return result["status"][:6]
    return f"{100 * result['overhead']:.2f}{'*' if result['status'] == 'optimal' else ''}"


def table_4(bench: Bench) -> None:
    print(
        f"{'':18} {'ops':>5} {'layers':>6} {'levels':>6} {'groups':>6} {'distinct':>8} {'largest':>7} "
        f"{'wall s':>7} {'cpu s':>6} {'memory':>7}  overhead in %: " + " ".join(f"{p:>9}" for p in PLANNERS)
    )
    for name, settings in NETWORKS.items():
        graph = bench.graph(settings)
        info = bench.call("partition", graph)
        results = {label: bench.plan(graph, bench.args.budget, *how) for label, how in PLANNERS.items()}
        one = results["hiremate"]
        memory = f"{100 * one['peak'] / one['keep_all_peak']:.1f}%" if one.get("peak") else "-"
        print(
            f"{name:18} {info['ops']:5} {info['layers']:6} {info['levels']:6} {info['groups']:6} "
            f"{info['distinct_groups']:8} {info['largest_group']:7} {one['seconds']:7.1f} {one['cpu']:6.1f} "
            f"{memory:>7}                 " + " ".join(f"{overhead(r):>9}" for r in results.values()),
            flush=True,
        )


def table_3(bench: Bench) -> None:
    print(
        f"{'':20} {'ops':>5} {'budget':>6} {'checkmate_milp':>14} {'hiremate':>9} {'+polish':>9}   *: proved"
    )
    for name, settings in SMALL.items():
        graph = bench.graph(settings)
        ops = bench.call("info", graph)["ops"]
        for percent in ("90%", "80%", "70%", "60%"):
            row = [bench.plan(graph, percent, "checkmate_milp", {})]
            row += [bench.plan(graph, percent, *PLANNERS[label]) for label in ("hiremate", "+polish")]
            print(
                f"{name:20} {ops:5} {percent:>6} {overhead(row[0]):>14} "
                + " ".join(f"{overhead(r):>9}" for r in row[1:]),
                flush=True,
            )


def sweep(bench: Bench, option: str, values: tuple[str, ...]) -> None:
    print(f"{option:18} " + " ".join(f"{v:>9}" for v in values))
    for name in ("U-Net", "MLP-Mixer", "Transformer 6+6"):
        graph = bench.graph(NETWORKS[name])
        row = [bench.plan(graph, bench.args.budget, "hiremate", {**PUBLISHED, option: v}) for v in values]
        print(f"{name:18} " + " ".join(f"{overhead(r):>9}" for r in row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--remat", default="build/remat")
    parser.add_argument("--tables", default="4,3,6,10")
    parser.add_argument("--budget", default="50%")
    parser.add_argument("--time-limit", default="60s")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--order", default="fixed")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, Path(folder))
        for table in args.tables.split(","):
            if table == "4":
                table_4(bench)
            elif table == "3":
                table_3(bench)
            elif table == "6":
                sweep(bench, "most_lower", ("4", "6", "8", "12"))
            elif table == "10":
                sweep(bench, "alpha", ("0", "0.25", "0.5", "0.75", "1"))
            else:
                parser.error(f"there is no table {table}")
            print()


if __name__ == "__main__":
    main()
