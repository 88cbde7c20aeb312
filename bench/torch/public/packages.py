"""Models of public packages: a list, drawn by a seed, and how to build each."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import nn

# Larger models take minutes and show nothing that a small one does not.
LARGEST = 12_000_000
SEED = 40


@dataclass
class Subject:
    """A model in training mode; `inputs` are arguments by position or by name."""

    model: nn.Module
    inputs: tuple[Any, ...] | dict[str, Any]
    loss: Callable[[Any], torch.Tensor]


class UnusableError(Exception):
    """The model cannot be used: too large, or none of its outputs has a gradient."""


def scalar(outputs: Any) -> torch.Tensor:
    """The loss of a model that has one, or a scalar made of all outputs with gradients."""
    own = outputs.get("loss") if isinstance(outputs, dict) else getattr(outputs, "loss", None)
    if isinstance(own, torch.Tensor) and own.requires_grad:
        return own.mean()
    found = [t for t in tensors(outputs) if t.requires_grad and (t.is_floating_point() or t.is_complex())]
    if not found:
        raise UnusableError("no output has a gradient")
    return sum((_mean(t) for t in found[1:]), _mean(found[0]))


def _mean(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.float().square().mean() if tensor.dim() else tensor.float()


def tensors(outputs: Any) -> Iterator[torch.Tensor]:
    if isinstance(outputs, torch.Tensor):
        yield outputs
    elif isinstance(outputs, dict):
        for value in outputs.values():
            yield from tensors(value)
    elif isinstance(outputs, (list, tuple)):
        for value in outputs:
            yield from tensors(value)
    elif hasattr(outputs, "sample") and isinstance(outputs.sample, torch.Tensor):
        yield outputs.sample


# ------------------------------------------------------------------ packages whose libraries may not load
def prepare_imports() -> None:
    """pip's torchvision and torchaudio may be for another build of PyTorch: then imports them without their
    libraries, and adds the ops that models need.
    """
    without = ModuleType("torchaudio._extension")
    vars(without).update(_IS_TORCHAUDIO_EXT_AVAILABLE=False, fail_if_no_align=lambda function: function)
    sys.modules.setdefault("torchaudio._extension", without)
    if importlib.util.find_spec("torchvision") is None:
        return
    with contextlib.suppress(Exception):
        importlib.import_module("torchvision")
        return
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "DEF")
    for op in ("nms", "qnms"):
        library.define(f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.impl("nms", _nms, "CPU")
    _KEPT.append(library)
    importlib.import_module("torchvision")
    importlib.import_module("torchvision.ops.boxes")._assert_has_ops = lambda: None  # type: ignore[attr-defined]


_KEPT: list[Any] = []


def _nms(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> torch.Tensor:
    """Non-maximum suppression."""
    kept: list[int] = []
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    gone = torch.zeros(len(boxes), dtype=torch.bool)
    for i in scores.argsort(descending=True).tolist():
        if gone[i]:
            continue
        kept.append(i)
        width = (torch.minimum(boxes[:, 2], boxes[i, 2]) - torch.maximum(boxes[:, 0], boxes[i, 0])).clamp(0)
        height = (torch.minimum(boxes[:, 3], boxes[i, 3]) - torch.maximum(boxes[:, 1], boxes[i, 1])).clamp(0)
        both = width * height
        gone |= both / (area + area[i] - both) > threshold
    return torch.tensor(kept, dtype=torch.int64)


# ------------------------------------------------------------------ what each package has
@dataclass(frozen=True)
class Package:
    """A package: names of its models in an order that a seed draws, a builder, and how many to take."""

    module: str
    names: Callable[[random.Random], Iterable[str]]
    build: Callable[[str], Subject]
    take: int


def _transformers(rng: random.Random) -> list[str]:
    from shrink import drawn

    return [f"{kind}:{name}" for _, kind, name in drawn(rng.randrange(1 << 30))]


def _of_transformers(name: str) -> Subject:
    from shrink import tiny

    kind, _, class_name = name.partition(":")
    model, inputs = tiny(kind, class_name, SEED)
    return Subject(model, inputs, scalar)


def _timm(rng: random.Random) -> Iterator[str]:
    """One model of each file of timm."""
    timm = importlib.import_module("timm")
    registry = importlib.import_module("timm.models._registry")
    names = list(timm.list_models())
    rng.shuffle(names)
    files: dict[str, list[str]] = {}
    for name in names:
        files.setdefault(registry._model_to_module[name], []).append(name)
    order = list(files.values())
    rng.shuffle(order)
    sizes = ((name, _count(lambda name=name: timm.create_model(name))) for few in order for name in few[:1])
    return (name for name, size in sizes if size <= LARGEST)


def _count(build: Callable[[], nn.Module]) -> int:
    """Number of parameters, without making the model; a large number if unknown."""
    try:
        with torch.device("meta"):
            return sum(p.numel() for p in build().parameters())
    except Exception:
        return LARGEST + 1


def _of_timm(name: str) -> Subject:
    timm = importlib.import_module("timm")
    torch.manual_seed(SEED)
    try:
        model = timm.create_model(name, num_classes=10, img_size=96)
        side = 96
    except Exception:
        torch.manual_seed(SEED)
        model = timm.create_model(name, num_classes=10)
        side = (
            96
            if "fixed_input_size" not in model.default_cfg or not model.default_cfg["fixed_input_size"]
            else 0
        )
    side = side or model.default_cfg["input_size"][-1]
    channels = model.default_cfg["input_size"][0]
    return Subject(model.train(), (torch.randn(2, channels, side, side),), scalar)


def _torchvision(rng: random.Random) -> list[str]:
    """One model of each file of torchvision."""
    models = importlib.import_module("torchvision.models")
    names = [name for name in models.list_models() if not name.startswith("quantized")]
    rng.shuffle(names)
    files: dict[str, str] = {}
    for name in names:
        files.setdefault(models.get_model_builder(name).__module__, name)
    order = list(files.values())
    rng.shuffle(order)
    return order


def _of_torchvision(name: str) -> Subject:
    models = importlib.import_module("torchvision.models")
    torch.manual_seed(SEED)
    kind = models.get_model_builder(name).__module__
    options = {} if "optical" in kind else {"weights_backbone": None}
    try:
        model = models.get_model(name, weights=None, **options)
    except TypeError:
        model = models.get_model(name, weights=None)
    if ".detection" in kind:
        boxes = torch.tensor([[4.0, 4.0, 40.0, 40.0], [10.0, 20.0, 60.0, 50.0]])
        target = {
            "boxes": boxes,
            "labels": torch.tensor([1, 2]),
            "masks": torch.ones(2, 96, 96, dtype=torch.uint8),
        }
        target["keypoints"] = torch.tensor([[[8.0, 8.0, 1.0]] * 17, [[15.0, 25.0, 1.0]] * 17])
        target["labels"] = torch.tensor([1, 1])
        return Subject(model.train(), ([torch.rand(3, 96, 96)] * 2, [target] * 2), scalar)
    if "optical" in kind:
        return Subject(model.train(), (torch.rand(1, 3, 128, 128), torch.rand(1, 3, 128, 128), 3), scalar)
    if ".video" in kind:
        size = (2, 3, 8, 64, 64) if "vit" not in name and "swin" not in name else (1, 3, 16, 224, 224)
        return Subject(model.train(), (torch.randn(size),), scalar)
    fixed = 224 if kind.endswith(("vision_transformer", "maxvit")) else 299 if "inception" in name else 96
    return Subject(model.train(), (torch.randn(2, 3, fixed, fixed),), scalar)


def _from_table(package: str) -> tuple[Callable[[random.Random], Sequence[str]], Callable[[str], Subject]]:
    """Packages without a registry: written down in tables.py."""
    from tables import TABLES

    def names(rng: random.Random) -> list[str]:
        order = list(TABLES[package])
        rng.shuffle(order)
        return order

    def build(name: str) -> Subject:
        torch.manual_seed(SEED)
        model, inputs, *loss = TABLES[package][name]()
        return Subject(model.train(), inputs, loss[0] if loss else scalar)

    return names, build


def packages() -> dict[str, Package]:
    """By name."""
    from tables import TABLES

    found = {
        "transformers": Package("transformers", _transformers, _of_transformers, 44),
        "timm": Package("timm", _timm, _of_timm, 14),
        "torchvision": Package("torchvision", _torchvision, _of_torchvision, 8),
    }
    for name, table in TABLES.items():
        found[name] = Package(name, *_from_table(name), len(table))
    return found


def draw(package: Package, seed: int, say: Callable[[str], None]) -> list[str]:
    """Names of models that train in eager mode, in the order drawn by the seed."""
    found: list[str] = []
    for name in package.names(random.Random(seed)):
        if len(found) == package.take:
            break
        try:
            subject = package.build(name)
            if sum(p.numel() for p in subject.model.parameters()) > 4 * LARGEST:
                raise UnusableError("large")
            named = isinstance(subject.inputs, dict)
            outputs = subject.model(**subject.inputs) if named else subject.model(*subject.inputs)  # type: ignore[arg-type]
            subject.loss(outputs).backward()
        except Exception as error:
            say(f"  not drawn: {name}: {type(error).__name__}: {str(error).splitlines()[:1]}")
            continue
        found.append(name)
    return found
