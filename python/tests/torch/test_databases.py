"""A draw from PyTorch's databases of operators and modules (`databases.py` runs all)."""

from __future__ import annotations

import pytest
from database_cases import DTYPES, all_cases, drawn
from databases import FAULTS, WAYS, check

OPERATORS, MODULES, EACH = 40, 10, 5


@pytest.mark.parametrize("first", range(0, OPERATORS + MODULES, EACH))
def test_operators_and_modules_are_as_in_eager_mode_and_within_their_budgets(first: int) -> None:
    of_all = all_cases(list(DTYPES))
    cases = drawn([c for c in of_all if c.kind == "op"], OPERATORS)
    cases += drawn([c for c in of_all if c.kind == "module"], MODULES)
    found = []
    for case in cases[first : first + EACH]:
        found.append(check(case, ways=[WAYS[case.draw(1) % len(WAYS)]]))
    lines = [f"{each.case.key}: {line}" for each in found for kind, line in each.outcomes if kind in FAULTS]
    assert lines == []
    assert sum(each.compared for each in found) > 0
