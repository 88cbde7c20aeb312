"""The module that `fit` returns."""

from __future__ import annotations

import copy
import functools
import inspect
import types
from collections.abc import Callable
from typing import Any, cast

import torch

from .errors import log
from .private import COMPILED_CALL, eager_call, in_symbolic_tracing

_CALL, _REPORT, _MODEL = "_remat_call", "_remat_report", "_remat_model"


class _Fitted:
    """Mixed into the class of a model. Its state is the model's own `__dict__`: hooks, children and bound
    methods that refer to the model see what is set on the fitted one, and the other way round. Its own are
    slots only; instances that PyTorch or users make of its class have nothing in them and run unplanned.
    """

    __slots__ = ()
    _remat_class: type[torch.nn.Module]

    def __init_subclass__(cls, **_: Any) -> None:
        """That of the model's class may register it by name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compiled code around it leaves calls to Python: what it traced would have no plan."""
        if torch.compiler.is_exporting():
            return eager_call(self)(*args, **kwargs)
        if torch.compiler.is_compiling():
            return _by_plan(super().__call__, args, kwargs)  # type: ignore[misc]
        return super().__call__(*args, **kwargs)  # type: ignore[misc]

    @property
    def _compiled_call_impl(self) -> Callable[..., Any] | None:
        call: Callable[..., Any] | None = _slot(self, _CALL)
        return self.__dict__.get(COMPILED_CALL) if call is None else call

    @_compiled_call_impl.setter
    def _compiled_call_impl(self, call: Callable[..., Any]) -> None:
        object.__setattr__(self, _CALL, call)

    @property
    def remat(self) -> Any:
        return self.__dict__.get("remat") if _slot(self, _CALL) is None else report_of(self)

    def __copy__(self) -> Any:
        return self._without_plan(copy.copy(model_behind(self)))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._without_plan(copy.deepcopy(model_behind(self), memo))

    def _without_plan(self, copied: Any) -> Any:
        if report_of(self) is not None:
            copied.__dict__["remat"] = copy.deepcopy(report_of(self))
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        reduced = model_behind(self).__reduce_ex__(protocol)
        if not isinstance(reduced, tuple):
            return reduced
        # Pickle wants a function of another name where an object is made of another class.
        make, args, *rest = reduced
        if report_of(self) is not None and rest and isinstance(rest[0], dict):
            rest[0] = {**rest[0], "remat": report_of(self)}
        return (functools.partial(make, *args), (), *rest)


@torch.compiler.disable(reason="remat runs the model by its plan")
def _by_plan(call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    return call(*args, **kwargs)


def _slot(module: Any, name: str) -> Any:
    try:
        return object.__getattribute__(module, name)
    except AttributeError:
        return None


def fitted_module(model: torch.nn.Module, call: Callable[..., Any], report: Any) -> torch.nn.Module:
    """A module of the model's class and with its state, whose calls are `call` and whose attribute `remat` is
    the report. The model is not changed, and lives as long as the result.
    """
    model = model_behind(model)
    base = type(model)
    own: dict[str, Any] = {name: getattr(base, name) for name in ("__module__", "__qualname__", "__doc__")}
    own |= {"__slots__": (_CALL, _REPORT, _MODEL), "_remat_class": base}
    if isinstance(inspect.getattr_static(base, "forward", None), types.FunctionType):
        own["forward"] = _unplanned_forward(base)
    kind = types.new_class(base.__name__, (_Fitted, base), {}, lambda body: body.update(own))
    fitted: Any = object.__new__(kind)
    for name, value in ("__dict__", model.__dict__), (_CALL, call), (_REPORT, report), (_MODEL, model):
        object.__setattr__(fitted, name, value)
    return cast(torch.nn.Module, fitted)


def _unplanned_forward(base: Any) -> Callable[..., Any]:
    """The method `forward`, which says that it runs without a plan. Planned calls are of the model behind."""
    said: list[str] = []

    @functools.wraps(base.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not said and _trains(self):
            said.append(base.__name__)
            log.warning("%s.forward(...) runs without a plan: call the model that fit returned", *said)
        return base.forward(self, *args, **kwargs)

    return forward


def _trains(fitted: Any) -> bool:
    """Is this forward, called on a fitted module, one that a plan could run?"""
    traced = torch.compiler.is_compiling() or torch.jit.is_tracing() or in_symbolic_tracing()
    # A forward that was set on the model may call this one in a planned call.
    replaced = "forward" in vars(fitted)
    return torch.is_grad_enabled() and not (traced or replaced) and report_of(fitted) is not None


def model_behind(module: Any) -> Any:
    """The model that a fitted module was made of; any other module itself."""
    if not isinstance(module, _Fitted):
        return module
    model = _slot(module, _MODEL)
    if model is None:
        model = object.__new__(module._remat_class)
        object.__setattr__(model, "__dict__", module.__dict__)
    return model


def report_of(module: Any) -> Any:
    """The report of a fitted module; None for others, copies of a fitted one among them."""
    return _slot(module, _REPORT) if isinstance(module, _Fitted) else None
