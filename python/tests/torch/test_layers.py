"""The front-end's files import downward only, go in no circle, and leave each other's attributes alone."""

from __future__ import annotations

import ast
import inspect
import pydoc
from collections.abc import Iterator, Mapping, Set
from functools import cache
from pathlib import Path

import circles
import pytest
import remat
import remat.torch

# From the bottom up. The files beside the folders are on top of them, side by side, but for those that call
# others of them.
LAYERS = ("base", "trace", "cost", "plan", "run", "session", "eager", "executors", "steps")
# Of them, what is a file.
FILES = {"steps"}
CALLERS = ("verify", "doctor")
TOP = len(LAYERS)

# What is set on objects of PyTorch and of Python, whose interface that is: nodes of fx graphs, optimizers,
# tensors, contexts of autograd functions, callables with boxed arguments, kernels of ops; lines of generated
# code; the dictionary of a module; finalizers. Where PyTorch has no hook: its converter of code, and whether
# it traces.
FOREIGN = {
    "args", "grad", "kwargs", "meta", "param_groups", "state", "target",
    "atexit", "ctx.index", "ctx.replay", "_boxed_call", "py_kernels", "linecache.cache", "__dict__",
    "convert_frame.catch_errors_wrapper", "_symbolic_trace.is_fx_symbolic_tracing",
    "meta.memory_format", "symbolic_convert.format_loop_skip_frame_message",
    "context._tensors_no_vc_check", "tensor._post_accumulate_grad_hooks", "tensor.data",
    "dynamo_utils._get_dynamo_config_for_logging",
}  # fmt: skip

FOLDER = Path(remat.torch.__file__).parent
Sources = Mapping[str, str]


def sources() -> dict[str, str]:
    """Text by dotted name below `remat.torch`; "" is the package itself."""
    found = {}
    for path in FOLDER.rglob("*.py"):
        name = ".".join(path.relative_to(FOLDER).with_suffix("").parts)
        found[name.removesuffix("__init__").rstrip(".")] = path.read_text(encoding="utf-8")
    return found


def layer(name: str) -> int:
    first = name.partition(".")[0]
    if first in CALLERS:
        return TOP + 1 + CALLERS.index(first)
    return LAYERS.index(first) if first in LAYERS else TOP


def imported(name: str, source: str, names: Sources) -> Iterator[str]:
    """The files of the package that a file imports, anywhere in it."""
    package = name if any(other.startswith(f"{name}.") for other in names) or not name else parent(name)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            asked = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package
            for _ in range(node.level - 1):
                base = parent(base)
            parts = ["remat.torch", base, node.module] if node.level else [node.module]
            whole = ".".join(part for part in parts if part)
            asked = [whole, *(f"{whole}.{alias.name}" for alias in node.names)]
        else:
            continue
        below = [each.removeprefix("remat.torch.") for each in asked if each.startswith("remat.torch.")]
        yield from (each for each in below if each in names)


def parent(name: str) -> str:
    return name.rpartition(".")[0]


def upward(files: Sources) -> list[str]:
    """Imports of a layer above, or by one file on top of another."""
    arrows = [(name, to) for name in files if name for to in imported(name, files[name], files)]
    return [
        f"{name} -> {to}"
        for name, to in arrows
        if layer(to) > layer(name) or (layer(to) == TOP and layer(name) == TOP)
    ]


def circle(files: Sources) -> list[str]:
    """The files of a circle of imports, or []."""
    return circles.circle({name: sorted(set(imported(name, files[name], files))) for name in files})


def set_from_outside(source: str) -> list[str]:
    """Assignments to attributes, and to elements of attributes, that no class of the file has."""
    tree = ast.parse(source)
    own = set(declared(tree))
    found = []
    for node in ast.walk(tree):
        where = node.value if isinstance(node, ast.Subscript) else node
        if not isinstance(where, ast.Attribute) or not isinstance(node.ctx, (ast.Store, ast.Del)):
            continue
        if where.attr not in own and not {where.attr, ast.unparse(where)} & FOREIGN:
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


def declared(tree: ast.Module) -> Iterator[str]:
    """The attributes that classes of a file declare, or set on themselves."""
    for cls in [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]:
        for node in ast.walk(cls):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node in cls.body:
                yield node.target.id
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                yield from [node.attr] if ast.unparse(node.value) == "self" else []


def private_names(source: str) -> list[str]:
    """Private modules and names of PyTorch that a file imports or reads from a module of it."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and ast.unparse(node).startswith("torch._"):
            names = [ast.unparse(node)]
        else:
            continue
        parts = [(name, name.split(".")) for name in names if not name.startswith("torch.utils._pytree")]
        found += [n for n, each in parts if any(x.startswith("_") and not x.startswith("__") for x in each)]
    return found


# Private by their names only: ops and named tuples; Python's own.
NOT_PYTORCH = {"_unsafe_view", "_replace", "_asdict", "_fields", "_getframe"}


def private_attributes(source: str, own: Set[str]) -> list[str]:
    """Attributes with an underscore that no class or file of the package has, read by name or by text."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            name = node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr", "hasattr"):
            name = ast.literal_eval(node.args[1]) if isinstance(node.args[1], ast.Constant) else ""
        elif isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("__dict__"):
            name = ast.literal_eval(node.slice) if isinstance(node.slice, ast.Constant) else ""
        else:
            continue
        if name.startswith("_") and not name.startswith("__") and name not in own | NOT_PYTORCH:
            found.append(f"line {node.lineno}: {name}")
    return found


def own_names(files: Sources) -> set[str]:
    """Attributes, methods and functions that files declare."""
    trees = [ast.parse(source) for source in files.values()]
    functions = {n.name for tree in trees for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    return functions | {name for tree in trees for name in declared(tree)}


@cache
def names_of_the_package() -> set[str]:
    return own_names(sources())


@pytest.mark.parametrize("name", sorted(set(sources()) - {"base.private"}))
def test_private_attributes_of_pytorch_are_read_in_one_file(name: str) -> None:
    assert private_attributes(sources()[name], names_of_the_package()) == []


@pytest.mark.parametrize("name", sorted(set(sources()) - {"base.private"}))
def test_private_names_of_pytorch_come_from_one_file(name: str) -> None:
    assert private_names(sources()[name]) == []


def test_files_import_downward_only() -> None:
    assert upward(sources()) == []


def test_imports_go_in_no_circle() -> None:
    assert circle(sources()) == []


@pytest.mark.parametrize("name", sorted(sources()))
def test_no_attribute_of_another_object_is_set_from_outside(name: str) -> None:
    assert set_from_outside(sources()[name]) == []


def test_every_folder_is_a_layer() -> None:
    folders = {path.parent.name for path in FOLDER.glob("*/*.py")}
    assert folders == set(LAYERS) - FILES


def test_what_these_tests_look_for_is_found() -> None:
    files = {
        "": "from .api import fit",
        "api": "from .session.region import Region\nfrom . import backend",
        "backend": "",
        "session": "",
        "session.region": "from ..plan import parts\nfrom .session import Session",
        "session.session": "def f():\n    from .region import Region",
        "plan": "",
        "plan.parts": "import remat.torch.session.region\nimport torch.session",
    }
    assert upward(files) == ["api -> backend", "plan.parts -> session.region"]
    assert circle(files) == ["session.region", "plan.parts"]
    files["plan.parts"] = ""
    assert circle(files) == ["session.region", "session.session"]
    files["session.session"] = ""
    assert circle(files) == []
    source = """
class Part:
    size: int
    def __init__(self): self.held = {}

part.size += 1; part.held[3] = 4; node.meta["val"] = 5
region.stale = True
del region.plans[0]
a, session.known.bytes = 1, 2
"""
    assert set_from_outside(source) == [
        "line 7: region.stale",
        "line 8: region.plans[0]",
        "line 9: session.known.bytes",
    ]


def test_private_names_are_found() -> None:
    source = "from torch import _dynamo, nn\nfrom torch._C import f\ntorch._C.f()\ntorch.__version__"
    assert set(private_names(source)) == {"torch._dynamo", "torch._C.f", "torch._C"}
    own = "class A:\n    def _f(self): self._b = 1"
    source = "a._b; a._f(); t._cdata; getattr(t, '_local'); m.__dict__['_call'] = t.__class__; s._replace()"
    found = ["line 1: _call", "line 1: _cdata", "line 1: _local"]
    assert sorted(private_attributes(source, own_names({"": own}))) == found


def test_only_public_names_are_shown() -> None:
    assert all(getattr(remat.torch, name).__doc__ for name in dir(remat.torch))
    for module in (remat, remat.torch):
        assert not [n for n in dir(module) if n.startswith("_") or inspect.ismodule(getattr(module, n))]
        assert len(pydoc.render_doc(module).splitlines()) < 115


def test_nothing_beside_the_front_end_imports_torch() -> None:
    package = FOLDER.parent
    for path in package.rglob("*.py"):
        if FOLDER in path.parents:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        asked = [alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names]
        asked += [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        assert not [name for name in asked if name.split(".")[0] == "torch" or "remat.torch" in name], path
