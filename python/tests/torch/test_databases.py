"""A draw from PyTorch's databases of operators and modules (`databases.py` runs all)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from database_cases import DTYPES, Case, all_cases, drawn, same
from databases import FAULTS, check
from remat.torch.run import generators

OPERATORS, MODULES, EACH = 18, 6, 3
# One for each: the others are left to the command.
WAYS = ["100%", "least", "random"]


# The first operators and the modules; the other operators take their time.
@pytest.mark.parametrize(
    "first",
    [
        0,
        *(pytest.param(first, marks=pytest.mark.long) for first in range(EACH, OPERATORS, EACH)),
        OPERATORS,
        *(
            pytest.param(first, marks=pytest.mark.long)
            for first in range(OPERATORS + EACH, OPERATORS + MODULES, EACH)
        ),
    ],
)
def test_operators_and_modules_are_as_in_eager_mode_and_within_their_budgets(first: int) -> None:
    of_all = all_cases(list(DTYPES))
    cases = drawn([c for c in of_all if c.kind == "op"], OPERATORS)
    cases += drawn([c for c in of_all if c.kind == "module"], MODULES)
    found = []
    for case in cases[first : first + EACH]:
        found.append(check(case, ways=[WAYS[case.draw(1) % len(WAYS)]]))
    # Budgets of models in several graphs have tests of their own.
    faults = set(FAULTS) - {"in pieces"}
    lines = [f"{each.case.key}: {line}" for each in found for kind, line in each.outcomes if kind in faults]
    assert lines == []
    assert sum(each.compared for each in found) > 0


def test_numbers_that_are_drawn_anew_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("op", "nn.functional.dropout2d", "float32", "plain")
    assert check(case, ways=["random"]).outcome == "equal"

    def again(state: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return generators._run_and_save(*args, **kwargs)[1]

    monkeypatch.setattr(generators, "_run_from", again)
    assert check(case, ways=["random"]).outcome == "wrong bits"


def test_what_a_step_leaves_is_compared_by_its_bits() -> None:
    a = torch.tensor([1.0, float("nan"), 0.0])
    assert same(a, a.clone())
    assert not same(a, a * -1)
    assert not same(a[2:], -a[2:])  # zeros of two signs
    assert not same(a, a.double())
