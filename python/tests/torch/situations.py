"""Random sequences of what a training loop may do with a model, beside the same in eager mode.

`python situations.py --seeds 100` runs that many, each with a model, an executor and a budget drawn by its
seed, and shows what differs from eager mode or goes above a budget in bytes without a warning.
"""

from __future__ import annotations

import argparse
import copy
import io
import logging
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import remat
import remat.torch
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint

TURNS = 12
BATCH = 4
SHARES = (0.65, 0.8, 0.9, 1.0)


# ------------------------------------------------------------------ models: of one or two tensors
class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(12 if i else 3, 12, 3, padding=1) for i in range(5))
        self.norms = nn.ModuleList(nn.BatchNorm2d(12) for _ in range(5))
        self.head = nn.Linear(12, 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = F.dropout(F.relu(norm(layer(x)), inplace=True), 0.1, self.training)
        return self.head(x.mean((2, 3))).square().mean()


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
            if x.mean() > 0:
                x = F.gelu(x) * 1.1
        return x.square().mean()


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers, self.head = nn.LSTM(16, 24, 2, dropout=0.1, batch_first=True), nn.Linear(24, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x)[0]).square().mean()


class Language(nn.Module):
    """With tied embeddings; returns its scores too."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(96, 32)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(32, 4, 64, 0.1, F.gelu, batch_first=True) for _ in range(4)
        )
        self.head = nn.Linear(32, 96, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        scores = self.head(x)
        return {"loss": F.cross_entropy(scores.flatten(0, 1), tokens.flatten()), "scores": scores}


@dataclass
class Subject:
    """inputs: of a batch of so many samples."""

    model: type[nn.Module]
    inputs: Callable[[int, torch.Generator], torch.Tensor]


SUBJECTS = {
    "convolutions": Subject(Convolutions, lambda n, g: torch.randn(n, 3, 16, 16, generator=g)),
    "branches": Subject(Branches, lambda n, g: torch.randn(64 * n, 32, generator=g)),
    "recurrent": Subject(Recurrent, lambda n, g: torch.randn(n, 20, 16, generator=g)),
    "language": Subject(Language, lambda n, g: torch.randint(96, (n, 24), generator=g)),
}


# ------------------------------------------------------------------ what a loop may do
@dataclass
class Turn:
    """One turn of a loop, the same for both models. number: drawn, for whatever is chosen."""

    model: Any
    optimizer: torch.optim.Optimizer
    subject: Subject
    seed: int
    number: int

    def batch(self, samples: int = BATCH, which: int = 0) -> torch.Tensor:
        return self.subject.inputs(samples, torch.Generator().manual_seed(self.seed + which))

    def loss(self, x: torch.Tensor | None = None) -> torch.Tensor:
        outputs = self.model(self.batch() if x is None else x)
        loss: torch.Tensor = outputs["loss"] if isinstance(outputs, dict) else outputs
        return loss

    def step(self, x: torch.Tensor | None = None) -> torch.Tensor:
        loss = self.loss(x)
        if loss.requires_grad:
            loss.backward()
        return loss.detach()

    def layer(self) -> nn.Module:
        layers = [each for each in self.model.modules() if type(each) in (nn.Linear, nn.Conv2d)]
        return layers[self.number % len(layers)]

    def parameter(self) -> nn.Parameter:
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        return parameters[self.number % len(parameters)]


Action = Callable[[Turn], Any]
ACTIONS: list[Action] = []


def may_come(action: Action) -> Action:
    ACTIONS.append(action)
    return action


@may_come
def trains(turn: Turn) -> Any:
    turn.optimizer.zero_grad()
    loss = turn.step()
    turn.optimizer.step()
    return loss


@may_come
def adds_gradients(turn: Turn) -> Any:
    return turn.step()


@may_come
def zeroes_gradients(turn: Turn) -> Any:
    turn.optimizer.zero_grad(set_to_none=False)
    return turn.step()


@may_come
def other_batch(turn: Turn) -> Any:
    return turn.step(turn.batch(1 + turn.number % BATCH))


@may_come
def without_gradients(turn: Turn) -> Any:
    with torch.no_grad() if turn.number % 2 else torch.inference_mode():
        return turn.loss().clone()


@may_come
def evaluates(turn: Turn) -> Any:
    turn.model.eval()
    with torch.no_grad():
        first = turn.loss()
    loss = turn.step()
    turn.model.train()
    return first, loss


@may_come
def two_calls(turn: Turn) -> Any:
    if isinstance(turn.model, Language):  # PyTorch's tracing sums gradients of tied weights by calls
        return turn.step()
    loss = turn.loss() + turn.loss(turn.batch(which=1))
    loss.backward()
    return loss.detach()


@may_come
def no_backward(turn: Turn) -> Any:
    return turn.loss().detach()


@may_come
def keeps_the_graph(turn: Turn) -> Any:
    loss = turn.loss()
    loss.backward(retain_graph=True)
    loss.backward()
    return loss.detach()


@may_come
def asks_for_gradients(turn: Turn) -> Any:
    loss = turn.loss()
    sources = [p for p in turn.model.parameters() if p.requires_grad]
    return loss.detach(), *torch.autograd.grad(loss, sources, allow_unused=True)


@may_come
def freezes(turn: Turn) -> Any:
    parameters = list(turn.model.parameters())
    parameter = parameters[turn.number % len(parameters)]
    parameter.requires_grad_(not parameter.requires_grad)
    parameter.grad = None
    return turn.step()


@may_come
def loads(turn: Turn) -> Any:
    file = io.BytesIO()
    torch.save(
        {
            name: 1.01 * each if each.is_floating_point() else each
            for name, each in turn.model.state_dict().items()
        },
        file,
    )
    file.seek(0)
    turn.model.load_state_dict(torch.load(file))
    return turn.step()


@may_come
def writes_to_parameters(turn: Turn) -> Any:
    with torch.no_grad():
        for parameter in turn.model.parameters():
            parameter.mul_(0.999)
    turn.parameter().data = turn.parameter().data.clone()
    return turn.step()


@may_come
def hooks(turn: Turn) -> Any:
    if turn.number % 2:
        hook = turn.layer().register_forward_hook(lambda module, given, y: 1.5 * y)
    else:
        hook = turn.layer().register_forward_pre_hook(lambda module, given: (0.5 * given[0],))
    loss = turn.step()
    hook.remove()
    return loss


@may_come
def hooks_of_gradients(turn: Turn) -> Any:
    seen: list[torch.Tensor] = []
    handles = [
        turn.layer().register_full_backward_hook(lambda module, inner, outer: seen.append(outer[0].sum())),
        turn.parameter().register_hook(lambda gradient: 2 * gradient),
        turn.parameter().register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.sum())),
    ]
    loss = turn.step()
    for handle in handles:
        handle.remove()
    return loss, *seen


@may_come
def raises(turn: Turn) -> Any:
    def fails(*_: Any) -> None:
        raise ValueError("of the user's own")

    hook = turn.layer().register_forward_hook(fails)
    state = torch.get_rng_state()
    try:
        turn.loss()
    except ValueError as error:
        return torch.tensor(len(str(error)))
    finally:
        hook.remove()
        torch.set_rng_state(state)


@may_come
def wrong_arguments(turn: Turn) -> Any:
    try:
        return turn.loss(torch.zeros(2, 2, 2))
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        return torch.tensor(isinstance(error, remat.RematError))


@may_come
def casts(turn: Turn) -> Any:
    dropout = isinstance(turn.model, Language) and turn.model.training
    with torch.autocast(
        "cpu", torch.bfloat16, enabled=not dropout
    ):  # traced dropout in attention rounds apart
        loss = turn.loss()
    loss.backward()
    return loss.detach()


@may_come
def other_type(turn: Turn) -> Any:
    x = turn.batch()
    turn.model.to(torch.float64)
    loss = turn.step(x.double() if x.is_floating_point() else x)
    turn.model.to(torch.float32)
    turn.model.zero_grad()
    return loss


@may_come
def inputs_with_gradients(turn: Turn) -> Any:
    x = turn.batch()
    x.requires_grad_(x.is_floating_point())
    return turn.step(x), x.grad


@may_come
def in_a_thread(turn: Turn) -> Any:
    found: list[torch.Tensor] = []

    def run() -> None:
        torch.set_num_threads(1)
        found.append(turn.step())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found


@may_come
def in_a_checkpoint(turn: Turn) -> Any:
    loss: torch.Tensor = checkpoint(turn.loss, use_reentrant=False)
    loss.backward()
    return loss.detach()


@may_come
def replaces_a_layer(turn: Turn) -> Any:
    head = turn.model.get_submodule("head") if hasattr(turn.model, "head") else turn.model.layers[3]
    if not isinstance(turn.model, Language):
        head.weight = nn.Parameter(head.weight.detach() * 0.5)
    return turn.step()


@may_come
def parametrizes(turn: Turn) -> Any:
    layer = turn.layer()
    if layer is getattr(turn.model, "head", None):
        return turn.step()
    parametrizations.weight_norm(layer)
    loss = turn.step()
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
    turn.model.zero_grad()
    return loss


@may_come
def writes_to_buffers(turn: Turn) -> Any:
    for buffer in turn.model.buffers():
        if buffer.is_floating_point():
            buffer.mul_(1.01)
    return turn.step()


@may_come
def some_gradients(turn: Turn) -> Any:
    for number, parameter in enumerate(turn.model.parameters()):
        if number % 2:
            parameter.grad = None
    return turn.step()


@may_come
def copies_the_model(turn: Turn) -> Any:
    other = copy.deepcopy(turn.model)
    loss = Turn(other, turn.optimizer, turn.subject, turn.seed, turn.number).step()
    return loss, *(p.grad for p in other.parameters())


@may_come
def clips(turn: Turn) -> Any:
    loss = turn.step()
    return loss, nn.utils.clip_grad_norm_(turn.model.parameters(), 0.1)


@may_come
def other_parameters(turn: Turn) -> Any:
    own = {name: p.detach().clone().requires_grad_() for name, p in turn.model.named_parameters()}
    outputs = torch.func.functional_call(turn.model, own, (turn.batch(),))
    loss = outputs["loss"] if isinstance(outputs, dict) else outputs
    loss.backward()
    return loss.detach(), *(p.grad for p in own.values())


@may_come
def holds_outputs(turn: Turn) -> Any:
    outputs = turn.model(turn.batch())
    if not isinstance(outputs, dict):
        outputs.backward()
        return outputs.detach()
    loss = outputs["loss"] + outputs["scores"].square().mean()
    loss.backward()
    return loss.detach(), outputs["scores"].detach()


@may_come
def looks_for_anomalies(turn: Turn) -> Any:
    with torch.autograd.set_detect_anomaly(True):
        return turn.step()


# ------------------------------------------------------------------ both beside each other
@contextmanager
def warnings_heard() -> Iterator[list[str]]:
    heard: list[str] = []
    logger, handler = logging.getLogger("remat.torch"), logging.Handler(logging.WARNING)
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        yield heard
    finally:
        logger.removeHandler(handler)


def tensors_of(results: Any) -> list[torch.Tensor]:
    items = results if isinstance(results, (tuple, list)) else [results]
    return [item for item in items if isinstance(item, torch.Tensor)]


def state_of(model: nn.Module) -> dict[str, torch.Tensor]:
    found = {name: each.detach() for name, each in (*model.named_parameters(), *model.named_buffers())}
    found |= {f"gradient of {n}": p.grad for n, p in model.named_parameters() if p.grad is not None}
    return found | {"the generator": torch.get_rng_state()}


def fitted(model: nn.Module, x: torch.Tensor, budget: int, executor: str) -> Any:
    try:
        return remat.torch.fit(model, x, budget, executor=executor, work_limit=20_000, time_limit=None)
    except remat.NoPlanError as error:
        return remat.torch.fit(
            model, x, error.smallest_known, executor=executor, work_limit=20_000, time_limit=None
        )


def compared(seed: int) -> str:
    """What is wrong with a sequence, in a line; nothing where all is as in eager mode."""
    chance = random.Random(seed)
    name, executor = chance.choice(list(SUBJECTS)), chance.choice(["auto", "eager"])
    share, subject = chance.choice(SHARES), SUBJECTS[name]
    torch.manual_seed(seed)
    eager = subject.model()
    model, x = copy.deepcopy(eager), subject.inputs(BATCH, torch.Generator().manual_seed(seed))

    def optimizer(own: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(own.parameters(), 0.01)

    probe = Turn(copy.deepcopy(eager), optimizer(eager), subject, seed, 0)
    probe.step(x)
    peak = remat.torch.measure_peak(lambda: probe.step(x), resident=[probe.model, x])
    planned = fitted(model, x, int(share * peak), executor)
    budget = max(part.budget for part in planned.remat.parts)
    twins = [(eager, eager, optimizer(eager)), (planned, model, optimizer(model))]
    done: list[str] = []
    for _ in range(TURNS):
        action, drawn, number = chance.choice(ACTIONS), chance.randrange(1 << 20), chance.randrange(1 << 10)
        done.append(action.__name__)
        where = f"{seed}: {name}, {executor}, {share:.0%}: {', '.join(done)}"
        found = []
        for called, own, its_optimizer in twins:
            torch.manual_seed(drawn)
            turn = Turn(called, its_optimizer, subject, drawn, number)
            try:
                results = tensors_of(action(turn))
            except remat.NoPlanError:
                return ""  # the budget is too small for what came, and that is said
            except Exception as error:
                return f"{where}: {type(error).__name__}: {str(error).splitlines()[0]}"
            found.append({str(i): each for i, each in enumerate(results)} | state_of(own))
        wrong = [
            each
            for each in found[0].keys() | found[1].keys()
            if each not in found[0] or each not in found[1] or not found[0][each].equal(found[1][each])
        ]
        if wrong:
            return f"{where}: {', '.join(sorted(wrong)[:4])}"
    try:
        return _above(Turn(planned, twins[1][2], subject, seed, 0), model, budget, where)
    except remat.NoPlanError:
        return ""


def _above(turn: Turn, model: nn.Module, budget: int, where: str) -> str:
    """Is the last step above the budget, and nothing said?"""
    turn.optimizer.zero_grad()
    turn.step()  # plans are made in it, if at all
    turn.optimizer.zero_grad()
    x = turn.batch()
    with warnings_heard() as heard:
        peak = remat.torch.measure_peak(lambda: turn.step(x), resident=[model, x])
    return "" if peak <= budget or heard else f"{where}: {peak} bytes, above {budget}, and nothing is said"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    wrong = 0
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        line = compared(seed)
        wrong += bool(line)
        print(line or f"{seed}: equal", flush=True)
        torch._dynamo.reset()
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
