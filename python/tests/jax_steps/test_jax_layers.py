"""The front-end's files import downward only; JAX is imported by them alone. Needs no JAX."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import remat

FOLDER = Path(remat.__file__).parent / "jax"
#: From the bottom up.
LAYERS = (
    "regions", "devices", "buffers", "costs", "cuts", "shards", "capture", "full", "plans", "aim", "api",
    "__init__",
)  # fmt: skip


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_files_import_downward_only() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(LAYERS)
    for height, name in enumerate(LAYERS):
        asked = {module for module in imported(FOLDER / f"{name}.py") if module.startswith("remat.jax.")}
        assert asked <= {f"remat.jax.{below}" for below in LAYERS[:height]}, name


def test_the_file_that_runs_policies_needs_nothing_but_jax() -> None:
    assert not [module for module in imported(FOLDER / "regions.py") if module.split(".")[0] == "remat"]


def test_nothing_beside_the_front_end_imports_jax() -> None:
    for path in FOLDER.parent.rglob("*.py"):
        if FOLDER not in path.parents:
            asked = [m for m in imported(path) if m.split(".")[0] == "jax" or m.startswith("remat.jax")]
            assert not asked, path
