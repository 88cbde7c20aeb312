#!/usr/bin/env python3
"""Memory of exported models in ExecuTorch, placed by its own algorithms and by `remat.executorch.layout`.

    pip install executorch==1.5.1 torchvision==0.28.0 transformers
    python3 bench/torch/executorch_arenas.py --write docs/executorch.md

Small models with random weights, on the CPU without delegates. ExecuTorch's verifier looks at every plan, and
the emitted program runs: its outputs must be those of the program that `greedy` placed, bit for bit.
"""

from __future__ import annotations

import argparse
import copy
import functools
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import remat.executorch
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir.memory_planning import MemoryPlanningAlgorithmSuite, Verifier, greedy, naive
from executorch.exir.passes import MemoryPlanningPass
from executorch.runtime import Runtime
from public.packages import prepare_imports
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import command

SIDE = 96
TOKENS = 32
TRANSFORMERS: dict[str, dict[str, Any]] = {
    "Bert": {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 512},
    "GPT2": {"n_embd": 128, "n_layer": 4, "n_head": 4},
    "Llama": {
        "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 384,
    },
    "Albert": {
        "embedding_size": 64, "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
        "intermediate_size": 512,
    },
    "ViT": {
        "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 512,
        "image_size": SIDE,
    },
}  # fmt: skip
TORCHVISION = ("resnet18", "mobilenet_v3_small", "efficientnet_b0", "densenet121", "swin_t")


class FirstOutput(nn.Module):
    """A model of transformers whose one output is a tensor."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.model(inputs, return_dict=False)[0]


def of_transformers(name: str) -> tuple[nn.Module, tuple[torch.Tensor]]:
    library = importlib.import_module("transformers")
    settings = dict(TRANSFORMERS[name])
    images = "image_size" in settings
    if not images:
        settings |= {"vocab_size": 256}
    if name in ("GPT2", "Llama"):
        settings |= {"use_cache": False}
    config = getattr(library, f"{name}Config")(**settings, attn_implementation="eager")
    model = getattr(library, f"{name}Model")(config).eval()
    inputs = torch.randn(1, 3, SIDE, SIDE) if images else torch.randint(256, (1, TOKENS))
    return FirstOutput(model), (inputs,)


def of_torchvision(name: str) -> tuple[nn.Module, tuple[torch.Tensor]]:
    models = importlib.import_module("torchvision.models")
    return models.get_model(name, weights=None).eval(), (torch.randn(1, 3, SIDE, SIDE),)


@dataclass
class Planned:
    bytes: int
    outputs: list[torch.Tensor]


def planned(edge: Any, algorithm: Callable[..., Any], inputs: tuple[torch.Tensor]) -> Planned:
    """The program placed by one algorithm, verified and run."""
    suite = MemoryPlanningAlgorithmSuite([algorithm])
    config = ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(suite))
    program = copy.deepcopy(edge).to_executorch(config)  # it changes the program
    exported = program.exported_program()
    Verifier(exported.graph_module, True, True, True, exported.graph_signature).verify_storage_reuse()
    method = Runtime.get().load_program(program.buffer).load_method("forward")
    outputs = [output.clone() for output in method.execute(inputs)]
    return Planned(sum(exported.graph_module.meta["non_const_buffer_sizes"]), outputs)


def row_of(name: str, failures: list[str]) -> str:
    torch.manual_seed(0)
    model, inputs = of_transformers(name) if name in TRANSFORMERS else of_torchvision(name)
    edge = to_edge(torch.export.export(model, inputs))
    layouts: list[remat.LayoutResult] = []
    ours = functools.partial(remat.executorch.layout, on_layout=lambda memory, result: layouts.append(result))
    by_naive, by_greedy, by_remat = (planned(edge, algorithm, inputs) for algorithm in (naive, greedy, ours))
    if by_remat.bytes > min(by_greedy.bytes, by_naive.bytes):
        failures.append(f"{name}: {by_remat.bytes} bytes, {by_greedy.bytes} by greedy")
    if not all(map(torch.equal, by_remat.outputs, by_greedy.outputs)):
        failures.append(f"{name}: other outputs than the program that greedy placed")
    if not torch.allclose(by_remat.outputs[0], model(*inputs), atol=1e-3):
        failures.append(f"{name}: other outputs than eager mode")
    bound = sum(layout.arena_lower_bound for layout in layouts)
    tensors = sum(len(layout.offsets) for layout in layouts)
    seconds = sum(layout.seconds for layout in layouts)
    return (
        f"| {name} | {tensors} | {by_naive.bytes:,} | {by_greedy.bytes:,} | {by_remat.bytes:,} | {bound:,} "
        f"| {100 * (by_greedy.bytes / by_remat.bytes - 1):.1f} % | {1000 * seconds:.1f} ms |"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", type=Path, help="put the table into this page")
    parser.add_argument("--only", action="append", choices=[*TORCHVISION, *TRANSFORMERS])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    prepare_imports()
    rows = [
        "| model | tensors | naive | greedy | remat | lower bound | greedy over remat | layout |",
        "|---|---|---|---|---|---|---|---|",
    ]
    failures: list[str] = []
    for name in arguments.only or [*TORCHVISION, *TRANSFORMERS]:
        rows.append(row_of(name, failures))
        print(rows[-1], flush=True)
    if arguments.write:
        command.write(arguments.write, "bench/torch/executorch_arenas.py writes", rows)
    for failure in failures:
        print("MISSED:", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
