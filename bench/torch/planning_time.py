#!/usr/bin/env python3
"""Time of planning: a first and a second start with a folder for plans, and a model of 7 B parameters.

    python bench/torch/planning_time.py starts [--models gpt,encoder,conv_net,mlp] [--budget 60%]
    python bench/torch/planning_time.py depth [--layers 12,96] [--widths 256,64] [--budget 60%] [--use-cache]
    python bench/torch/planning_time.py lengths [--layers 8] [--width 128] [--count 20] [--compile]
    python bench/torch/planning_time.py llama [--layers 32] [--batch 4] [--sequence 2048] [--budget 75%]

`starts`: each start is a process of its own; the seconds are those that `fit` spends on tracing, on measuring
ops, and on planning (the reading of the folder included), and the processor time of the whole process.

`depth`: GPT-2 of `transformers`, batch 4, 128 tokens, one size after another in this process: seconds of the
whole `fit` and of its phases, and its processor time. Without a cache of keys and values, as `Trainer` trains
it, unless that is asked for.

`lengths`: GPT-2, batch 4, one sequence length after another: seconds and processor time of the first step of
each (of `fit` that of 128 tokens comes before), and of all; the median of the lengths from the third on.

`llama`: LlamaForCausalLM of `transformers` in the sizes of Llama 2 7B, its weights on the device "meta"; one
training step in float32 is captured, costed by the roofline of an H100, and planned. Seconds by phase, and
the highest resident set of the process.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import remat
import remat.torch
import torch
from remat_models.example import GPT, Config
from remat_models.small import MLP, ConvNet, Encoder
from rows import run_apart
from torch import nn

MODELS: dict[str, Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]] = {
    "gpt": lambda: (GPT(Config()), (torch.randint(128, (4, 256)), torch.randint(128, (4, 256)))),
    "encoder": lambda: (Encoder(width=256, depth=6), (torch.randn(8, 128, 256),)),
    "conv_net": lambda: (ConvNet(channels=32, depth=8), (torch.randn(16, 3, 48, 48),)),
    "mlp": lambda: (MLP(width=512, depth=12), (torch.randn(2048, 512),)),
}


def one_start(name: str, budget: str, folder: str) -> dict[str, Any]:
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    start = time.perf_counter()
    report = remat.torch.fit(model, inputs, budget, cache_dir=folder).remat.parts[0]
    seconds = time.perf_counter() - start
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        **report.seconds,
        "fit": seconds,
        "cpu": used.ru_utime + used.ru_stime,
        "ops": report.ops,
        "overhead": report.overhead,
        "stored": report.stored,
    }


def starts(models: list[str]) -> None:
    print(
        f"{'model':10} {'start':>6} {'ops':>5} {'trace s':>8} {'measure s':>9} {'plan s':>7} {'fit s':>7} "
        f"{'process s':>9} {'overhead':>8} {'stored':>6}"
    )
    for name in models:
        with tempfile.TemporaryDirectory() as folder:
            for which in ("first", "second"):
                r = run_apart(f"{name} {folder}")
                print(
                    f"{name:10} {which:>6} {r['ops']:5} {r['capture']:8.2f} {r['profile']:9.2f} "
                    f"{r['plan']:7.2f} {r['fit']:7.2f} {r['cpu']:9.2f} {r['overhead']:8.2%} "
                    f"{'yes' if r['stored'] else 'no':>6}",
                    flush=True,
                )


def depth(layers: int, width: int, budget: str, use_cache: bool) -> None:
    from remat_models.zoo import gpt2, hf_loss, tokens

    torch.manual_seed(0)
    torch._dynamo.reset()
    model, inputs = gpt2(layers, width, 2048), tokens(4, 128, 2048)
    model.config.use_cache = use_cache
    start, cpu = time.perf_counter(), time.process_time()
    fitted = remat.torch.fit(model, inputs, budget, loss=hf_loss, outputs="dropped", accumulate=False)
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    (part,) = fitted.remat.parts
    phases = ", ".join(f"{name} {seconds:.1f}" for name, seconds in fitted.remat.seconds.items())
    print(
        f"{layers:3} layers of {width}: {part.ops} ops, {part.distinct_ops} distinct, fit {wall:.1f} s "
        f"({phases}), processor {cpu:.1f} s, overhead {part.overhead:.2%}",
        flush=True,
    )


def lengths(layers: int, width: int, count: int, budget: str, compiles: bool) -> None:
    from remat_models.zoo import gpt2, hf_loss, tokens

    torch.manual_seed(0)
    torch._dynamo.reset()
    model, first = gpt2(layers, width), tokens(4, 128)
    given: dict[str, Any] = {"outputs": "dropped", "accumulate": False, "max_shapes": count + 1}
    start, cpu = time.perf_counter(), time.process_time()
    if compiles:
        run: Any = torch.compile(model, backend="remat", options={"budget": budget, **given})
        hf_loss(run(**first)).backward()
    else:
        run = remat.torch.fit(model, first, budget, loss=hf_loss, dynamic=None, **given)
    steps = []
    for number in range(count):
        inputs = tokens(4, 124 - 4 * number)
        model.zero_grad(set_to_none=True)
        wall_before, cpu_before = time.perf_counter(), time.process_time()
        hf_loss(run(**inputs)).backward()
        steps.append((time.perf_counter() - wall_before, time.process_time() - cpu_before))
    print(
        f"{layers} layers of {width}, {'compile' if compiles else 'fit'}: {count} lengths and the first "
        f"{time.perf_counter() - start:.1f} s, processor {time.process_time() - cpu:.1f} s; new lengths "
        f"{', '.join(f'{wall:.2f}' for wall, _ in steps)} s; from the third on median "
        f"{statistics.median(wall for wall, _ in steps[2:]):.2f} s, processor "
        f"{statistics.median(used for _, used in steps[2:]):.2f} s",
        flush=True,
    )


def llama(layers: int, batch: int, sequence: int, budget: str, time_limit: float) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    def resident() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6

    print(f"imported: {resident():.2f} GB resident")
    # The defaults are those of Llama 2 7B.
    config = LlamaConfig(num_hidden_layers=layers, use_cache=False)
    start = time.perf_counter()
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
        tokens = torch.zeros(batch, sequence, dtype=torch.long)
    print(f"model: {sum(p.numel() for p in model.parameters()) / 1e9:.2f} B parameters")
    inputs = {"input_ids": tokens, "labels": tokens}
    graph = remat.torch.capture(model, inputs, costs="roofline", device="h100")
    print(
        f"captured: {graph.num_ops} ops in {time.perf_counter() - start:.1f} s, {resident():.2f} GB resident"
    )
    print(f"keep-all peak {graph.keep_all_peak / 2**30:.1f} GiB, floor {graph.floor / 2**30:.1f} GiB")
    start = time.perf_counter()
    result = remat.plan(graph, budget=budget, time_limit=time_limit)
    print(f"planned: {result} in {time.perf_counter() - start:.1f} s, {resident():.2f} GB resident")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    many = commands.add_parser("starts")
    many.add_argument("--models", default="gpt,encoder,conv_net,mlp")
    many.add_argument("--budget", default="60%")
    many.add_argument("--child", default="", help=argparse.SUPPRESS)
    deep = commands.add_parser("depth")
    deep.add_argument("--layers", default="12,96")
    deep.add_argument("--widths", default="256,64")
    deep.add_argument("--budget", default="60%")
    deep.add_argument("--use-cache", action="store_true")
    many_lengths = commands.add_parser("lengths")
    many_lengths.add_argument("--layers", type=int, default=8)
    many_lengths.add_argument("--width", type=int, default=128)
    many_lengths.add_argument("--count", type=int, default=20)
    many_lengths.add_argument("--budget", default="60%")
    many_lengths.add_argument("--compile", action="store_true")
    big = commands.add_parser("llama")
    big.add_argument("--layers", type=int, default=32)
    big.add_argument("--batch", type=int, default=4)
    big.add_argument("--sequence", type=int, default=2048)
    big.add_argument("--budget", default="75%")
    big.add_argument("--time-limit", type=float, default=30.0)
    options = parser.parse_args()
    if options.command == "starts" and options.child:
        model, folder = options.child.split()
        print(json.dumps(one_start(model, options.budget, folder)))
    elif options.command == "starts":
        starts(options.models.split(","))
    elif options.command == "depth":
        torch.set_num_threads(1)
        for layers, width in zip(options.layers.split(","), options.widths.split(","), strict=True):
            depth(int(layers), int(width), options.budget, options.use_cache)
    elif options.command == "lengths":
        torch.set_num_threads(1)
        lengths(options.layers, options.width, options.count, options.budget, options.compile)
    else:
        llama(options.layers, options.batch, options.sequence, options.budget, options.time_limit)
    return 0


if __name__ == "__main__":
    sys.exit(main())
