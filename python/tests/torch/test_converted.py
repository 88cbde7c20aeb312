"""Programs of torch.export and fx graphs as Remat graphs."""

from __future__ import annotations

from pathlib import Path

import pytest
import remat
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.head = nn.Linear(8 * 16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.conv(x)).flatten(1)).softmax(-1)


def test_a_saved_program_is_a_graph_of_its_storages(tmp_path: Path) -> None:
    program = torch.export.export(Small().eval(), (torch.zeros(2, 3, 4, 4),))
    file = tmp_path / "small.pt2"
    torch.export.save(program, file)
    graph = remat.convert(file)
    assert [op.kind for op in graph.ops] == [
        "aten.convolution.default",
        "aten.relu.default",
        "aten.addmm.default",
        "aten._softmax.default",
    ]
    assert graph.resident == 4 * (8 * 27 + 8 + 128 * 10 + 10 + 2 * 3 * 16)
    assert graph.op(1).outputs[0] in graph.op(2).inputs, "flatten is a view"
    assert graph.op(0).module == "conv"
    assert remat.convert(program).hash == graph.hash
    whole = file.read_bytes()
    for length in (0, 20, len(whole) // 2, len(whole) - 10):
        file.write_bytes(whole[:length])
        with pytest.raises(remat.GraphError) as raised:
            remat.convert(file)
        assert str(raised.value).startswith(f"{file}: ")
        assert "\n" not in str(raised.value)


def test_an_fx_graph_needs_shapes_and_no_writes_in_place() -> None:
    x = torch.zeros(4, 4)
    module = make_fx(lambda x: (x.sin().view(-1) * torch.rand(16)).sum(), tracing_mode="fake")(x)
    graph = remat.convert(module)
    assert [(op.name, op.recompute) for op in graph.ops] == [
        ("sin", "allowed"),
        ("rand", "never"),
        ("mul", "allowed"),
        ("sum_1", "allowed"),
    ]
    remat.check(graph, remat.Plan(graph, range(4)))
    for bad, message in (
        (torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2))), "node 'input_1' has no shape"),
        (
            make_fx(lambda x: x.sin_(), tracing_mode="fake")(x),
            "node 'sin_': aten.sin_.default writes in place",
        ),
        (make_fx(lambda x: x.sin(), tracing_mode="symbolic")(x), "is not known; export with fixed shapes"),
    ):
        with pytest.raises(remat.GraphError) as raised:
            remat.convert(bad)
        assert message in str(raised.value)
    with pytest.raises(remat.UsageError, match="cannot convert Linear"):
        remat.convert(nn.Linear(2, 2))
