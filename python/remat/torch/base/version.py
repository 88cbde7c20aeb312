"""The releases of PyTorch that the front-end was tried with: docs/compatibility.md."""

from __future__ import annotations

import logging
import re

import torch

OLDEST, NEWEST = (2, 10), (2, 15)

log = logging.getLogger("remat.torch")


def warn_of_other_release(version: str) -> None:
    """One line where the release, such as "2.13.0+cpu", is not one of those."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None:
        return  # a stand-in, as where the documentation is made
    if not OLDEST <= tuple(map(int, found.groups())) <= NEWEST:
        tried = [".".join(map(str, release)) for release in (OLDEST, NEWEST)]
        log.warning("PyTorch %s was not tried: remat.torch is tested with %s to %s", version, *tried)


warn_of_other_release(str(torch.__version__))
