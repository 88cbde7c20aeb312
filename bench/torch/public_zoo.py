#!/usr/bin/env python3
"""Models of public packages, drawn by a seed: the default `fit` beside eager mode.

    python bench/torch/public_zoo.py --to DIR [--only timm/] [--jobs 2] [--seed 40] [--limit 300]

The budget is 60 % of eager mode's peak in the second step; where that is too little, the least budget that
the error names is given back as it is. That one holds for steps that add to gradients too, so it is shown
as a share of eager mode's peak in those. Three steps are compared: the second and third add to the
gradients (every other model) or make them again, and parameters move before the third. Loss, all gradients,
buffers, inputs and states of generators have to be equal bit for bit, and measured peaks within the budget.

Packages that are not installed are left out, with a line. They are no part of the project's environment:

    pip install --no-deps --target ZOO timm torchvision diffusers torch_geometric monai neuraloperator \\
        tensorly tensorly-torch scipy opt_einsum x-transformers einops einx loguru frozendict \\
        torch-einops-utils nflows normflows zuko torchdiffeq torchsde trampoline torchcde e3nn \\
        opt-einsum-fx vit-pytorch accelerate denoising-diffusion-pytorch ema-pytorch \\
        segmentation-models-pytorch torchaudio pytorch-tabnet
    PYTHONPATH=ZOO python bench/torch/public_zoo.py --to DIR

Each model runs in a process of its own with one thread. DIR keeps what was drawn and a row for each model;
what is there is not run again. Prints a table and what went wrong, and exits with 1 if anything did.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

WORKER = Path(__file__).parent / "public" / "worker.py"
sys.path.insert(0, str(WORKER.parent))
from packages import packages  # noqa: E402

Row = dict[str, Any]
OUTCOMES = ("equal", "refused", "wrong", "above", "exception", "minutes", "eager mode fails")
# Of processor time; what takes longer is no answer while somebody waits.
MINUTES = 60.0


def called(arguments: Sequence[str], limit: float) -> tuple[Any, str]:
    """What a worker printed, and what it said where it printed nothing."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    try:
        done = subprocess.run(
            [sys.executable, str(WORKER), *arguments],
            capture_output=True,
            text=True,
            timeout=limit,
            env=environment,
        )
    except subprocess.TimeoutExpired as error:
        stages = (error.stdout or b"").decode().splitlines()
        return None, f"more than {limit:.0f} s, in {stages[-1] if stages else 'the beginning'}"
    lines = done.stdout.splitlines()
    if done.returncode == 0 and lines:
        return json.loads(lines[-1]), done.stderr
    return None, f"exit {done.returncode}: {(done.stderr.strip().splitlines() or [''])[-1][:300]}"


def drawn(name: str, seed: int, folder: Path) -> list[str]:
    """Models of a package, in the folder if they were drawn before."""
    file = folder / f"drawn-{name}-{seed}.json"
    if not file.exists():
        names, said = called(["--draw", name, str(seed)], 1800)
        if names is None:
            print(f"{name}: nothing drawn ({said})", flush=True)
            return []
        file.write_text(json.dumps(names))
        (folder / f"drawn-{name}-{seed}.txt").write_text(said)
    found: list[str] = json.loads(file.read_text())
    return found


def run(name: str, model: str, adds: bool, limit: float) -> Row:
    start = time.perf_counter()
    row, said = called([name, model, str(int(adds))], limit)
    if row is None:
        late = said.startswith("more than")
        ours = not late or " in fit" in said or " in planned steps" in said
        row = {
            "outcome": "minutes" if late and ours else "exception" if ours else "eager mode fails",
            "why": said,
        }
    if row["outcome"] == "equal" and row["fit_s"] > MINUTES:
        row |= {"outcome": "minutes", "why": f"fit took {row['fit_s']:.0f} s of processor time"}
    row |= {"package": name, "model": model, "adds": adds, "wall_s": round(time.perf_counter() - start, 1)}
    return row


def kept_rows(file: Path) -> dict[tuple[str, str], Row]:
    if not file.exists():
        return {}
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return {(row["package"], row["model"]): row for row in rows}


def tried(arguments: argparse.Namespace) -> list[Row]:
    """Rows of all that was asked for."""
    folder = Path(arguments.to)
    folder.mkdir(parents=True, exist_ok=True)
    rows = kept_rows(folder / "rows.jsonl")
    asked = []
    for name, package in packages().items():
        if arguments.only and not (arguments.only.startswith(name + "/") or name.startswith(arguments.only)):
            continue
        if find_spec(package.module) is None:
            print(f"{name}: not installed", flush=True)
            continue
        for number, model in enumerate(drawn(name, arguments.seed, folder)):
            if f"{name}/{model}".startswith(arguments.only):
                asked.append((name, model, number % 2 == 1))

    def one(item: tuple[str, str, bool]) -> Row:
        if item[:2] not in rows:
            row = rows[item[:2]] = run(*item, arguments.limit)
            with (folder / "rows.jsonl").open("a") as out:
                out.write(json.dumps(row) + "\n")
            print(line(row), flush=True)
        return rows[item[:2]]

    with ThreadPoolExecutor(arguments.jobs) as pool:
        return list(pool.map(one, asked))


def line(row: Row) -> str:
    share = ""
    if "budget" in row:
        # Older rows do not have it.
        peak = row.get("eager_adding_peak", 0) if row["least"] else row["eager_peak"]
        share = f"{100 * row['budget'] / max(peak, row['eager_peak']):.0f} %"
    took = f"fit {row['fit_s']:.0f} s" if "fit_s" in row else ""
    return f"{row['package']}/{row['model']}: {row['outcome']} {share} {took} {row.get('why', '')}"


def table(rows: list[Row]) -> str:
    """A line for each package, and one for each model that is not equal."""
    lines = [
        "| package | models | at 60 % | at least known | " + " | ".join(OUTCOMES[1:]) + " | fit s, median |"
    ]
    lines.append("|---" * (len(OUTCOMES) + 4) + "|")
    names = list(dict.fromkeys(row["package"] for row in rows))
    for name in [*names, "all"]:
        mine = [row for row in rows if name in ("all", row["package"])]
        counts = Counter(row["outcome"] for row in mine)
        least = sum(row["outcome"] == "equal" and row["least"] for row in mine)
        seconds = sorted(row["fit_s"] for row in mine if "fit_s" in row)
        cells = [len(mine), counts["equal"] - least, least, *(counts[outcome] for outcome in OUTCOMES[1:])]
        median = f"{seconds[len(seconds) // 2]:.1f}" if seconds else ""
        lines.append(f"| {name} | " + " | ".join(map(str, cells)) + f" | {median} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", required=True, help="a folder for what was drawn and for rows")
    parser.add_argument("--only", default="", help="PACKAGE or PACKAGE/MODEL, or the beginning of it")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--seed", type=int, default=40, help="draws the models")
    parser.add_argument("--limit", type=float, default=300, help="seconds for a model")
    rows = tried(parser.parse_args())
    print("\n" + table(rows))
    failed = [row for row in rows if row["outcome"] not in ("equal", "eager mode fails")]
    for row in failed:
        print(line(row))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
