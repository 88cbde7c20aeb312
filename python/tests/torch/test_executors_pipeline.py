"""Policies of a pipeline's stages, carried out by `torch.utils.checkpoint` on the modules that they name."""

from __future__ import annotations

import collections
import json
from pathlib import Path
from typing import Any

import pytest
import remat
import remat.torch
import torch
from remat_models.example import GPT, Config
from torch.utils._python_dispatch import TorchDispatchMode

ROOT = Path(__file__).resolve().parents[3]
Inputs = tuple[torch.Tensor, torch.Tensor]


class _Counting(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.calls: collections.Counter[str] = collections.Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls[str(func)] += 1
        return func(*args, **(kwargs or {}))


def _loader() -> dict[str, Any]:
    """The lines of docs/executors.md."""
    blocks = (ROOT / "docs/executors.md").read_text().split("```python\n")[1:]
    (found,) = [block.split("```")[0] for block in blocks if "def load_policies" in block]
    names: dict[str, Any] = {}
    exec(found, names)
    return names


def _model() -> tuple[GPT, Inputs]:
    torch.manual_seed(0)
    model = GPT(Config(layers=6, width=64, heads=2, context=64, dropout=0.0))
    return model, (torch.randint(128, (4, 64)), torch.randint(128, (4, 64)))


def _step(model: GPT, inputs: Inputs) -> tuple[list[torch.Tensor], collections.Counter[str]]:
    model.zero_grad()
    with _Counting() as counting:
        model(*inputs).backward()
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    return gradients, counting.calls


@pytest.mark.filterwarnings("ignore:the machine is busy")
def test_stages_save_what_their_policies_say(tmp_path: Path) -> None:
    model, inputs = _model()
    graph = remat.torch.capture(model, inputs)
    wide = remat.pipeline(graph, 2, microbatches=4, executor="checkpoint")
    budget = wide.stages[0].peak * 3 // 4
    found = remat.pipeline(graph, 2, microbatches=4, executor="checkpoint", budget=budget, check=True)
    (stage,) = [s for s in found.stages if s.device == 0]
    path = tmp_path / "stage0.json"
    path.write_text(json.dumps(remat.checkpoint_file(stage)))
    names = [name for name, runs_again, _ in stage.policies if runs_again]
    assert names
    assert set(names) <= {f"blocks.{i}" for i in range(6)}
    plain, before = _step(model, inputs)
    _loader()["load_policies"](model, path)
    gradients, after = _step(model, inputs)
    assert all(torch.equal(a, b) for a, b in zip(plain, gradients, strict=True))
    # Of the four products of a block the backward needs nothing that follows from the last one.
    unsaved = [
        len({0, 1, 2} - {*saved.get("aten.addmm.default", [])}) for _, again, saved in stage.policies if again
    ]
    assert after["aten.addmm.default"] - before["aten.addmm.default"] == sum(unsaved)
    attention = "aten._scaled_dot_product_flash_attention_for_cpu.default"
    without = [1 - len(saved.get(attention, [])) for _, again, saved in stage.policies if again]
    assert after[attention] - before[attention] == sum(without)
