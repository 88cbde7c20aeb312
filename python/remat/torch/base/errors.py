"""Errors of the PyTorch front-end."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import remat

log = logging.getLogger("remat.torch")

_P = ParamSpec("_P")
_R = TypeVar("_R")


class UnsupportedModelError(remat.RematError):
    """The step contains something that cannot be planned; the message names the operation."""


class NothingToPlanError(UnsupportedModelError):
    """Nothing of the step needs a gradient."""


class UnplannableError(UnsupportedModelError):
    """One graph of a model cannot be planned: it can run in eager mode, the others with their plans."""


class HostMemoryError(remat.RematError):
    """The host has no room for the copies of a step (a full disk, an exhausted host budget), raised before
    the step; or a copy failed.
    """


class VerificationError(remat.RematError):
    """A planned step made other bits than eager mode, or needed more than its budget (option `verify`)."""


def errors_stand_alone(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Strips the frames of Dynamo and AOTAutograd from errors of remat, which hide the one line that matters.
    They are logged at level DEBUG.
    """

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except remat.RematError as error:
            log.debug("%s", error, exc_info=True)
            raise error.with_traceback(None) from None

    return call
