"""With the extension that lets ops pass, steps in eager mode are those without it: bits, bytes, errors."""

from __future__ import annotations

import copy
import gc
import os
import subprocess
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import remat
import remat.torch
import torch
from remat.torch import native
from remat.torch.eager import passing
from remat.torch.eager.ledger import Ledger
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map


@pytest.fixture(autouse=True)
def _built() -> None:
    passing.build()
    passing._extension.cache_clear()


@pytest.fixture(params=["extension", "Python"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("REMAT_NATIVE", "1" if request.param == "extension" else "0")
    passing._extension.cache_clear()
    assert passing.is_used() is (request.param == "extension")
    yield request.param
    monkeypatch.undo()
    passing._extension.cache_clear()


class Step:
    """Ops that are followed. again: of which op; passing as a plan has it."""

    def __init__(self, functions: list[Any], again: Callable[[Any], bool] = lambda func: False) -> None:
        self.functions = functions
        self.again = frozenset(i for i, func in enumerate(functions) if again(func))
        self.passing = passing.passing(self.functions, self.again)
        self.copying = None
        self.readings: dict[int, Any] = {}
        self.products = False


class Seen(TorchDispatchMode):
    """The ops that run while it lasts."""

    def __init__(self) -> None:
        super().__init__()
        self.functions: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.functions.append(func)
        return func(*args, **(kwargs or {}))


def functions_of(call: Callable[[], Any]) -> list[Any]:
    # Without hooks autograd detaches what it saves.
    with Seen() as seen, saved_tensors_hooks(lambda t: t, lambda t: t):
        call()
    return seen.functions


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Counter[Any]:
    """The ops that ledgers see."""
    found: Counter[Any] = Counter()
    own = Ledger.__torch_dispatch__

    def dispatch(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found[func] += 1
        return own(self, func, types, args, kwargs)

    monkeypatch.setattr(Ledger, "__torch_dispatch__", dispatch)
    return found


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.n, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 3)
        self.drop = nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.drop(torch.relu_(self.n(self.a(x))))
        return self.b(torch.nn.functional.gelu(y) * y.sigmoid()).square().mean()


def trained(model: nn.Module, call: Callable[[], torch.Tensor]) -> list[torch.Tensor]:
    torch.manual_seed(4)
    losses = []
    for _ in range(2):
        loss = call()
        loss.backward()
        losses.append(loss.detach())
    found = [*losses, *(p.grad for p in model.parameters() if p.grad is not None), *model.buffers()]
    return [t.clone() for t in found] + [torch.get_rng_state()]


def same(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return len(first) == len(second) and all(map(torch.equal, first, second))


def test_only_what_runs_again_or_writes_goes_through_python(seen: Counter[Any]) -> None:
    torch.manual_seed(0)
    model, x = Net(), torch.randn(2, 3, 16, 16)
    plain = copy.deepcopy(model)
    other = copy.deepcopy(model)
    known = functions_of(lambda: other(x))
    step = Step(known, lambda func: func == torch.ops.aten.gelu.default)
    assert len(step.again) == 1
    found = trained(model, lambda: Ledger([step]).through(lambda: model(x)))
    assert same(found, trained(plain, lambda: plain(x)))
    # The schema of a batch norm does not say that it writes running statistics.
    writes = {f for f in known if f._schema.is_mutable} | {torch.ops.aten.native_batch_norm.default}
    expected = {f: 2 * known.count(f) for f in known if f in writes or f == torch.ops.aten.gelu.default}
    assert len(expected) < len(set(known)) / 2
    assert seen == Counter(expected)
    seen.clear()
    Ledger([Step(known[:5])]).through(lambda: plain(x))
    assert sum(seen.values()) >= len(known) - 5  # from the first op on that is in no plan


def test_steps_are_the_same_with_and_without(way: str) -> None:
    torch.manual_seed(0)
    model, x = Net(), torch.randn(2, 3, 24, 24)
    plain = copy.deepcopy(model)
    peak = remat.torch.measure_peak(lambda: plain(x).backward(), resident=[plain, x])
    plain = copy.deepcopy(model)
    with pytest.raises(remat.NoPlanError) as caught:
        remat.torch.fit(copy.deepcopy(model), (x,), "1KiB", executor="eager")
    least = caught.value.smallest_known
    assert least is not None
    assert least < peak
    fitted = remat.torch.fit(model, (x,), least, executor="eager")
    assert fitted.remat.parts[0].recomputed_steps
    assert same(trained(model, lambda: fitted(x)), trained(plain, lambda: plain(x)))
    model.zero_grad()
    assert remat.torch.measure_peak(lambda: fitted(x).backward(), resident=[model, x]) <= least


def test_modes_and_subclasses_of_the_user_see_what_they_see_in_eager_mode(way: str) -> None:
    class Logged(torch.Tensor):
        seen: ClassVar[list[Any]] = []

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            cls.seen.append(func)

            def plain(item: Any) -> Any:
                return item.plain if isinstance(item, Logged) else item

            def wrapped(item: Any) -> Any:
                return Logged.around(item) if isinstance(item, torch.Tensor) else item

            return tree_map(wrapped, func(*tree_map(plain, args), **tree_map(plain, kwargs or {})))

        @staticmethod
        def around(plain: torch.Tensor) -> Any:
            made = torch.Tensor._make_wrapper_subclass(Logged, plain.shape, dtype=plain.dtype)
            made.plain = plain
            return made

    x, w = torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)
    log = Seen()

    def call() -> torch.Tensor:
        y = (w * x).tanh()
        with log:
            z = y.sigmoid() @ w
        return z.square().sum()

    def wrapping() -> torch.Tensor:
        return (w * x).sum() + (Logged.around(x).sin() * 2).plain.sum()

    step = Step(functions_of(call))
    log.functions.clear()
    Ledger([step]).through(call).backward()
    assert log.functions == [torch.ops.aten.sigmoid.default, torch.ops.aten.mm.default]
    with Seen() as outside:
        loss = Ledger([step]).through(call)
    assert outside.functions == step.functions
    loss.backward()
    step = Step(functions_of(wrapping))
    Logged.seen.clear()
    wrapping()
    alone = list(Logged.seen)
    assert torch.ops.aten.sin.default in alone
    Logged.seen.clear()
    Ledger([step]).through(wrapping).backward()
    assert Logged.seen == alone


def test_what_is_written_to_raises_what_eager_mode_does(way: str) -> None:
    w, x = torch.randn(4, requires_grad=True), torch.randn(4)

    def call() -> torch.Tensor:
        y = w.exp()  # saves its result
        z = (y * x).sum()
        y.mul_(2)
        return z

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        call().backward()
    step = Step(functions_of(call))
    loss = Ledger([step]).through(call)
    with pytest.raises(
        RuntimeError, match=r"modified by an inplace operation: \[.*FloatTensor \[4\]\] is at "
    ):
        loss.backward()

    def parameter_later() -> torch.Tensor:
        return (w * x).sin().sum()

    loss = Ledger([Step(functions_of(parameter_later))]).through(parameter_later)
    with torch.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="is at version 1; expected version 0"):
        loss.backward()


def test_graphs_of_graphs_functions_and_hooks(way: str) -> None:
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x, x * x)
            return x * x * x

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
            x, square = ctx.saved_tensors
            return 3 * square * gradients[0] + 0 * x

    w = torch.randn(5, requires_grad=True, dtype=torch.float64)
    packed: list[int] = []

    def call() -> torch.Tensor:
        y = Cube.apply(w).tanh()
        with saved_tensors_hooks(lambda t: packed.append(t.numel()) or t, lambda t: t):
            y = y.exp()
        (inner,) = torch.autograd.grad(y.sum(), w, create_graph=True)
        return inner.square().sum() + y.sum()

    def gradients(run: Callable[[], torch.Tensor]) -> list[torch.Tensor]:
        loss = run()
        first = torch.autograd.grad(loss, w, create_graph=True, retain_graph=True)[0]
        return [loss.detach(), first.detach(), *torch.autograd.grad(first.sum() + loss, w)]

    step = Step(functions_of(call), lambda func: func == torch.ops.aten.tanh.default)
    packed.clear()
    expected = gradients(call)
    own = list(packed)
    packed.clear()
    assert same(gradients(lambda: Ledger([step]).through(call)), expected)
    assert packed == own


def test_a_mode_inside_another(way: str) -> None:
    w, x = torch.randn(6, requires_grad=True), torch.randn(6)

    def inner() -> torch.Tensor:
        return (w * x).sigmoid()

    def outer(run: Callable[[Callable[[], Any]], Any]) -> torch.Tensor:
        return (run(inner) + w.cos()).square().sum()

    steps = Step(functions_of(inner)), Step(functions_of(lambda: outer(lambda call: call())))
    ledgers = Ledger([steps[0]]), Ledger([steps[1]])
    loss = ledgers[1].through(lambda: outer(ledgers[0].through))
    assert [each.left_at for each in ledgers] == [None, None]
    (found,) = torch.autograd.grad(loss, w)
    (expected,) = torch.autograd.grad(outer(lambda call: call()), w)
    assert torch.equal(found, expected)


def test_an_op_that_raises_leaves_modes_as_they_were(way: str) -> None:
    x = torch.randn(3)

    def call() -> None:
        (x + 1) @ torch.randn(4, 4)

    step = Step([torch.ops.aten.add.Tensor, torch.ops.aten.randn.default, torch.ops.aten.mv.default])
    ledger = Ledger([step])
    with pytest.raises(RuntimeError, match="size mismatch|mat"):
        ledger.through(call)
    assert functions_of(lambda: x + 1) == [torch.ops.aten.add.Tensor]
    assert torch._C._len_torch_dispatch_stack() == 0


def test_nothing_of_a_step_stays(way: str) -> None:
    w, x = torch.randn(6, requires_grad=True), torch.randn(6)
    step = Step(functions_of(lambda: (w * x).sigmoid().sum()))
    gc.collect()
    gc.disable()
    try:
        ledger = Ledger([step])
        gone = weakref.ref(ledger)
        loss = ledger.through(lambda: (w * x).sigmoid().sum())
        del ledger
        loss.backward()
        del loss
        assert gone() is None
    finally:
        gc.enable()


def test_the_command_builds_it_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert native.main() == 0
    assert capsys.readouterr().out == f"native: {passing.path()} is there\n"
    missing = passing.path().with_name("_passing-none.so")
    monkeypatch.setattr(passing, "path", lambda: missing)
    monkeypatch.setattr(native, "path", lambda: missing)
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert native.main() == 2
    assert "no-such-compiler: No such file or directory" in capsys.readouterr().err
    monkeypatch.setenv("CXX", "false")
    assert native.main() == 2
    assert capsys.readouterr().err.startswith("remat.torch.native: false cannot build passing.cc: ")
    assert not missing.exists()
    assert not list(missing.parent.glob("_passing?*[!o]"))


@pytest.mark.long
def test_an_extension_that_does_not_load_is_said(tmp_path: Path) -> None:
    program = """
import logging, sys
from pathlib import Path
logging.basicConfig(stream=sys.stdout, format="%(message)s")
from remat.torch.eager import passing
broken = Path(sys.argv[1], "_passing-0.so")
broken.write_bytes(b"no library")
passing.path = lambda: broken
print(passing.is_used())
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, "REMAT_NATIVE": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    first, last = done.stdout.splitlines()
    assert first.startswith("_passing-0.so is not used, each op goes through Python: ")
    assert last == "False"
