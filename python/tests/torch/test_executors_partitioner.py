"""PyTorch's partitioner with our solver: a budget in bytes, and the gradients of eager mode with dropout."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import remat
import remat.torch
import torch
from functorch.compile import min_cut_rematerialization_partition
from remat.torch.run.codegen import boxed
from test_executors import batch, equal, made, state
from torch import nn
from torch._dynamo.backends.common import aot_autograd

CONFIG: Any = torch._functorch.config


def compiled(model: nn.Module) -> Any:
    """With PyTorch's partitioner and the kernels of eager mode, whose bits can be compared."""

    def compile_boxed(gm: Any, example_inputs: Any) -> Any:
        return boxed(gm)

    torch._dynamo.reset()
    backend = aot_autograd(
        fw_compiler=compile_boxed,
        bw_compiler=compile_boxed,
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
    return torch.compile(model, backend=backend, dynamic=False)


def peak(called: Any, x: torch.Tensor, model: nn.Module) -> int:
    model.zero_grad()
    called(x).backward()
    model.zero_grad()
    return remat.torch.measure_peak(lambda: called(x).backward(), resident=[model, x])


def test_dropout_is_not_drawn_anew_where_pytorch_alone_does() -> None:
    x, model = batch(), made()
    expected = state(copy.deepcopy(model), x)
    with CONFIG.patch(activation_memory_budget=0.5, donated_buffer=False):
        theirs = copy.deepcopy(model)
        wrong = equal(state(theirs, x, compiled(theirs)), expected)
    peaks = []
    for budget in ("3MB", "1.4MB", "700KB"):
        solver = remat.torch.memory_budget_solver(budget)
        mine = copy.deepcopy(model)
        with solver.config(), CONFIG.patch(donated_buffer=False):
            called = compiled(mine)
            assert equal(state(mine, x, called), expected), budget
            peaks.append(peak(called, x, mine))
        assert solver.saved
        assert max(solver.saved) <= solver.budget
    assert min(peaks[1:]) < peaks[0]
    assert not wrong, "PyTorch's own budget is right with dropout: the documentation says it is not"


def test_a_budget_that_is_not_met_is_an_error_with_the_least_that_was_found() -> None:
    x, model = batch(), made()
    solver = remat.torch.memory_budget_solver("100KB")
    with solver.config(), pytest.raises(Exception, match="no choice within the budget of") as raised:
        compiled(model)(x)
    found = re.search(r"the least that it saves is .*\((\d+) bytes\)", str(raised.value))
    assert found is not None
    solver = remat.torch.memory_budget_solver(int(found[1]))
    with solver.config():
        compiled(model)(x).backward()
    assert max(solver.saved) <= int(found[1])


def test_costs_of_a_roofline_do() -> None:
    solver = remat.torch.memory_budget_solver("100MB", costs="roofline")
    with solver.config():
        compiled(made())(batch()).backward()
    assert max(solver.saved) <= solver.budget


def test_solvers_are_told_apart_by_pytorchs_caches() -> None:
    solver, other = remat.torch.memory_budget_solver("1MB"), remat.torch.memory_budget_solver("2MB")
    assert solver.uuid() == remat.torch.memory_budget_solver("1MB").uuid() != other.uuid()
    with solver.config():
        assert CONFIG.activation_memory_budget_solver is solver
    assert CONFIG.activation_memory_budget_solver is not solver
    with pytest.raises(remat.BudgetError):
        remat.torch.memory_budget_solver("lots")
