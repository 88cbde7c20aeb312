"""What can go wrong between a PyTorch model and a plan."""

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
    """One graph of a model holds it: that one can run as in eager mode, the others with their plans."""


class HostMemoryError(remat.RematError):
    """The host has no room for what a step copies out (a full disk, an exhausted budget of the host); raised
    before the step. Or a copy failed.
    """


class VerificationError(remat.RematError):
    """A planned step made other bits than eager mode, or needed more than its budget (option `verify`)."""


def errors_stand_alone(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Errors of remat leave it without the frames of Dynamo and AOTAutograd that they came through: those
    are of no use to who reads the one line that matters. The logger has them at level DEBUG.
    """

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except remat.RematError as error:
            log.debug("%s", error, exc_info=True)
            raise error.with_traceback(None) from None

    return call
