"""The modes in which PyTorch's ops run: gradients and autocast, of this thread; and settings of kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch

from .devices import devices_in_use
from .private import KernelSettings, attention_priority


class Modes:
    """The modes at the time of construction.

    A graph of Dynamo enters and leaves autocast by two ops. If something fails between them, autocast stays
    on, and casts of weights are reused from step to step while the weights change.
    """

    def __init__(self) -> None:
        self._gradients = torch.is_grad_enabled()
        self._nesting = _autocast_nesting()
        self._caches = torch.is_autocast_cache_enabled()
        self._autocast = [
            (kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in _kinds()
        ]

    def restore(self) -> None:
        torch.set_grad_enabled(self._gradients)
        torch.set_autocast_cache_enabled(self._caches)
        for kind, enabled, dtype in self._autocast:
            torch.set_autocast_enabled(kind, enabled)
            torch.set_autocast_dtype(kind, dtype)
        if _autocast_nesting() > self._nesting:
            while torch.autocast_decrement_nesting() > self._nesting:
                pass
            torch.clear_autocast_cache()


@contextmanager
def modes_kept(only_after_errors: bool = False) -> Iterator[None]:
    """Restores the modes afterwards. only_after_errors: the code may change them."""
    modes = Modes()
    try:
        yield
    except BaseException:
        modes.restore()
        raise
    if not only_after_errors:
        modes.restore()


@contextmanager
def casts_apart() -> Iterator[None]:
    """For steps run in addition to the user's. Autocast caches casts until its context is left: a later step
    would read these casts, whose gradients go to an older autograd node and would be summed in another order.
    """
    _forget_casts()
    try:
        yield
    finally:
        _forget_casts()


# Of autocast: kinds of devices for which it is on, and what it casts to.
Casts = tuple[tuple[str, torch.dtype], ...]


def casts_now() -> Casts:
    return tuple(
        (kind, torch.get_autocast_dtype(kind)) for kind in _kinds() if torch.is_autocast_enabled(kind)
    )


@contextmanager
def casting(casts: Casts) -> Iterator[None]:
    """Autocast is on exactly for these."""
    wanted, on = dict(casts), filter(torch.is_autocast_enabled, _kinds())
    with ExitStack() as stack:
        for kind in {*wanted, *on}:
            stack.enter_context(torch.autocast(kind, wanted.get(kind), enabled=kind in wanted))
        yield


class TraceSettings(NamedTuple):
    """Settings by which ops that are made of others choose these: attention, recurrent layers, norms, einsum.

    Tracing does that once, and Dynamo does not look at them. kernels: they decide about bytes and times too.
    """

    kernels: KernelSettings
    attention: tuple[object, ...]
    einsum: tuple[object, ...]

    @classmethod
    def now(cls) -> TraceSettings:
        einsum, attention = torch.backends.opt_einsum, torch.backends.cuda
        return cls(
            KernelSettings.now(),
            (
                attention.flash_sdp_enabled(),
                attention.mem_efficient_sdp_enabled(),
                attention.math_sdp_enabled(),
                attention.cudnn_sdp_enabled(),
                attention.fp16_bf16_reduction_math_sdp_allowed(),
                attention_priority(),
            ),
            (einsum.enabled, einsum.strategy),
        )


@contextmanager
def with_kernels_of(settings: KernelSettings) -> Iterator[None]:
    """For ops that run again: kernels are chosen as they were in the forward, which a context around it may
    have decided."""
    now = KernelSettings.now()
    if now == settings:
        yield
        return
    settings.set()
    try:
        yield
    finally:
        now.set()


def _forget_casts() -> None:
    if any(map(torch.is_autocast_enabled, _kinds())):
        torch.clear_autocast_cache()


def _kinds() -> list[str]:
    return sorted({device.type for device in devices_in_use()})


def _autocast_nesting() -> int:
    try:
        return torch.autocast_increment_nesting() - 1
    finally:
        torch.autocast_decrement_nesting()
