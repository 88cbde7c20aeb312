"""The GPT of examples/gpt.py, which stands there for readers and is no part of any package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("remat_models._gpt", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


_gpt = _load(Path(__file__).parents[2] / "examples" / "gpt.py")
GPT, Config = _gpt.GPT, _gpt.Config
