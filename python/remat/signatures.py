"""Signatures of the core's functions and methods, which `inspect.signature` cannot see by itself."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

Wrapped = TypeVar("Wrapped", bound=Callable[..., Any])

# What a signature of nanobind shows in place of the n-th default.
_DEFAULT = re.compile(r"\\(\d+)")
# nanobind's annotations of arrays are not valid Python.
_ARRAY = re.compile(r"numpy\.ndarray\[[^\]]*\]")


def signature_of(function: Any) -> inspect.Signature | None:
    """The signature of a function or method of the core, from its docstring; None if it has overloads.
    Annotations are strings."""
    overloads = function.__nb_signature__
    if len(overloads) != 1:
        return None
    text, _, defaults = overloads[0]
    names = {f"default_{i}": value for i, value in enumerate(defaults or ())}
    text = _DEFAULT.sub(r"default_\1", text)
    text = _ARRAY.sub("numpy.ndarray", text)
    text = text.replace("remat._core.", "").replace("collections.abc.", "").replace("typing.", "")
    spelled = re.sub(r"^def \w+", "def function", text)
    exec(f"from __future__ import annotations\n{spelled}: ...", names)
    return inspect.signature(names["function"])


def signed(function: Wrapped, module: str) -> Wrapped:
    """A Python function with the name, docstring and signature of the core's `function`, which it calls."""

    def call(*args: Any, **keywords: Any) -> Any:
        try:
            return function(*args, **keywords)
        except TypeError as error:
            if "incompatible function arguments" not in str(error):
                raise
            # nanobind's own message takes four lines.
            given = [type(value).__name__ for value in args]
            given += [f"{name}: {type(value).__name__}" for name, value in keywords.items()]
            raise TypeError(
                f"{function.__name__}() takes {signature_of(function)}, not ({', '.join(given)})"
            ) from None

    functools.update_wrapper(call, function)
    call.__module__ = module
    # nanobind's own docstring repeats the signature.
    call.__doc__ = function.__nb_signature__[0][1]  # type: ignore[attr-defined]
    call.__signature__ = signature_of(function)  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]


def sign_class(kind: type) -> None:
    """Gives a class of the core, and its public methods, signatures."""
    for name, member in list(vars(kind).items()):
        if not hasattr(member, "__nb_signature__"):
            continue
        if name == "__init__":
            own = signature_of(member)
            if own is not None:
                kept = [p for p in own.parameters.values() if p.name != "self"]
                kind.__signature__ = own.replace(  # type: ignore[attr-defined]
                    parameters=kept, return_annotation=inspect.Signature.empty
                )
        elif not name.startswith("_") and signature_of(member) is not None:
            is_static = type(member).__name__ == "nb_func"
            function = signed(member, kind.__module__)
            setattr(kind, name, staticmethod(function) if is_static else function)


def keywords_of(*groups: type, defaults: dict[str, Any]) -> Callable[[Wrapped], Wrapped]:
    """Decorates a function whose last parameter is `**name: Unpack[...]`: its signature then lists the
    keywords of the typed dictionaries `groups`. `defaults`: by keyword; None for others."""

    def decorate(function: Wrapped) -> Wrapped:
        own = inspect.signature(function)
        named = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
        for name, annotation in ((n, a) for g in groups for n, a in g.__annotations__.items()):
            text = getattr(annotation, "__forward_arg__", annotation)
            named.append(
                inspect.Parameter(
                    name, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(name), annotation=text
                )
            )
        function.__signature__ = own.replace(parameters=named)  # type: ignore[attr-defined]
        return function

    return decorate
