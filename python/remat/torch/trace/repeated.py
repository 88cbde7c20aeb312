"""Layers of the same kind: Dynamo looks into the first, and the others are told from it.

Dynamo traces the Python code of every layer for itself. Where a list of modules holds several that are
built alike, a call of one becomes a region of PyTorch's (`torch.compiler.nested_compile_region`), which
Dynamo traces once and places again wherever all that it took for granted of the first layer holds for the
next one. The regions are put back into one flat graph before anything else sees it: that of a trace without
them, but for the sequence of its arguments.
"""

from __future__ import annotations

import itertools
import keyword
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from torch import fx, nn

from ..base.private import REGION_PLACE, calls_as_regions, is_region

# Of modules in one list that are built alike: with fewer the regions cost more than they save.
LEAST = 3
# Number and place of a layer.
Layer = tuple[int, str]
_LISTS = (nn.ModuleList, nn.Sequential, nn.ModuleDict)


class _Layers:
    """Finds layers of the same kind, as the modules that hold them are called."""

    def __init__(self, found_in: Iterable[Any]) -> None:
        self._kind_of: dict[int, Hashable] = {}
        self._calls: dict[Hashable, Callable[..., Any]] = {}
        self._seen: dict[int, nn.Module] = {}
        self._refused: set[Callable[..., Any]] = set()
        for item in found_in:
            module = getattr(item, "__self__", item)
            if isinstance(module, nn.Module):
                self._look_into(module)

    def is_member(self, module: nn.Module) -> bool:
        self._look_into(module)
        return id(module) in self._kind_of

    def call(
        self, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Callable[..., Any] | None:
        """What calls a layer with such arguments, the same for all that are built alike."""
        text = _text(args, kwargs)
        if text is None:
            return None
        key = self._kind_of[id(module)], text
        if key not in self._calls:
            self._calls[key] = _compiled(text, f"call_{len(self._calls)}")
        call = self._calls[key]
        return None if call in self._refused else call

    def refuse(self, call: Callable[..., Any]) -> None:
        self._refused.add(call)

    def _look_into(self, module: nn.Module) -> None:
        if id(module) in self._seen:
            return
        self._seen[id(module)] = module
        for each in (module, *module.children()):
            if isinstance(each, _LISTS):
                self._note(list(each.children()))

    def _note(self, members: list[nn.Module]) -> None:
        classes = [type(member) for member in members]
        for member in members:
            # Of a module without modules there is little to trace.
            if classes.count(type(member)) < LEAST or next(member.children(), None) is None:
                continue
            self._kind_of[id(member)] = _kind(member)


def _text(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """A function that calls a layer with these arguments, but for its name; tensors come one by one."""
    count = itertools.count()
    try:
        given = [_written(each, count) for each in args]
        given += [f"{name}={_written(each, count)}" for name, each in kwargs.items()]
    except ValueError:
        return None
    taken = "".join(f", t{i}" for i in range(next(count)))
    return f"(layer{taken}):\n    return layer({', '.join(given)})\n" if _are_names(kwargs) else None


def _are_names(words: Iterable[str]) -> bool:
    return all(word.isidentifier() and not keyword.iskeyword(word) for word in words)


def _written(given: Any, count: Iterator[int]) -> str:
    """An argument in Python. Raises ValueError where there is no way to write it."""
    if isinstance(given, tuple):
        return f"({''.join(f'{_written(each, count)}, ' for each in given)})"
    if given == "%":
        return f"t{next(count)}"
    if given is None or isinstance(given, (bool, int)) or (isinstance(given, float) and math.isfinite(given)):
        return repr(given)
    raise ValueError(given)


def _compiled(text: str, name: str) -> Callable[..., Any]:
    """Regions are known by the code that they run, and code is told apart by its name."""
    names: dict[str, Any] = {}
    exec(compile(f"def {name}{text}", __file__, "exec"), names)
    return cast("Callable[..., Any]", names[name])


def _kind(module: nn.Module) -> Hashable:
    """The same for modules that are built alike: classes, tensors, and what of these is there twice."""
    number: dict[int, int] = {}
    modules = [
        (name, type(each), each.training, number.setdefault(id(each), len(number)))
        for name, each in module.named_modules(remove_duplicate=False)
    ]
    tensors = [
        (name, t.shape, t.dtype, t.device, t.requires_grad, number.setdefault(id(t), len(number)))
        for named in (module.named_parameters, module.named_buffers)
        for name, t in named(remove_duplicate=False)
    ]
    return tuple(modules), tuple(tensors)


@contextmanager
def layers_once(variables: Mapping[str, Any]) -> Iterator[None]:
    """While it lasts, Dynamo traces layers of the same kind once, where PyTorch can do that (from 2.13 on).

    variables: of the code that is converted. What cannot be a region is traced as ever.
    """
    layers = _Layers(variables.values())
    with calls_as_regions(layers.call, layers.is_member, layers.refuse):
        yield


# In metadata of nodes, which AOTAutograd hands on: the layer that it is of, as number and place.
LAYER = "remat_layer"


def flat(gm: fx.GraphModule) -> fx.GraphModule:
    """Dynamo's graph with the ops of its regions in their places, which is changed."""
    regions = [node for node in gm.graph.nodes if is_region(node)]
    if not regions:
        return gm
    first: dict[Any, str] = {}
    for number, node in enumerate(regions):
        holder: Any = node.args[0]
        body, place = getattr(gm, str(holder.target)), node.meta[REGION_PLACE]
        _put(gm.graph, node, body.graph, (0, first.setdefault(holder.target, place)), (number, place))
    for holder in [node for node in gm.graph.nodes if node.op == "get_attr" and not node.users]:
        gm.graph.erase_node(holder)
    for name in first:
        if hasattr(gm, name):
            delattr(gm, name)
    gm.recompile()
    return gm


def _put(graph: fx.Graph, region: fx.Node, body: fx.Graph, traced: Layer, here: Layer) -> None:
    """Ops of a body in place of a call of it. traced, here: the layer that was traced, and this one."""
    told: dict[fx.Node, Any] = dict(zip(body.find_nodes(op="placeholder"), region.args[2:], strict=True))
    with graph.inserting_before(region):
        for node in body.nodes:
            if node.op in ("placeholder", "output"):
                continue
            told[node] = graph.node_copy(node, told.__getitem__)
            moved(told[node], traced, here)
            told[node].meta["custom"] = {**(node.meta.get("custom") or {}), LAYER: here}
    results: Any = body.output_node().args[0]
    for user in list(region.users):
        user.replace_all_uses_with(told[results[user.args[1]]])
        graph.erase_node(user)
    graph.erase_node(region)


def moved(node: fx.Node, traced: Layer, here: Layer) -> None:
    """What is known of a node by its place, as it is in another layer."""
    for key in ("nn_module_stack", "fwd_nn_module_stack"):
        stack = node.meta.get(key)
        if stack and traced[1] != here[1]:
            node.meta[key] = {
                name: (here[1] + path.removeprefix(traced[1]) if _is_inside(path, traced[1]) else path, kind)
                for name, (path, kind) in stack.items()
            }


def _is_inside(path: str, module: str) -> bool:
    return path == module or path.startswith((module + ".", module + "["))
