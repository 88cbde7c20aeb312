"""The tested releases of PyTorch: docs/compatibility.md."""

from __future__ import annotations

import logging
import re

import torch

OLDEST, NEWEST = (2, 10), (2, 15)

log = logging.getLogger("remat.torch")


def warn_of_other_release(version: str) -> None:
    """A one-line warning if the release, such as "2.13.0+cpu", is not among them."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None:
        return  # a mock, as in builds of the documentation
    if not OLDEST <= tuple(map(int, found.groups())) <= NEWEST:
        tried = [".".join(map(str, release)) for release in (OLDEST, NEWEST)]
        log.warning("PyTorch %s was not tried: remat.torch is tested with %s to %s", version, *tried)


warn_of_other_release(str(torch.__version__))
