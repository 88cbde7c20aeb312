#!/usr/bin/env python3
"""GPT-2 in eager mode, with gradient checkpointing, and under plans: memory, time, losses, gradient norms.

    python bench/torch/gpt2.py [--threads 2] [--budgets 60%,2.6GB] [--compiled 0.5]

`transformers`' GPT-2 with random weights and random tokens, so nothing is downloaded. One process for each
row, all from the same seed; the table says

- resident: the highest resident set of the whole process, with libraries, tracing and planning;
- peak: the CPU allocator's own peak during a step, parameters and gradients included (what a budget covers);
- a step: median of the steps after the first, forward, backward and optimizer, beside eager mode's; CPU: the
  same in processor time;
- equal: whether all losses and gradient norms are those of eager mode in every digit.

The selective row keeps the results of matrix products and attention and recomputes the rest of each layer.
`--compiled` adds rows of `torch.compile` with that `activation_memory_budget`: Inductor's kernels, whose last
bits are others.

The defaults are GPT-2 small, 124 M parameters, 4 x 512 tokens: about ten minutes on two cores and 8 GB of
memory. Ends with exit code 1 where a row failed, a plan is over its budget, or a row with the kernels of
eager mode differs from it.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from rows import memory_of_process, run_apart

# The allocator warns about blocks that are older than a measurement.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

EAGER = "eager"
CHECKPOINTING = "gradient_checkpointing_enable()"
SELECTIVE = "selective checkpointing"
COMPILED = "torch.compile, memory budget "


@dataclass
class Row:
    """The results of one process: bytes and seconds."""

    name: str
    resident: int
    peak: int
    step: float
    cpu: float
    planning: float
    budget: int | None
    losses: list[float]
    norms: list[float]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, default, text in (
        ("layers", 12, "layers"),
        ("width", 768, "width of the hidden states"),
        ("heads", 12, "attention heads"),
        ("vocabulary", 50257, "tokens there are"),
        ("batch", 4, "sequences a step"),
        ("length", 512, "tokens a sequence"),
        ("steps", 4, "steps; the first is not timed"),
        ("threads", 2, "threads of PyTorch"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{text} ({default})")
    parser.add_argument("--budgets", default="60%,2.6GB", help="of the planned rows (60%%,2.6GB)")
    parser.add_argument("--compiled", default="", help="shares for torch.compile, such as 1,0.5 (none)")
    parser.add_argument("--child", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def enable_selective_checkpointing(model: Any) -> None:
    """Per layer, with the results of matrix products and attention kept."""
    import torch
    from remat.torch.base.private import unseen_by_hooks
    from torch.utils.checkpoint import create_selective_checkpoint_contexts

    aten = torch.ops.aten
    kept = [aten.mm.default, aten.addmm.default, aten._scaled_dot_product_flash_attention_for_cpu.default]
    contexts = functools.partial(create_selective_checkpoint_contexts, kept)
    model.gradient_checkpointing_enable({"use_reentrant": False, "context_fn": contexts, **unseen_by_hooks()})


def make_model(options: argparse.Namespace) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        n_layer=options.layers,
        n_embd=options.width,
        n_head=options.heads,
        vocab_size=options.vocabulary,
        n_positions=max(1024, options.length),
        bos_token_id=0,
        eos_token_id=0,
        use_cache=False,
    )
    return GPT2LMHeadModel(config).train()


def prepare(model: Any, row: str, batch: dict[str, Any]) -> Any:
    """The model of the row."""
    import remat.torch
    import torch

    if row == CHECKPOINTING:
        model.gradient_checkpointing_enable()
    elif row == SELECTIVE:
        enable_selective_checkpointing(model)
    elif row.startswith(COMPILED):
        torch._functorch.config.activation_memory_budget = float(row.removeprefix(COMPILED))
        return torch.compile(model)
    elif row != EAGER:
        return remat.torch.fit(
            model, batch, row, loss=lambda outputs: outputs.loss, outputs="dropped", accumulate=False
        )
    return model


def measure_row(options: argparse.Namespace) -> Row:
    """Trains in this process by the row's settings."""
    import remat.torch
    import torch

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model = make_model(options)
    tokens = torch.randint(options.vocabulary, (options.batch, options.length))
    batch = {"input_ids": tokens, "labels": tokens}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    start = time.perf_counter()
    model = prepare(model, options.child, batch)
    planning = time.perf_counter() - start
    losses, norms, seconds, cpu = [], [], [], []

    def forward_and_backward() -> None:
        loss = model(**batch).loss
        loss.backward()
        losses.append(loss.item())

    torch.manual_seed(1)
    for _ in range(options.steps):
        start, start_cpu = time.perf_counter(), time.process_time()
        optimizer.zero_grad()
        forward_and_backward()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
        cpu.append(time.process_time() - start_cpu)
        gradients = [p.grad for p in model.parameters()]
        norms.append(torch.nn.utils.get_total_norm(gradients).item())
        del gradients
    resident = memory_of_process("VmHWM")
    optimizer.zero_grad()
    peak = remat.torch.measure_peak(forward_and_backward, resident=[model, optimizer, tokens])
    budget = getattr(getattr(model, "remat", None), "budget", None)
    return Row(
        options.child,
        resident,
        peak,
        statistics.median(seconds[1:]),
        statistics.median(cpu[1:]),
        planning,
        budget,
        losses,
        norms,
    )


def in_bytes(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.3g} MB"


def same(row: Row, eager: Row) -> bool:
    return row.losses == eager.losses and row.norms == eager.norms


def line(row: Row, eager: Row) -> str:
    name = row.name if row.budget is None else f"Remat, budget {row.name}"
    equal = same(row, eager)
    planning = "" if row.budget is None else f"{row.planning:.0f} s"
    return (
        f"{name:<33} {in_bytes(row.resident):>9} {in_bytes(row.peak):>9} {row.step:7.3g} s "
        f"{row.step / eager.step:6.2f} {row.cpu:7.3g} s {planning:>8} {'yes' if equal else 'NO':>6}"
    )


def main() -> int:
    options = parse_arguments()
    if options.child:
        print(json.dumps(asdict(measure_row(options))))
        return 0
    head = ("resident", "peak", "a step", "ratio", "CPU", "planning", "equal")
    print(f"{'':<33} {'{:>9} {:>9} {:>9} {:>6} {:>9} {:>8} {:>6}'.format(*head)}")
    good, eager = True, None
    compiled = [COMPILED + share for share in options.compiled.split(",") if share]
    for name in (EAGER, CHECKPOINTING, SELECTIVE, *compiled, *options.budgets.split(",")):
        found = run_apart(name)
        if found is None:
            return 1
        row = Row(**found)
        eager = eager or row
        print(line(row, eager), flush=True)
        good &= same(row, eager) or name in compiled
        good &= row.budget is None or row.peak <= row.budget
    print(f"load of the machine at the end: {os.getloadavg()[0]:.1f}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
