"""What a user can ask for, checked once."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import remat


@dataclass(frozen=True)
class Options:
    """Options of `torch.compile(model, backend="remat", options={...})` and of `remat.torch.fit`.

    budget: bytes for the whole step: parameters, buffers, inputs, gradients, activations, temporaries. A
        number, "6GiB", or "60%" of the peak of keeping everything.
    reserve: bytes of the budget for what the step does not see, such as optimizer state.
    accumulate: are there gradients already when a step starts? None looks at each call, and plans once for
        each of the two cases.
    calls: how many calls of the model come before the first backward. More are noticed, and planned for from
        the next step on.
    planner, order, time_limit (seconds), work_limit, seed, threads: as in `remat.plan`.
    plan: carry out this plan instead of planning: a `remat.Plan`, a list of op indices, or the path of a
        file.
    loss_workspace: bytes that computing the loss outside the model needs on top of its gradient.
    max_shapes: how many combinations of input shapes are planned for without a warning.
    """

    budget: int | str
    reserve: int | str = 0
    accumulate: bool | None = None
    calls: int = 1
    planner: str = "auto"
    order: str = "fixed"
    time_limit: float = 10.0
    work_limit: int | None = None
    seed: int = 0
    threads: int = 1
    plan: Any = None
    loss_workspace: int | str = 0
    max_shapes: int = 16

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any] | None) -> Options:
        """Raises BudgetError without a budget, UsageError for an option that does not exist or cannot be."""
        given = dict(given or {})
        known = [f.name for f in fields(cls)]
        for name in given:
            if name not in known:
                close = difflib.get_close_matches(name, known, 1)
                hint = f"; did you mean {close[0]!r}?" if close else f"; known options: {', '.join(known)}"
                raise remat.UsageError(f"remat: unknown option {name!r}{hint}")
        if given.get("budget") is None:
            raise remat.BudgetError('remat: a budget is needed, for example options={"budget": "6GiB"}')
        options = cls(**given)
        # Bad sizes are errors now, not after minutes of profiling; any peak will do to read a percentage.
        remat.parse_bytes(options.budget, keep_all_peak=1 << 40)
        for name in ("reserve", "loss_workspace"):
            options.size(name)
        if not isinstance(options.calls, int) or options.calls < 1:
            raise remat.UsageError(f"remat: calls must be 1 or more, not {options.calls!r}")
        if options.order not in ("fixed", "free"):
            raise remat.UsageError(f'remat: order must be "fixed" or "free", not {options.order!r}')
        if options.plan is not None and not isinstance(options.plan, (str, Path, remat.Plan, list, tuple)):
            raise remat.UsageError(
                f"remat: plan must be a Plan, a path or a list of ops, not {type(options.plan).__name__}"
            )
        return options

    def size(self, name: str) -> int:
        """`reserve` or `loss_workspace` in bytes."""
        value = getattr(self, name)
        return 0 if value == 0 else remat.parse_bytes(value)
