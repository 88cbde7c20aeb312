"""What editors and type checkers see: options, results, and that all of their lists agree."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import remat.torch

ROOT = Path(__file__).resolve().parents[3]

SCRIPT = """
import torch
from typing_extensions import assert_type

import remat
import remat.torch


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.square().mean()


model, x = Model(), torch.randn(4, 8)
options: remat.torch.FitOptions = {"optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "seed": 1}
for row in remat.torch.sweep(model, x, points=3, **options).rows:
    print(remat.format_bytes(row.budget), row.overhead, row.plan.steps)
planned = remat.torch.fit(model, x, "80%", **options)
assert_type(planned.remat, remat.torch.ModelReport)
assert_type(planned.remat.plan, remat.Plan)
assert_type(planned.remat.predicted_peak, int)
model = planned  # it goes wherever the model went
loss: torch.Tensor = model(x)
result = remat.plan(planned.remat.graph, "70%", time_limit=1.0, check=True)
print(result.plan, result.overhead, remat.sweep(planned.remat.graph, points=3).points)
asked: remat.torch.CompileOptions = {"budget": "6GiB", "executor": "inductor"}
"""

MISTAKES = {
    'remat.torch.fit(model, x, "80%", optimiser=None)': 'Unexpected keyword argument "optimiser"',
    'remat.torch.fit(model, x, "80%", executor="fast")': 'Argument "executor"',
    'no_budget: remat.torch.CompileOptions = {"seed": 1}': 'Missing key "budget"',
    'remat.plan(planned.remat.graph, "70%", order="any")': 'Argument "order"',
    "planned.remat.peek": 'has no attribute "peek"',
}


@pytest.mark.long
def test_a_users_script_is_checked_in_strict_mode(tmp_path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed")
    script, cache = tmp_path / "script.py", tmp_path / "cache"

    script.write_text(SCRIPT + "\n".join(MISTAKES))
    check = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-codes"]
    done = subprocess.run(
        [*check, "--config-file=", f"--cache-dir={cache}", str(script)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    found = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert len(found) == len(MISTAKES)
    for message in MISTAKES.values():
        assert any(message in error for error in found), message


def test_typed_options_are_those_that_are_checked() -> None:
    fields = {f.name: f.type for f in dataclasses.fields(remat.torch.Options)}
    assert fields.pop("budget") == "int | str"
    typed = remat.torch.FitOptions.__annotations__
    texts: dict[str, Any] = {name: getattr(hint, "__forward_arg__", hint) for name, hint in typed.items()}
    assert texts == fields
    assert set(get_type_hints(remat.torch.CompileOptions)) == {"budget", *fields}


def test_help_and_the_page_name_every_option_in_the_same_way() -> None:
    names = [f.name for f in dataclasses.fields(remat.torch.Options)]
    page = (ROOT / "docs/torch_reference.md").read_text()
    table = page[page.index("\n| option |") : page.index("\n## Executors")]
    documented = re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in table.splitlines() if row))
    assert sorted(documented) == sorted(names)
    for text in (remat.torch.fit.__doc__, remat.torch.Options.__doc__):
        assert text is not None
        missing = [name for name in names if not re.search(rf"^ +(\w+, )*{name}[:,]", text, re.M)]
        assert missing == []
        assert '"auto"' in text
