"""remat.executorch: tensors of ExecuTorch placed in its memories. Stand-ins for its classes, then itself."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import remat
import remat.executorch

TRIED = "1.5.1"
MODULE = "executorch.exir.memory_planning"


@dataclass(eq=False)
class Spec:
    """What `remat.executorch` reads of a TensorSpec, with a name."""

    name: str
    bytes: int
    lifetime: list[int]
    mem_id: int | None = None
    storage_base: Spec | None = None
    storage_base_offset: int = 0
    alignment: int = 1

    @property
    def allocated_memory(self) -> int:
        return -(-self.bytes // self.alignment) * self.alignment

    def realign(self, new_alignment: int) -> int:
        self.alignment = new_alignment
        return self.allocated_memory

    def __repr__(self) -> str:
        return f"Spec({self.name})"


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two classes that results are made of."""
    classes = SimpleNamespace(
        SpecAllocResult=lambda mem_id, mem_obj_id, mem_offset: (mem_id, mem_obj_id, mem_offset),
        MemoryAlgoResult=lambda spec_dict, bufsizes: SimpleNamespace(spec_dict=spec_dict, bufsizes=bufsizes),
    )
    monkeypatch.setitem(sys.modules, MODULE, classes)


def place(specs: Iterable[Spec], below: list[int] | None = None, alignment: int = 16, **more: Any) -> Any:
    module = SimpleNamespace() if below is None else SimpleNamespace(input_mem_buffer_sizes=below)
    return remat.executorch.layout(alignment, specs, module, None, **more)


def overlaps(first: int, end: int, other_first: int, other_end: int) -> bool:
    return first < other_end and other_first < end


def assert_disjoint(result: Any) -> None:
    """No two roots share bytes of a memory while both live; all lie within their memory."""
    roots = [spec for spec in result.spec_dict if spec.storage_base is None]
    for spec in roots:
        memory, _, offset = result.spec_dict[spec]
        assert offset % spec.alignment == 0
        assert offset + spec.allocated_memory <= result.bufsizes[memory]
    for i, a in enumerate(roots):
        for b in roots[i + 1 :]:
            (memory, _, at), (other, _, other_at) = result.spec_dict[a], result.spec_dict[b]
            if memory == other and overlaps(at, at + a.bytes, other_at, other_at + b.bytes):
                assert not overlaps(a.lifetime[0], a.lifetime[1] + 1, b.lifetime[0], b.lifetime[1] + 1)


# a and d, which are the largest, touch at one step; greedy gives each an object of its own size.
def four() -> list[Spec]:
    return [
        Spec("a", 100, [0, 2]),
        Spec("b", 30, [1, 3]),
        Spec("c", 50, [3, 5]),
        Spec("d", 100, [4, 6]),
    ]


@pytest.mark.usefixtures("stand_in")
def test_tensors_are_disjoint_while_they_live_and_the_arena_is_the_live_peak() -> None:
    seen: list[tuple[int, remat.LayoutResult]] = []
    result = place(four(), on_layout=lambda memory, layout: seen.append((memory, layout)))
    assert_disjoint(result)
    ((memory, layout),) = seen
    assert (memory, layout.status) == (1, "optimal")
    assert result.bufsizes == [0, layout.arena_lower_bound] == [0, 112 + 64]


@pytest.mark.usefixtures("stand_in")
def test_lifetimes_include_their_last_node() -> None:
    touching = [Spec("a", 16, [0, 2]), Spec("b", 16, [2, 3])]
    assert place(touching).bufsizes == [0, 32]
    apart = [Spec("a", 16, [0, 1]), Spec("b", 16, [2, 3])]
    assert place(apart).bufsizes == [0, 16]


@pytest.mark.usefixtures("stand_in")
def test_offsets_are_python_numbers_in_one_object() -> None:
    for memory, object_id, offset in place(four()).spec_dict.values():
        assert (memory, object_id) == (1, 0)
        assert type(offset) is int


@pytest.mark.usefixtures("stand_in")
def test_each_memory_is_laid_out_by_itself() -> None:
    specs = [*four(), Spec("e", 100, [0, 6], mem_id=3), Spec("f", 20, [2, 2], mem_id=3)]
    result = place(specs)
    assert_disjoint(result)
    assert result.bufsizes == [0, 176, 0, 112 + 32]
    assert {result.spec_dict[spec][0] for spec in specs[:4]} == {1}
    assert {result.spec_dict[spec][0] for spec in specs[4:]} == {3}


@pytest.mark.usefixtures("stand_in")
def test_tensors_come_after_what_submodules_need() -> None:
    below = [0, 40]
    result = place(four(), below)
    assert min(offset for _, _, offset in result.spec_dict.values()) == 48  # 40, aligned
    assert result.bufsizes == [0, 48 + 176]
    assert below == [0, 40]
    assert place([], [0, 64, 32]).bufsizes == [0, 64, 32]
    assert place([]).bufsizes == [0, 0]


@pytest.mark.usefixtures("stand_in")
def test_padding_is_added_to_memories_that_hold_tensors() -> None:
    specs = [Spec("a", 16, [0, 1], mem_id=2)]
    assert place(specs, extra_padding=64).bufsizes == [0, 0, 80]


@pytest.mark.usefixtures("stand_in")
def test_a_tensor_inside_another_one_lies_there_and_keeps_it_alive() -> None:
    base = Spec("base", 64, [0, 1])
    middle = Spec("middle", 32, [1, 2], storage_base=base, storage_base_offset=16)
    inner = Spec("inner", 16, [2, 4], mem_id=2, storage_base=middle, storage_base_offset=16)
    other = Spec("other", 64, [3, 5])
    result = place([inner, other, middle, base])
    begin = result.spec_dict[base][2]
    assert result.spec_dict[middle] == (1, 0, begin + 16)
    assert result.spec_dict[inner] == (1, 0, begin + 32)
    assert result.bufsizes == [0, 128]  # base lives as long as inner, beside other


@pytest.mark.usefixtures("stand_in")
def test_a_tensor_without_bytes_has_a_place() -> None:
    empty = Spec("empty", 0, [0, 9])
    result = place([*four(), empty])
    assert result.bufsizes == [0, 176]
    assert 0 <= result.spec_dict[empty][2] <= 176


@pytest.mark.usefixtures("stand_in")
def test_the_same_specs_in_another_sequence_need_the_same_bytes() -> None:
    assert place(reversed(four())).bufsizes == place(four()).bufsizes


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(
    ("offset", "bytes_", "message"),
    [
        (8, 16, "Spec(view): its offset 8 in its storage_base is no multiple of 16"),
        (32, 48, "Spec(view): 48 bytes at 32 do not fit into its storage_base of 64 bytes"),
        (-16, 16, "Spec(view): 16 bytes at -16 do not fit into its storage_base of 64 bytes"),
    ],
)
def test_a_tensor_that_does_not_fit_inside_is_an_error(offset: int, bytes_: int, message: str) -> None:
    base = Spec("base", 64, [0, 1])
    view = Spec("view", bytes_, [1, 2], storage_base=base, storage_base_offset=offset)
    with pytest.raises(remat.GraphError, match=f"^{message.replace('(', '.').replace(')', '.')}$"):
        place([base, view])


@pytest.mark.usefixtures("stand_in")
def test_a_base_that_has_no_memory_is_an_error() -> None:
    view = Spec("view", 16, [1, 2], storage_base=Spec("base", 64, [0, 1]))
    with pytest.raises(remat.GraphError, match="^Spec.view.: its storage_base is a tensor for which no mem"):
        place([view])
    view.storage_base = view
    with pytest.raises(remat.GraphError, match="^Spec.view.: its storage_base leads back to itself$"):
        place([view])


def test_without_executorch_one_line_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "executorch", None)
    monkeypatch.setitem(sys.modules, MODULE, None)
    with pytest.raises(remat.RematError, match=r"^remat.executorch needs executorch"):
        place(four())


# ------------------------------------------------------------------ ExecuTorch itself
@pytest.fixture(scope="module")
def api() -> Any:
    """What the tests below take of ExecuTorch and PyTorch."""
    if importlib.util.find_spec("executorch") is None:
        pytest.skip(f"executorch is not installed (tried with {TRIED}, beside PyTorch 2.13)")
    if importlib.metadata.version("executorch") != TRIED:
        pytest.skip(f"executorch {importlib.metadata.version('executorch')} is not {TRIED}, which was tried")
    import torch
    from executorch import exir
    from executorch.exir import memory_planning, passes
    from executorch.runtime import Runtime

    return SimpleNamespace(
        torch=torch,
        exir=exir,
        planning=memory_planning,
        Pass=passes.MemoryPlanningPass,
        runtime=Runtime.get(),
    )


real = pytest.mark.filterwarnings("ignore")  # of executorch


def program_of(api: Any, model: Any, inputs: tuple[Any, ...], algorithms: list[Any], **settings: Any) -> Any:
    edge = api.exir.to_edge(api.torch.export.export(model.eval(), inputs))
    suite = api.planning.MemoryPlanningAlgorithmSuite(algorithms)
    config = api.exir.ExecutorchBackendConfig(memory_planning_pass=api.Pass(suite, **settings))
    return edge.to_executorch(config)


def sizes_of(program: Any) -> list[int]:
    sizes: list[int] = program.exported_program().graph_module.meta["non_const_buffer_sizes"]
    return sizes


def outputs_of(api: Any, program: Any, inputs: tuple[Any, ...]) -> list[Any]:
    method = api.runtime.load_program(program.buffer).load_method("forward")
    return [output.clone() for output in method.execute(inputs)]


def assert_verified(api: Any, program: Any, inputs: bool = True, outputs: bool = True) -> None:
    exported = program.exported_program()
    api.planning.Verifier(
        exported.graph_module, inputs, outputs, True, exported.graph_signature
    ).verify_storage_reuse()


@real
@pytest.mark.parametrize(("inputs", "outputs"), [(True, True), (False, True), (True, False), (False, False)])
def test_programs_run_and_need_no_more_than_with_greedy(api: Any, inputs: bool, outputs: bool) -> None:
    torch = api.torch
    torch.manual_seed(0)
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide, self.narrow = nn.Linear(16, 64), nn.Linear(64, 16)

        def forward(self, x: Any) -> Any:
            y = self.narrow(torch.relu(self.wide(x))) + x
            return torch.cat([y, torch.tanh(x)], 1), y.sum(1)

    example = (torch.randn(4, 16),)
    model = Net()
    settings = {"alloc_graph_input": inputs, "alloc_graph_output": outputs}
    ours = program_of(api, model, example, [remat.executorch.layout], **settings)
    greedy = program_of(api, model, example, [api.planning.greedy], **settings)
    assert_verified(api, ours, inputs, outputs)
    assert sum(sizes_of(ours)) <= sum(sizes_of(greedy))
    if inputs and outputs:
        results, others = outputs_of(api, ours, example), outputs_of(api, greedy, example)
        assert all(map(torch.equal, results, others))
        assert all(map(torch.allclose, results, model(*example)))


@real
def test_in_a_suite_the_smaller_plan_is_taken(api: Any) -> None:
    torch = api.torch
    model = torch.nn.Sequential(*[torch.nn.Linear(n, m) for n, m in ((8, 64), (64, 24), (24, 48), (48, 8))])
    calls: list[int] = []
    ours = functools.partial(remat.executorch.layout, on_layout=lambda memory, _: calls.append(memory))
    program = program_of(api, model, (torch.randn(2, 8),), [api.planning.greedy, ours])
    assert calls == [1]
    assert_verified(api, program)


@real
def test_branches_lie_below_the_tensors_around_them(api: Any) -> None:
    torch = api.torch

    class Branches(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            y = x * 2
            z = torch.cond(
                x.sum() > 0, lambda a: (a.sin() + a.cos()).tanh(), lambda a: a.exp() * a.tanh() + 1, [y]
            )
            return z + y

    model, example = Branches(), (torch.rand(8, 8),)
    program = program_of(api, model, example, [remat.executorch.layout])
    greedy = program_of(api, model, example, [api.planning.greedy])
    assert sum(sizes_of(program)) <= sum(sizes_of(greedy))
    assert_verified(api, program)
    method = api.runtime.load_program(program.buffer).load_method("forward")
    for inputs in (example, (-example[0],)):
        assert torch.allclose(method.execute(inputs)[0], model(*inputs))


@real
def test_buffers_that_are_written_keep_their_place(api: Any) -> None:
    torch = api.torch

    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x: Any) -> Any:
            self.total.add_(x)
            return (self.total * 2).relu() - x

    example = (torch.arange(4.0),)
    program = program_of(api, Counter(), example, [remat.executorch.layout])
    assert_verified(api, program)
    method = api.runtime.load_program(program.buffer).load_method("forward")
    outputs = [method.execute(example)[0].clone() for _ in range(2)]
    assert [output.tolist() for output in outputs] == [[0, 1, 2, 3], [0, 3, 6, 9]]
