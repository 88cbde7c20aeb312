"""Writes files atomically."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file such that readers never see a part of it. Raises OSError."""
    beside = path.parent / f".{path.name}.{secrets.token_hex(6)}.tmp"
    try:
        with beside.open("xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
