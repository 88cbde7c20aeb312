"""Errors and reasons of PyTorch in one line."""

from __future__ import annotations

import re

from remat import RematError

from .private import BREAKING_ERRORS

_ADDRESS = re.compile(r" at 0x[0-9a-f]+| ?0x[0-9a-f]{6,}")
_SENTENCES = re.compile(r"\. (?=[A-Z])")


def in_a_line(error: Exception) -> str:
    """What an error says, with its type if it is not ours."""
    inner = getattr(error, "inner_exception", None) or error
    if isinstance(inner, RematError):
        return str(inner)
    if isinstance(inner, BREAKING_ERRORS[:2]):
        return f"what {first_sentence(str(inner))} makes depends on data"
    text = first_sentence(str(inner)) if str(inner).strip() else "no reason is given"
    return f"{type(inner).__name__}: {text}"


def first_sentence(reason: str) -> str:
    """Dynamo's reason, without its advice."""
    lines = [line.strip() for line in reason.splitlines() if line.strip()]
    explained = [line.removeprefix("Explanation: ") for line in lines if line.startswith("Explanation: ")]
    text = (explained or lines or ["it does not say why"])[0]
    if text.startswith("generic_jump"):
        return "the branch taken depends on data"
    return _ADDRESS.sub("", _SENTENCES.split(text)[0]).rstrip(".: ")
