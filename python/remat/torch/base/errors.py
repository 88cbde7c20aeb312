"""What can go wrong between a PyTorch model and a plan."""

from __future__ import annotations

import remat


class UnsupportedModelError(remat.RematError):
    """The step contains something that cannot be planned; the message names the operation."""
