"""What writes over an argument: only where the bits were compared, and in place of copies of the whole."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import remat.torch
import torch
from remat.torch.base.private import builtin
from remat.torch.base.storages import same_bits
from remat.torch.trace import compared, inplace
from torch import fx, nn

aten = torch.ops.aten
TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64)
SIZES = (1, 8, 15, 131)


def _drawn(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    drawn = torch.randn(shape, dtype=dtype if dtype.is_complex else torch.float32).mul(3).to(dtype)
    if not dtype.is_complex and drawn.numel() > 8:
        drawn.view(-1)[::9] = torch.tensor([float("inf"), float("nan"), -0.0]).repeat(drawn.numel())[
            : drawn.view(-1)[::9].numel()
        ]
    return drawn


def _arguments(name: str, dtype: torch.dtype, n: int) -> list[tuple[Any, ...]]:
    """Of an op of the table: what it may be called with."""
    a, b, row = _drawn((3, n), dtype), _drawn((3, n), dtype), _drawn((n,), dtype)
    rows = torch.tensor([2, 0])
    special: dict[str, list[tuple[Any, ...]]] = {
        "neg": [(a,)],
        "relu": [(a,)],
        "masked_fill.Scalar": [(a, torch.rand(3, n) > 0.5, 0.3)],
        "masked_fill.Tensor": [(a, torch.rand(n) > 0.5, row[0])],
        "threshold_backward": [(a, b, 0.1)],
        "tanh_backward": [(a, b)],
        "slice_scatter": [(a, b[:, : n // 2 + 1], 1, 0, n // 2 + 1, 1)],
        "select_scatter": [(a, row, 0, 1), (a, b[:, 0], 1, n - 1)],
        "index_put": [(a, [rows], b[:2]), (a, [None, torch.arange(n)], b, True)],
        "index_copy": [(a, 0, rows, b[:2])],
        "index_add": [(a, 0, rows, b[:2])],
        "index_fill.int_Scalar": [(a, 0, rows, 0.3)],
        "scatter.src": [(a, 0, torch.randint(3, (2, n)), b)],
        "scatter.value": [(a, 0, torch.randint(3, (2, n)), 0.3)],
        "scatter_add": [(a, 0, torch.randint(3, (2, n)), b)],
    }
    short = name.removeprefix("aten.").removesuffix(".default")
    if short in special:
        return special[short]
    scalar = (a, 1.7)
    return [scalar] if short.endswith(".Scalar") else [(a, b), (a, row), (a, row[0]), scalar, (a.t(), b.t())]


def _node(op: Any, args: tuple[Any, ...]) -> fx.Node:
    """Of a graph that calls the op with tensors like these."""
    graph = fx.Graph()

    def traced(arg: Any) -> Any:
        if isinstance(arg, list):
            return [traced(each) for each in arg]
        if not isinstance(arg, torch.Tensor):
            return arg
        node = graph.placeholder(f"a{len(graph.nodes)}")
        node.meta["val"] = arg
        return node

    return graph.call_function(op, tuple(map(traced, args)))


@pytest.mark.parametrize("op", inplace._OVER, ids=str)
def test_every_op_that_was_compared_makes_the_same_bits(op: Any) -> None:
    """In its own arguments' places, on other numbers than it was compared with."""
    over, count = inplace._OVER[op]
    used = 0
    for dtype, n in itertools.product(TYPES, SIZES):
        torch.manual_seed(n)
        for args in _arguments(str(op), dtype, n):
            try:
                expected = builtin(op)(*args)
            except (RuntimeError, NotImplementedError):  # not for this type
                continue
            for index in range(count):
                argument = args[index]
                if not isinstance(argument, torch.Tensor) or argument.shape != expected.shape:
                    continue
                node = _node(op, args)
                if not inplace._is_same(node, index):
                    continue
                used += 1
                given = copy.deepcopy(args)
                found = inplace.over(node, index)(*given)
                assert found.data_ptr() == given[index].data_ptr()
                assert same_bits(found, expected), (dtype, n, index)
    assert used > 0, "no type writes over anything"
    assert over.name == str(op)


def test_a_form_that_rounds_in_another_way_is_not_used() -> None:
    """`mul_.Scalar` rounds the factor to 16 bits, `mul.Scalar` does not."""
    x = torch.randn(64, 64, dtype=torch.bfloat16)
    node = _node(aten.mul.Scalar, (x, 1.7))
    in_place = inplace._in_place(aten.mul_.Scalar)
    assert torch.equal(aten.mul.Scalar(x.float(), 1.7), aten.mul_.Scalar(x.float(), 1.7))
    assert not compared.same_over(_node(aten.mul.Scalar, (x.t(), 1.7)), in_place, 0, compared.Kind.EACH)
    assert compared.same_over(node, inplace._OVER[aten.mul.Scalar][0].write, 0, compared.Kind.EACH)


@pytest.mark.parametrize("fault", ["a tail", "a large one", "what is not a number", "an argument"])
def test_what_is_seldom_other_is_found(fault: str) -> None:
    def write(x: torch.Tensor, y: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        torch.add(x, y, out=out)
        if fault == "a tail":
            out.view(-1)[-1] += 1
        if fault == "a large one" and out.numel() > 1 << 15:
            out.view(-1)[1 << 15] += 1
        if fault == "what is not a number":
            out.nan_to_num_()
        if fault == "an argument":
            y.add_(1)
        return out

    x = torch.empty(1500, 259)
    node = _node(aten.sub.Tensor, (x, x))
    node.target = aten.add.Tensor
    assert inplace._is_same(node, 0)
    compared._seen.clear()
    assert not compared.same_over(node, write, 0, compared.Kind.EACH)
    compared._seen.clear()


def test_large_tensors_keep_their_pattern() -> None:
    whole = torch.empty(64, 1, 4096, 33).permute(0, 3, 1, 2)
    layouts = [compared.Layout.of(t) for t in (whole, whole[:1], torch.empty(4096), whole[:, :, :, ::2])]
    sizes = list(whole.shape)
    smaller = compared._smaller([*layouts[:3], 1.5], 0, compared.Kind.EACH)
    assert smaller is not None
    shape = smaller[0].shape
    assert 1 << 15 < torch.Size(shape).numel() <= 1 << 17
    assert all((old - new) % 64 == 0 or new < 256 for old, new in zip(sizes, shape, strict=True))
    like = torch.empty(shape[0], shape[2], shape[3], shape[1]).permute(0, 3, 1, 2)
    assert smaller[0].strides == like.stride()
    assert smaller[1].shape == (1, *shape[1:])
    assert smaller[2].shape == shape[3:]
    assert layouts[3].sized([64, 33, 1, 2048]).strides == layouts[3].strides


def test_strides_of_dimensions_of_one_element_do_not_matter() -> None:
    a, b = torch.randn(1, 4, 6), torch.randn(1, 4, 6)
    write = inplace.over(_node(aten.mul.Tensor, (a, b)), 0)
    product, other = a * b, b.as_strided((1, 4, 6), (7, 6, 1))
    assert write(a, other) is a
    assert same_bits(a, product)
    assert write(a, torch.randn(1, 6, 4).transpose(1, 2)) is not a


class Scan(nn.Module):
    """Writes parts in place, in one of several ways."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.inp, self.out, self.way = nn.Linear(32, 32), nn.Linear(32, 32), way

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.inp(x)
        state = torch.zeros_like(h)
        for t in range(1, h.shape[1]):
            now = state[:, t - 1] * 0.9 + h[:, t]
            if self.way == "select":
                state[:, t] = now
            elif self.way == "slice":
                state[:, t : t + 1] = now[:, None]
            elif self.way == "nested":
                state[:, t, :16] = now[:, :16]
                state[:, t, 16:] = now[:, 16:]
            else:
                state[:, torch.tensor([t])] = now[:, None]
        y = self.out(state)
        for _ in range(4):
            y = y.sin().tanh()
        return y.square().mean()


def _whole_ops(step: Any) -> list[Any]:
    scatters = {"aten.select_scatter.default", "aten.slice_scatter.default", "aten.index_put.default"}
    return [op for op in step["ops"] if op["kind"] in scatters]


@pytest.mark.parametrize("way", ["select", "slice", "nested", "indices"])
def test_parts_are_written_in_place(way: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 5, 32)
    graph = remat.torch.capture(Scan(way), x).to_dict()
    size = max(value["bytes"] for value in graph["values"] if value["name"] == "zeros_like")
    whole = [op for op in _whole_ops(graph) if graph["values"][op["outputs"][0]]["bytes"] == size]
    assert len(whole) >= 4
    assert [op["name"] for op in whole if "over" not in op] == []


@pytest.mark.parametrize("budget", ["100%", "85%"])
@pytest.mark.parametrize("way", ["select", "nested", "indices"])
def test_written_in_place_the_bits_are_those_of_eager_mode(way: str, budget: str) -> None:
    torch.manual_seed(0)
    found = remat.torch.verify(Scan(way), torch.randn(4, 5, 32), budget, steps=1)
    assert found.equal, found
    assert found.within, found


_Sixteen = Callable[[torch.Tensor], torch.Tensor]
SIXTEEN: dict[str, _Sixteen] = {
    "gelu by erf": lambda y: y * 0.5 * (1 + torch.erf(y / 2**0.5)),
    "pow": lambda y: torch.sigmoid(y).pow(1.7),
    "log2": lambda y: torch.log2(torch.sigmoid(y) + 1),
    "std": lambda y: (y - y.mean(-1, keepdim=True)) / (y.std(-1, keepdim=True) + 1e-6),
}


class Applied(nn.Module):
    def __init__(self, function: _Sixteen) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(64, 64), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.linear(x)).float().square().sum()


@pytest.mark.parametrize("name", SIXTEEN)
def test_16_bits(name: str) -> None:
    torch.manual_seed(0)
    model = Applied(SIXTEEN[name]).bfloat16()
    assert remat.torch.verify(model, torch.randn(128, 64, dtype=torch.bfloat16), "100%", steps=1).equal


def test_complex_quotients() -> None:
    class Quotient(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(125, dtype=torch.complex64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return ((self.w.tanh() * x) / (x.sin() + 2)).abs().sum()

    torch.manual_seed(0)
    assert remat.torch.verify(Quotient(), torch.randn(125, dtype=torch.complex64), "100%").equal


class Parts(nn.Module):
    """Reads results of `unbind`, and writes to what they are views of afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
            one, other = x[:, 4:].reshape(-1, 6, 2).unbind(-1)
            x[:, 4:] = torch.stack([-other, one], -1).flatten(1)
        return x.square().mean()


def test_what_parts_are_views_of_is_written_to_later() -> None:
    torch.manual_seed(0)
    how = {"executor": "boxed", "costs": "roofline", "work_limit": 20_000}
    found = remat.torch.verify(Parts(), torch.randn(32, 16), "95%", **how)
    assert found.differences == ()
