"""What Dynamo refuses by default although a plan can carry it out."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from typing import Any

from ..base.private import IGNORED_LOGGING, _dynamo

_NO_LIMIT = 1 << 30


def permissive_tracing() -> AbstractContextManager[Any]:
    """While it lasts, Dynamo traces recurrent layers, and messages that are logged once break no graph.

    Recurrent layers are refused because unrolling them makes large graphs; that is what a plan needs. Methods
    such as `warning_once`, which libraries add to `logging.Logger`, are left out of what is compiled (they
    have run, or will run, in a call that is not); all other logging breaks the graph and runs as ever. Hooks
    of modules that come later are noticed. New shapes and new models are without limit: they are counted,
    and warned about, by the session; past a limit of Dynamo they would silently run eagerly.
    """
    config: Any = _dynamo.config
    once = {method for name, method in vars(logging.Logger).items() if name.endswith("_once")}
    return config.patch(
        {
            "allow_rnn": True,
            IGNORED_LOGGING: getattr(config, IGNORED_LOGGING) | once,
            "skip_nnmodule_hook_guards": False,
            "recompile_limit": _NO_LIMIT,
            "accumulated_recompile_limit": _NO_LIMIT,
        }
    )
