#!/usr/bin/env python3
"""Table 4 of the HiREmate paper on graphs captured from PyTorch, with other planners for comparison.

    python bench/hiremate/captured.py [--remat build/remat] [--models gpt24,unet] [--budget 50%]
                                      [--keep FOLDER] [--order fixed] [--time-limit 60s] [--threads 2]

The twelve networks are captured on the device `meta` with roofline times of an A100, which needs neither
their memory nor a GPU. Columns: as in the table, memory and overhead of `hiremate` as the defaults have it;
the overhead of the published method, of tw_remat, search and auto at the same budget, order and time limit.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

import remat.torch
import torch
from remat_models import zoo
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import command

Inputs = tuple[torch.Tensor, ...]


class UFourierLayer(zoo.SpectralLayer):
    """A Fourier layer plus a small U-Net. Wen et al. 2022."""

    def __init__(self, width: int, modes: int) -> None:
        super().__init__(width, modes, 3)
        self.down = nn.ModuleList(
            nn.Sequential(nn.Conv3d(width, width, 3, 2, 1), nn.BatchNorm3d(width), nn.LeakyReLU(0.1))
            for _ in range(2)
        )
        self.up = nn.ModuleList(nn.ConvTranspose3d(width * i, width, 2, 2) for i in (1, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        half = self.down[0](x)
        quarter = self.down[1](half)
        around = self.up[1](torch.cat((self.up[0](quarter), half), 1))
        return super().forward(x) + around


class UFNO(nn.Module):
    """Fourier layers, then Fourier layers with U-Nets."""

    def __init__(self, width: int, modes: int) -> None:
        super().__init__()
        self.lift, self.project = nn.Conv3d(1, width, 1), nn.Conv3d(width, 1, 1)
        self.layers = nn.Sequential(
            *(zoo.SpectralLayer(width, modes, 3) for _ in range(3)),
            *(UFourierLayer(width, modes) for _ in range(3)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.project(self.layers(self.lift(x)))


class UNO(nn.Module):
    """Fourier layers at falling and rising resolution with skip connections. Rahman et al. 2022."""

    def __init__(self, width: int, modes: int, depth: int) -> None:
        super().__init__()
        self.lift, self.project = nn.Conv3d(1, width, 1), nn.Conv3d(width, 1, 1)
        self.down = nn.ModuleList(
            zoo.SpectralLayer(width * 2**i, max(1, modes // 2**i), 3) for i in range(depth)
        )
        self.wider = nn.ModuleList(nn.Conv3d(width * 2**i, width * 2 ** (i + 1), 1) for i in range(depth))
        self.bottom = zoo.SpectralLayer(width * 2**depth, max(1, modes // 2**depth), 3)
        self.narrow = nn.ModuleList(nn.Conv3d(3 * width * 2**i, width * 2**i, 1) for i in range(depth))
        self.up = nn.ModuleList(
            zoo.SpectralLayer(width * 2**i, max(1, modes // 2**i), 3) for i in range(depth)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.lift(x)
        skips = []
        for layer, wider in zip(self.down, self.wider, strict=True):
            x = layer(x)
            skips.append(x)
            x = functional.avg_pool3d(wider(x), 2)
        x = self.bottom(x)
        for i in reversed(range(len(self.up))):
            x = functional.interpolate(x, scale_factor=2.0)
            x = self.up[i](self.narrow[i](torch.cat((x, skips[i]), 1)))
        return self.project(x)


Build = Callable[[], tuple[nn.Module, Any]]
MODELS: dict[str, Build] = {
    "gpt24": lambda: (zoo.gpt2(24, 1024, 8192), zoo.tokens(8, 512, 8192)),
    "gpt96": lambda: (zoo.gpt2(96, 768, 8192), zoo.tokens(8, 512, 8192)),
    "unet": lambda: (zoo.UNet(64, 4), zoo.pictures(8, 256)),
    "mixer": lambda: (zoo.Mixer(12, 768, 224), zoo.pictures(32, 224)),
    "regnet32": lambda: (zoo.ResNet(80, (2, 5, 8, 2), 8), zoo.pictures(32, 112)),
    "resnet101": lambda: (zoo.ResNet(128, (3, 4, 23, 3)), zoo.pictures(32, 112)),
    "transformer6": lambda: (zoo.Translator(6, 512), zoo.sentences(64, 200)),
    "transformer36": lambda: (zoo.Translator(36, 512), zoo.sentences(64, 200)),
    "fno1d": lambda: (zoo.FNO(4, 64, 16, 1), zoo.fields(256, 8192, 1)),
    "fno3d": lambda: (zoo.FNO(4, 20, 8, 3), zoo.fields(10, 64, 3)),
    "ufno": lambda: (UFNO(36, 10), zoo.fields(4, 64, 3)),
    "uno": lambda: (UNO(16, 16, 3), zoo.fields(4, 64, 3)),
}
PLANNERS: dict[str, tuple[str, dict[str, str]]] = {
    "hiremate": ("hiremate", {}),
    "published": ("hiremate", {"preset": "published"}),
    "tw_remat": ("tw_remat", {}),
    "search": ("search", {}),
    "auto": ("auto", {}),
}


def loss(outputs: Any) -> torch.Tensor:
    return zoo.hf_loss(outputs) if hasattr(outputs, "loss") else outputs.float().square().mean()


def capture(name: str, path: Path) -> float:
    """Writes the graph of a training step; seconds."""
    start = time.perf_counter()
    with torch.device("meta"):
        model, inputs = MODELS[name]()
    graph = remat.torch.capture(model, inputs, loss=loss, costs="roofline", device="a100")
    graph.save(path)
    return time.perf_counter() - start


def plan(args: argparse.Namespace, graph: Path, planner: str, options: dict[str, str]) -> command.Run:
    words = ["plan", graph, "--budget", args.budget, "--planner", planner, "--order", args.order]
    words += ["--time-limit", args.time_limit, "--gap", "0", "--threads", args.threads]
    for key, value in options.items():
        words += ["--set", f"{key}={value}"]
    return command.run(args.remat, *words)


def overhead(result: dict) -> str:
    if result["status"] not in ("optimal", "feasible"):
        return result["status"][:6]
    return f"{100 * result['overhead']:.2f}{'*' if result['status'] == 'optimal' else ''}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--remat", default="build/remat")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--budget", default="50%")
    parser.add_argument("--time-limit", default="60s")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--order", default="fixed")
    parser.add_argument("--keep", type=Path, help="folder for the graphs, taken from there if present")
    args = parser.parse_args()
    print(
        f"{'':14} {'ops':>5} {'levels':>6} {'groups':>6} {'distinct':>8} {'largest':>7} {'wall s':>7} "
        f"{'cpu s':>6} {'memory':>7}  overhead in %: " + " ".join(f"{p:>9}" for p in PLANNERS)
    )
    with tempfile.TemporaryDirectory() as folder:
        for name in args.models.split(","):
            path = (args.keep or Path(folder)) / f"{name}.json"
            if not path.exists():
                capture(name, path)
            info = command.run(args.remat, "partition", path).said
            runs = {p: plan(args, path, *how) for p, how in PLANNERS.items()}
            cpu, one = runs["hiremate"].cpu, runs["hiremate"].said
            memory = f"{100 * one['peak'] / one['keep_all_peak']:.1f}%" if one.get("peak") else "-"
            print(
                f"{name:14} {info['ops']:5} {info['levels']:6} {info['groups']:6} "
                f"{info['distinct_groups']:8} {info['largest_group']:7} {one['seconds']:7.1f} "
                f"{cpu:6.1f} {memory:>7}                 "
                + " ".join(f"{overhead(r.said):>9}" for r in runs.values()),
                flush=True,
            )


if __name__ == "__main__":
    main()
