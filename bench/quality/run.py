#!/usr/bin/env python3
"""Plan quality on a fixed set of graphs: run.py --remat build/remat --shared ../shared -o quality.json

Every case is one call of the command line (loading included) with one thread. Plans are written to files and
checked by the independent verifier of the shared folder; its overhead is the one that counts. Without that
folder, `remat generate` makes graphs of the same models, of which only a plan or a proof that there is none
is required, and `remat check` checks the plan. Wall-clock limits mean little on a busy machine: --work
replaces seconds by work units (about a hundred nanoseconds each), which are repeatable.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import command
from unroll import Unroller

UNITS_PER_SECOND = 10_000_000


def rows(graph, limit, pairs, order="fixed"):
    """Cases of one graph: pairs of budget and required overhead, both in percent."""
    return [
        {"graph": graph, "budget": budget, "limit": limit, "order": order, "asked": asked}
        for budget, asked in pairs
    ]


# The requirements on the search planner; None: any plan, "infeasible": a proof, "answer": either.
CASES = (
    rows("random_layered_n100", 1, [(90, 0.7893), (80, 2.297)])
    + rows("random_layered_n500", 1, [(90, 0.702), (80, 3.30)])
    + rows("random_layered_n500", 10, [(90, 0.701), (80, 3.15)])
    + rows("fcn8_vgg_train", 1, [(90, 0.0295), (80, 0.1362)])
    + rows("mobilenet_train", 1, [(90, 0.1636), (80, 0.3703)])
    + rows("mobilenet_train", 10, [(60, 1.067), (50, 1.635), (40, 2.502), (30, 4.023)])
    + rows("segnet_train", 1, [(90, 0.1031), (80, 0.2069)])
    + rows("vgg16_train", 1, [(90, 1.969), (80, "infeasible")])
    + rows("torch_unet", 1, [(80, 3.72), (70, 6.23), (60, 9.08), (50, 12.06)])
    + rows("torch_unet", 10, [(30, 35.7), (26, 59.1)])
    + rows("torch_resnet50", 1, [(80, 2.51), (70, 3.86), (60, 6.76), (50, 10.7)])
    + rows("torch_resnet50", 10, [(50, 10.53), (30, 22.1), (22, None)])
    + rows("torch_gpt2_12", 1, [(80, 3.74), (70, 6.35), (60, 10.5), (50, 16.9)])
    + rows("torch_gpt2_12", 10, [(45, 22.5), (42, 28.0)])
    + rows("torch_transformer_6", 1, [(80, 3.90), (70, 6.11), (60, 9.38), (50, 13.5)])
    + rows("torch_transformer_6", 10, [(50, 13.04), (25, 26.7), (15, 33.3)])
    + rows("random_layered_n100", 1, [(90, 0), (80, 0)], "free")
    + rows("random_layered_n500", 1, [(90, 0)], "free")
    + rows("random_layered_n500", 5, [(80, 0.56)], "free")
    + rows("gpt_96_layers", 5, [(47, 13.0)])
    + rows("gpt_384_layers", 5, [(50, 10.9)])
    + rows("gpt_384_layers", 20, [(50, 10.2)])
)

# Replacements of the instances without the shared folder: arguments of `remat generate`.
GENERATED = {
    "random_layered_n100": ("random_layered", "--nodes", "100"),
    "random_layered_n500": ("random_layered", "--nodes", "500"),
    "fcn8_vgg_train": ("fcn8", "--granularity", "layer"),
    "mobilenet_train": ("mobilenet", "--granularity", "layer"),
    "segnet_train": ("segnet", "--granularity", "layer"),
    "vgg16_train": ("vgg", "--granularity", "layer"),
    "torch_unet": ("unet", "--durations", "roofline"),
    "torch_resnet50": ("resnet", "--durations", "roofline"),
    "torch_gpt2_12": ("gpt", "--durations", "roofline"),
    "torch_transformer_6": ("transformer", "--durations", "roofline"),
    "gpt_96_layers": ("gpt", "--durations", "roofline", "--depth", "96"),
    "gpt_384_layers": ("gpt", "--durations", "roofline", "--depth", "384"),
}

# Published overheads in percent, for orientation only (other machines, other solvers).
PUBLISHED = {
    ("random_layered_n100", 90, "fixed"): "MOCCASIN 0.8",
    ("random_layered_n100", 80, "fixed"): "MOCCASIN 2.3",
    ("random_layered_n500", 90, "fixed"): "MOCCASIN 0.7",
    ("random_layered_n500", 80, "fixed"): "MOCCASIN 3.4",
    ("random_layered_n100", 90, "free"): "FastSA 0",
    ("random_layered_n100", 80, "free"): "FastSA 0.3",
    ("random_layered_n500", 90, "free"): "FastSA 0.03",
    ("random_layered_n500", 80, "free"): "FastSA 2.3",
    ("fcn8_vgg_train", 90, "fixed"): "MOCCASIN 0.0",
    ("fcn8_vgg_train", 80, "fixed"): "MOCCASIN 0.1",
}


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder = args, Path(folder)
        self.verifier = Path(args.shared) / "tools" / "verify_plan.py"
        self.is_shared = self.verifier.exists()

    def graph_file(self, name):
        """A shared instance, or a deeper variant of gpt2_12 made at first use; else a generated graph."""
        if not self.is_shared:
            return self.generated(name)
        if not name.startswith("gpt_"):
            return Path(self.args.shared) / "instances" / f"{name}.json"
        path = self.folder / f"{name}.json"
        if not path.exists():
            base = Path(self.args.shared) / "instances" / "torch_gpt2_12.json"
            path.write_text(json.dumps(Unroller(json.loads(base.read_text()), int(name.split("_")[1])).run()))
        return path

    def generated(self, name):
        return command.generate(self.args.remat, self.folder / f"{name}.json", GENERATED[name])

    def plan(self, case, seed):
        graph, out = self.graph_file(case["graph"]), self.folder / "plan.json"
        words = ["plan", graph, "--budget", f"{case['budget']}%", "--order", case["order"]]
        words += ["--planner", self.args.planner, "--threads", 1, "--seed", seed, "--gap", 0, "-o", out]
        if self.args.work:
            words += ["--work-limit", int(case["limit"] * UNITS_PER_SECOND)]
        else:
            words += ["--time-limit", f"{case['limit']}s"]
        for option in self.args.set:
            words += ["--set", option]
        out.unlink(missing_ok=True)
        begun = time.monotonic()
        done = command.run(self.args.remat, *words)
        run = {"seed": seed, "exit": done.code, "seconds": round(time.monotonic() - begun, 3)}
        if done.code == 0:
            run.update(self.check(graph, out, case))
        if done.said:
            names = ("status", "planner", "gap", "duration_lower_bound")
            run.update({name: done.said.get(name) for name in names})
        return run

    def check(self, graph, out, case):
        if not self.is_shared:
            return self.check_with_remat(graph, out, case)
        done = subprocess.run(
            [sys.executable, str(self.verifier), str(graph), str(out)], capture_output=True, text=True
        )
        if done.returncode != 0:
            raise SystemExit(f"{case}: the verifier refuses the plan: {done.stdout}{done.stderr}")
        found = json.loads(done.stdout)
        if not found["all_ops"] or found["peak"] > case["budget"] * found["keep_all_peak"] // 100:
            raise SystemExit(f"{case}: the plan leaves ops out or is over the budget: {found}")
        return {"overhead": found["overhead_pct"], "peak_percent": found["peak_pct"]}

    def check_with_remat(self, graph, out, case):
        budget = f"{case['budget']}%"
        found = command.run(self.args.remat, "check", graph, out, "--budget", budget, codes=(0,)).said
        return {
            "overhead": 100 * found["overhead"],
            "peak_percent": 100 * found["peak"] / found["keep_all_peak"],
        }


def meets(asked, run):
    if asked == "infeasible":
        return run["exit"] == 2
    if asked == "answer":
        return run["exit"] in (0, 2)
    return run["exit"] == 0 and (asked is None or run["overhead"] <= asked)


def show(case, runs):
    found = [run["overhead"] for run in runs if "overhead" in run]
    median = f"{statistics.median(found):.4g}" if found else "-"
    best = f"{min(found):.4g}" if found else "-"
    met = sum(meets(case["asked"], run) for run in runs)
    published = PUBLISHED.get((case["graph"], case["budget"], case["order"]), "")
    print(
        f"{case['graph']:20} {case['budget']:>3}% {case['order']:5} {case['limit']:>3} s  "
        f"median {median:>7}  best {best:>7}"
        f"  asked {case['asked']!s:>10}  met {met}/{len(runs)}  {runs[0].get('status') or ''}  {published}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--remat", default="build/remat")
    parser.add_argument("--shared", default="../shared")
    parser.add_argument("--planner", default="search")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="cases whose graph name contains this")
    parser.add_argument(
        "--max-limit", type=float, default=1e9, help="only cases of at most this many seconds"
    )
    parser.add_argument("--work", action="store_true", help="limits in work units in place of seconds")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="option of the planner"
    )
    parser.add_argument("-o", "--output", help="writes everything as one JSON file")
    args = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, folder)
        if not bench.is_shared:
            print(f"no instances in {args.shared}: generated graphs of the same models, any answer will do")
        for case in CASES:
            if not bench.is_shared:
                case = {**case, "asked": "answer"}
            if args.only not in case["graph"] or case["limit"] > args.max_limit:
                continue
            runs = [bench.plan(case, seed) for seed in range(1, args.seeds + 1)]
            show(case, runs)
            results.append({**case, "runs": runs, "met": sum(meets(case["asked"], run) for run in runs)})
            if args.output:
                Path(args.output).write_text(
                    json.dumps(
                        {"planner": args.planner, "work": args.work, "set": args.set, "cases": results},
                        indent=1,
                    )
                    + "\n"
                )
    met = sum(result["met"] == len(result["runs"]) for result in results)
    print(f"{met} of {len(results)} cases met with every seed")


if __name__ == "__main__":
    main()
