"""The lines of docs/frameworks.md, in the frameworks that are installed."""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path
from typing import Any

import pytest
import remat.torch
import torch
from remat_models.example import GPT, Config
from torch import nn

DOCS = Path(__file__).resolve().parents[3] / "docs"
pytestmark = pytest.mark.filterwarnings("ignore")  # of the frameworks


def _lines(page: str, after: str, containing: str = "") -> str:
    text = (DOCS / page).read_text(encoding="utf-8").split(after, 1)[1]
    blocks = [block.split("```")[0] for block in text.split("```python\n")[1:]]
    return next(block for block in blocks if containing in block)


def _named(title: str, **given: Any) -> dict[str, Any]:
    """What the lines of a framework define, the loader beside them."""
    names: dict[str, Any] = dict(given)
    exec(_lines("executors.md", "\n", "def load_policies"), names)
    exec(_lines("frameworks.md", f"\n## {title}\n"), names)
    return names


def _needs(*packages: str) -> None:
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


def _gradients(model: nn.Module, run: Any) -> list[torch.Tensor]:
    run(model).backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


def _same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def _export(model: nn.Module, batch: Any, folder: Path, **more: Any) -> str:
    path = folder / "policies.json"
    remat.torch.checkpoint_policy(model, batch, "70%", compare=False, **more).export(path)
    assert '"save"' in path.read_text()
    return str(path)


def _llama() -> tuple[Any, dict[str, torch.Tensor]]:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 4}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=500, use_cache=False, **sizes, **heads))
    ids = torch.randint(500, (4, 64))
    return model, {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


def test_torchtitan_applies_the_policies(tmp_path: Path) -> None:
    _needs("torchtitan")
    torch.manual_seed(0)
    model = GPT(Config(layers=4, width=64, heads=2, context=64, dropout=0.0))
    batch = torch.randint(128, (4, 64)), torch.randint(128, (4, 64))
    expected = _gradients(copy.deepcopy(model), lambda m: m(*batch))
    policies = _export(model, batch, tmp_path)
    _named("torchtitan")["PlannedAC"].Config(policies=policies).build().apply(model)
    assert _same(_gradients(model, lambda m: m(*batch)), expected)


def test_torchtune_models_take_the_policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _needs("torchtune", "torchao")
    tokens, labels = torch.randint(128, (4, 64)), torch.randint(128, (4, 64))

    def loss(logits: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

    lines = _lines("frameworks.md", "\n## torchtune\n")
    made: dict[str, Any] = {"load_policies": lambda model, path: None}
    torch.manual_seed(0)
    exec(lines, made)
    model = made["model"]
    expected = _gradients(copy.deepcopy(model), lambda m: loss(m(tokens)))
    _export(model, (tokens,), tmp_path, loss=loss)
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    planned = _named("torchtune")["model"]
    assert _same(_gradients(planned, lambda m: loss(m(tokens))), expected)


def test_axolotl_calls_the_plugin(tmp_path: Path) -> None:
    _needs("axolotl", "peft", "addict")
    from axolotl.integrations.base import PluginManager

    model, batch = _llama()
    expected = _gradients(copy.deepcopy(model), lambda m: m(**batch).loss)
    policies = _export(model, batch, tmp_path)
    manager = PluginManager.get_instance()
    manager.plugins["remat"] = _named("axolotl")["RematPlugin"]()
    manager.post_model_load({"remat_policies": policies}, model)
    assert _same(_gradients(model, lambda m: m(**batch).loss), expected)


@pytest.mark.long
def test_trl_trains_a_model_with_policies(tmp_path: Path) -> None:
    _needs("trl", "transformers", "datasets")
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    from trl import SFTTrainer

    model, batch = _llama()
    plain = copy.deepcopy(model)
    settings = {"max_steps": 3, "use_cpu": True, "bf16": False, "report_to": [], "disable_tqdm": True}
    given = {"model": model, "batch": batch, "remat": remat, "folder": str(tmp_path), "settings": settings}
    names = _named("TRL", **given)
    assert any("forward" in vars(layer) for layer in model.model.layers)
    arguments = names["arguments"]
    data = Dataset.from_list([{"input_ids": row} for row in torch.randint(500, (24, 64)).tolist()])
    for trained in (model, plain):
        words = Tokenizer(models.WordLevel({str(i): i for i in range(500)}, unk_token="0"))
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="1", pad_token="0")
        SFTTrainer(trained, arguments, train_dataset=data, processing_class=tokenizer).train()
    assert _same(list(model.parameters()), list(plain.parameters()))
    assert not torch.equal(next(model.parameters()), next(_llama()[0].parameters()))
