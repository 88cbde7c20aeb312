"""Needs the extra `torch`; without it these tests are skipped, with that reason."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

# The allocator warns about blocks that are older than a measurement.
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install remat[torch])")
importlib.import_module("torch._dynamo.symbolic_convert")

# Pytest would keep every line of the compiler's own trace.
logging.getLogger("torch.__trace").propagate = False

# Collections, of which tests ask for many, need not walk through what imports made.
gc.collect()
gc.freeze()

# The models are too small for threads to help.
torch.set_num_threads(1)


def pytest_configure(config: pytest.Config) -> None:
    # Dynamo looks at the gradients of all inputs after a graph break.
    config.addinivalue_line("filterwarnings", "ignore:The .grad attribute of a Tensor that is not a leaf")
    # transformers copies a configuration in the forward of T5, and PyTorch 2.12 breaks the graph there.
    config.addinivalue_line("filterwarnings", "ignore:Dynamo does not know how to trace the builtin")
    config.addinivalue_line("markers", "trace_fails: `fit` goes on in eager mode after an exception")


@pytest.fixture(autouse=True)
def no_word_of_a_busy_machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that count warnings must pass on a busy machine too; `test_timing` looks at that one."""
    from remat.torch.cost.timing import Stopwatch

    if request.module.__name__ != "test_timing":
        monkeypatch.setattr(Stopwatch, "warn_of_noise", lambda self: None)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], float]], list[int]]:
    """Lets each copy begin so many seconds late, a function of its bytes; returns the sizes of all copies."""

    from remat.torch.run import channels

    def late(seconds: Callable[[int], float]) -> list[int]:
        sizes: list[int] = []
        move = channels.move

        def late_move(target: int, source: int, size: int) -> None:
            time.sleep(seconds(size))
            sizes.append(size)
            move(target, source, size)

        monkeypatch.setattr(channels, "move", late_move)
        return sizes

    return late


@pytest.fixture(autouse=True)
def in_a_hurry(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests ask what is done with the durations of ops and with the least peak that is known; only those of
    measuring ask how exact they are.
    """
    from remat.torch.cost import profile, timing
    from remat.torch.plan import report, search

    monkeypatch.setattr(search, "_LEAST_WORK", 100_000)
    monkeypatch.setattr(report, "_LEAST_WORK", 100_000)
    if request.module.__name__ not in ("test_timing", "test_costs", "test_measure"):
        monkeypatch.setattr(profile, "_leave_the_cache", lambda: None)
        monkeypatch.setattr(profile, "_timed_again", lambda *_: {})
        monkeypatch.setattr(timing, "_MOST_RUNS", timing._AGREEING)


@pytest.fixture(autouse=True)
def fresh_compiler():
    """Every test compiles and measures again."""
    from remat.torch.cost.source import forget_measured

    torch._dynamo.reset()
    forget_measured()
    yield
    torch._dynamo.reset()


@pytest.fixture(autouse=True)
def modes_stay() -> Iterator[None]:
    """What a test leaves behind must not decide about the next one."""
    before = _modes()
    yield
    assert _modes() == before


def _modes() -> dict[str, Any]:
    nesting = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    return {
        "gradients": torch.is_grad_enabled(),
        "autocast": [torch.is_autocast_enabled("cpu"), torch.is_autocast_cache_enabled(), nesting - 1],
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "threads": torch.get_num_threads(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "function modes": torch._C._len_torch_function_stack(),
    }


class _Refused(logging.Handler):
    """Fails where `fit` goes on after an exception while tracing, which may be an error of ours."""

    def emit(self, record: logging.LogRecord) -> None:
        assert "tracing it failed" not in record.getMessage(), record.getMessage()


@pytest.fixture(autouse=True)
def tracing_succeeds(request: pytest.FixtureRequest) -> Iterator[None]:
    """But in tests marked `trace_fails`."""
    handler, logger = _Refused(), logging.getLogger("remat.torch")
    if request.node.get_closest_marker("trace_fails") is None:
        logger.addHandler(handler)
    yield
    logger.removeHandler(handler)


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A line for each joint graph that AOTAutograd traces."""
    from remat.torch.base.private import graph_compile

    found: list[Any] = []
    traced = graph_compile.aot_dispatch_autograd_graph

    def counted(*args: Any, **kwargs: Any) -> Any:
        found.append(args)
        return traced(*args, **kwargs)

    monkeypatch.setattr(graph_compile, "aot_dispatch_autograd_graph", counted)
    return found
