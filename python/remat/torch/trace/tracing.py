"""Allows what Dynamo refuses by default although a plan can run it."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from typing import Any

from ..base.private import IGNORED_LOGGING, _dynamo

_NO_LIMIT = 1 << 30


def permissive_tracing(unlimited: bool, static: bool = False) -> AbstractContextManager[Any]:
    """Inside the block, Dynamo traces recurrent layers, and messages that are logged once break no graph.

    Recurrent layers are refused because unrolling makes large graphs, which a plan needs. Methods such as
    `warning_once`, which libraries add to `logging.Logger`, are left out of compiled code (an uncompiled call
    runs them); other logging breaks the graph and runs as usual. Module hooks added later are noticed.

    static: sizes are numbers, though they vary. unlimited: any number of new shapes and models: the session
    counts them, and warns.
    """
    config: Any = _dynamo.config
    once = {method for name, method in vars(logging.Logger).items() if name.endswith("_once")}
    limits = {"recompile_limit": _NO_LIMIT, "accumulated_recompile_limit": _NO_LIMIT}
    return config.patch(
        {
            "allow_rnn": True,
            IGNORED_LOGGING: getattr(config, IGNORED_LOGGING) | once,
            "skip_nnmodule_hook_guards": False,
            **(limits if unlimited else {}),
            **({"automatic_dynamic_shapes": False, "assume_static_by_default": True} if static else {}),
        }
    )
