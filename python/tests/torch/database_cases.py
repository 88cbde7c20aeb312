"""Entries of PyTorch's databases of operators and modules as models to train."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from hypothesis import settings
from torch import nn
from torch.nn.parameter import UninitializedParameter

DTYPES = {
    str(dtype).partition(".")[2]: dtype
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64)
}


@cache
def databases() -> tuple[dict[str, Any], dict[str, Any]]:
    """Operators and modules by name. Importing them forbids global flags, and changes what hypothesis does:
    both are undone. Ops that draw numbers draw them from the generator as it is.
    """
    from torch.testing._internal import common_methods_invocations
    from torch.testing._internal.common_modules import module_db

    op_db = common_methods_invocations.op_db
    common_methods_invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)

    torch.backends.__dict__["__allow_nonbracketed_mutation_flag"] = True
    settings.load_profile("default")
    ops = {op.name + (f".{op.variant_test_name}" if op.variant_test_name else ""): op for op in op_db}
    return ops, {module.name: module for module in module_db}


class Case(NamedTuple):
    """One entry of a database. way: "plain"; operators also "in place", modules also "autocast"."""

    kind: str
    name: str
    dtype: str
    way: str

    @property
    def key(self) -> str:
        return " ".join(self)

    def draw(self, seed: int) -> int:
        """A number by which samples are drawn: of a case the same in every version of the databases."""
        return int.from_bytes(hashlib.sha256(f"{seed} {self.key}".encode()).digest()[:4], "little")

    @property
    def grouped(self) -> tuple[str, str]:
        """The line of the table that counts it."""
        return f"{'operators' if self.kind == 'op' else 'modules'}, {self.way}", self.dtype


def all_cases(dtypes: Sequence[str]) -> list[Case]:
    """Of every operator that has gradients in a dtype, and every module."""
    ops, modules = databases()
    found = []
    for dtype in dtypes:
        for name, op in ops.items():
            if op.supports_autograd and DTYPES[dtype] in op.supported_backward_dtypes("cpu"):
                ways = ["plain", "in place"] if op.inplace_variant is not None else ["plain"]
                found += [Case("op", name, dtype, way) for way in ways]
        ways = ["plain", "autocast"] if dtype == "float32" else ["plain"]
        for name, module in modules.items():
            # In 16 bits a module tells by running whether the CPU has it.
            if DTYPES[dtype] in module.dtypes or DTYPES[dtype].itemsize == 2:
                found += [Case("module", name, dtype, way) for way in ways]
    return found


def drawn(cases: Sequence[Case], number: int, seed: int = 0) -> list[Case]:
    """So many of them: much the same in every version of the databases."""
    return sorted(cases, key=lambda case: case.draw(seed))[:number]


@dataclass(frozen=True)
class Slot:
    """Where a tensor stands among arguments."""

    index: int


def with_slots(arguments: Any, tensors: list[torch.Tensor]) -> Any:
    """The arguments with slots in place of tensors, which are appended."""
    if isinstance(arguments, torch.Tensor):
        tensors.append(arguments)
        return Slot(len(tensors) - 1)
    if type(arguments) in (list, tuple):
        return type(arguments)(with_slots(each, tensors) for each in arguments)
    if type(arguments) is dict:
        return {key: with_slots(each, tensors) for key, each in arguments.items()}
    return arguments


def filled(arguments: Any, tensors: list[torch.Tensor]) -> Any:
    """The arguments with tensors in their slots."""
    if isinstance(arguments, Slot):
        return tensors[arguments.index]
    if type(arguments) is list:
        return [filled(each, tensors) for each in arguments]
    if type(arguments) is tuple:
        return tuple([filled(each, tensors) for each in arguments])
    if type(arguments) is dict:
        return {key: filled(each, tensors) for key, each in arguments.items()}
    return arguments


def tensors_in(outputs: Any) -> list[torch.Tensor]:
    """Those of a result that can have gradients."""
    if isinstance(outputs, torch.Tensor):
        return [outputs] if outputs.is_floating_point() or outputs.is_complex() else []
    if isinstance(outputs, (list, tuple)):
        return [tensor for each in outputs for tensor in tensors_in(each)]
    return []


class Between(nn.Module):
    """Something between two others whose results can be computed again.

    called: what is between them. The first tensor of its arguments with a gradient is a parameter, the
    others are inputs. bent: whether what comes before bends (where an argument must stay what it is, a
    positive definite matrix for instance, it does not).
    """

    def __init__(self, called: Any, args: Any, kwargs: Any, bent: bool, autocast: bool) -> None:
        super().__init__()
        tensors: list[torch.Tensor] = []
        self.args, self.kwargs = with_slots((list(args), dict(kwargs)), tensors)
        self.called, self.bent, self.autocast = called, bent, autocast
        self.trained = [tensor.requires_grad for tensor in tensors]
        self.first = self.trained.index(True) if True in self.trained else len(tensors)
        copies = [t.detach().clone().requires_grad_(t.requires_grad) for t in tensors]
        self.inputs = tuple(copies[: self.first] + copies[self.first + 1 :])
        self.weight = nn.Parameter(copies[self.first]) if self.first < len(copies) else None
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("seen", torch.zeros(()))

    def before(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 1.01
        return y * (y * 0.0625).cos() if self.bent else y * 1.25

    def after(self, y: torch.Tensor) -> torch.Tensor:
        z = y * 0.75
        z = torch.view_as_real(z) if z.is_complex() else z
        return z.sin().square().sum()

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        tensors = list(inputs)
        if self.weight is not None:
            tensors.insert(self.first, self.weight)
        tensors = [self.before(x) if t else x for x, t in zip(tensors, self.trained, strict=True)]
        args, kwargs = filled(self.args, tensors), filled(self.kwargs, tensors)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            outputs = self.called(*args, **kwargs)
        total = torch.zeros(())
        for y in tensors_in(outputs):
            total = total + self.after(y)
        self.seen.add_(total.detach())
        return total * self.scale


# Sample inputs that a case draws from.
FIRST = 12


def samples(case: Case, seed: int) -> Iterator[Callable[..., Between]]:
    """Models of a case, each as a function of `bent`, in a drawn sequence."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    given = list(islice(samples_of_op(case) if case.kind == "op" else samples_of_module(case), FIRST))
    yield from random.Random(seed).sample(given, len(given))


def samples_of_op(case: Case) -> Iterator[Callable[..., Between]]:
    op = databases()[0][case.name]
    called = op.inplace_variant if case.way == "in place" else op.op
    for sample in op.sample_inputs("cpu", DTYPES[case.dtype], requires_grad=True):
        args = [sample.input, *sample.args]
        if worth_while(args, sample.kwargs) and not (case.way == "in place" and sample.broadcasts_input):
            yield partial(Between, called, args, sample.kwargs, autocast=False)


def samples_of_module(case: Case) -> Iterator[Callable[..., Between]]:
    info, dtype = databases()[1][case.name], DTYPES[case.dtype]
    for given in info.module_inputs_func(info, "cpu", dtype, requires_grad=True, training=True):
        build, forward = given.constructor_input, given.forward_input
        module = info.module_cls(*build.args, **build.kwargs).to(dtype)
        if any(isinstance(p, UninitializedParameter) for p in module.parameters()):
            module(*forward.args, **forward.kwargs)
        yield partial(Between, module, forward.args, forward.kwargs, autocast=case.way == "autocast")


def worth_while(args: Any, kwargs: Any) -> bool:
    """Has a tensor with a gradient, and no more than a test needs?"""
    tensors: list[torch.Tensor] = []
    with_slots((args, kwargs), tensors)
    return any(t.requires_grad and t.numel() for t in tensors) and sum(t.numel() for t in tensors) < 1 << 16


def seed_all() -> None:
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)


def generators() -> dict[str, Any]:
    """States, as tensors."""
    numbers = [random.getstate()[1], np.random.get_state(legacy=True)[1].tolist()]
    return {"generator": torch.get_rng_state()} | {
        f"generator of {name}": torch.tensor(state)
        for name, state in zip(("Python", "numpy"), numbers, strict=True)
    }


def fresh(inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return tuple(t.detach().clone().requires_grad_(t.requires_grad) for t in inputs)


def kept(value: torch.Tensor) -> torch.Tensor:
    value = value.detach()
    return (value.to_dense() if value.layout != torch.strided else value).clone()


def train(model: nn.Module, given: Sequence[torch.Tensor], steps: int = 2) -> dict[str, torch.Tensor]:
    """What steps leave that add up their gradients."""
    left: dict[str, torch.Tensor] = {}
    inputs = fresh(given)
    seed_all()
    for step in range(steps):
        loss = model(*inputs)
        loss.backward()
        named = [("loss", loss), *model.named_buffers()]
        named += [(f"input {i}", t) for i, t in enumerate(inputs)]
        named += [(f"gradient of input {i}", t.grad) for i, t in enumerate(inputs)]
        named += [(f"gradient of {n}", p.grad) for n, p in model.named_parameters()]
        left |= {f"step {step} {n}": kept(t) for n, t in named if t is not None}
    return left | generators()


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal bit for bit; what is not a number equals itself."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.is_complex():
        a, b = (torch.view_as_real(t.resolve_conj().resolve_neg()) for t in (a, b))
    if not a.is_floating_point():
        return a.equal(b)
    bits = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.int8}[a.element_size()]
    return bool(((a.view(bits) == b.view(bits)) | (a.isnan() & b.isnan())).all())


def differences(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> list[str]:
    return [n for n in {**a, **b} if n not in a or n not in b or not same(a[n], b[n])]
