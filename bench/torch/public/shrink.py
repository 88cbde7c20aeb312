"""Tiny models of transformers: configurations with small numbers, and inputs made from signatures."""

from __future__ import annotations

import importlib
import inspect
import random
import re
from typing import Any

import torch
from torch import nn

# New values of a configuration's numbers, by part of the name; the first match counts.
_NUMBERS = (
    (("vocab_size", "num_embeddings", "n_vocab", "n_words"), 384),
    (("num_key_value_heads", "num_kv_heads", "kv_heads", "n_group", "topk_group", "n_groups"), 2),
    (("head_dim", "d_kv", "v_head_dim", "qk_nope", "qk_rope", "kv_channels", "attention_head_size"), 16),
    (("num_attention_heads", "attention_heads", "n_head", "num_heads", "n_heads", "encoder_heads"), 4),
    (("experts_per_tok", "experts_per_token", "moe_topk", "moe_k", "top_k"), 2),
    (("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    (("n_shared_experts", "num_shared_experts"), 1),
    (("num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers", "n_layers"), 2),
    (("first_k_dense", "num_nextn"), 1),
    (("intermediate_size", "ffn_dim", "d_ff", "n_inner", "ffn_hidden_size", "mlp_dim", "hidden_dim"), 128),
    (("q_lora_rank", "kv_lora_rank"), 32),
    (("hidden_size", "d_model", "n_embd", "embed_dim", "embedding_size", "projection_dim", "model_dim"), 64),
    (("image_size",), 64),
    (("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length"), 160),
    (("sliding_window", "attention_window", "local_attention", "attention_chunk"), 16),
    (("max_source_positions",), 48),
    (("num_queries", "num_query_tokens", "num_latents"), 16),
)
# Token ids beyond the small vocabulary, and needs of tasks.
_VOCABULARY = 384
_LENGTH = 64


class NoInputsError(Exception):
    """An argument of the model is unknown here."""


def tasks() -> dict[str, list[tuple[str, str]]]:
    """Of each task of transformers' registry: types of models and names of their classes."""
    names = importlib.import_module("transformers.models.auto.modeling_auto")
    found = {}
    for attribute in sorted(dir(names)):
        if not (attribute.startswith("MODEL_FOR_") and attribute.endswith("_MAPPING_NAMES")):
            continue
        task = attribute.removeprefix("MODEL_FOR_").removesuffix("_MAPPING_NAMES")
        pairs = getattr(names, attribute).items()
        found[task] = [(kind, name) for kind, name in pairs if isinstance(name, str)]
    return found


def tiny(kind: str, class_name: str, seed: int) -> tuple[nn.Module, dict[str, Any]]:
    """A model of a type, with inputs.

    Raises errors of transformers if the tiny configuration is invalid.
    """
    import transformers

    config = transformers.AutoConfig.for_model(kind)
    _shrink(config, set())
    model_class = getattr(transformers, class_name)
    torch.manual_seed(seed)
    model = model_class(config) if model_class._auto_class is None else model_class._from_config(config)
    model.train()
    inputs = _inputs(model, config, seed)
    return model, _with_image_tokens(model, config, inputs)


def _with_image_tokens(model: nn.Module, config: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """Models of images and text need as many image tokens as they make, and tell how many."""
    token = getattr(config, "image_token_id", None) or getattr(config, "image_token_index", None)
    if token is None or "input_ids" not in inputs or "pixel_values" not in inputs:
        return inputs
    try:
        model(**inputs)
    except ValueError as error:
        said = re.search(r"tokens: \d+, features:? (\d+)", str(error))
        if said is None:
            raise
        rows = len(inputs["input_ids"])
        for each in (int(said[1]) // rows, int(said[1]) // rows // 64):
            if 0 < each < _LENGTH - 8:
                inputs["input_ids"][:, 1 : 1 + each] = token
                break
    return inputs


def _shrink(config: Any, seen: set[int]) -> None:
    """Numbers of a configuration and of those inside it."""
    if id(config) in seen:
        return
    seen.add(id(config))
    depths = getattr(config, "depths", None)
    if isinstance(depths, (list, tuple)):
        # Pyramids: their widths fit each other as they are.
        _set(config, "depths", [1] * len(depths))
        if isinstance(getattr(config, "image_size", None), int):
            _set(config, "image_size", min(config.image_size, 64))
        return
    for name, value in list(vars(config).items()):
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            _shrink(value, seen)
        elif isinstance(value, bool) or name.startswith("_"):
            continue
        elif isinstance(value, int):
            _set(config, name, _small(name, value))
        elif isinstance(value, list) and name in ("layer_types", "layers_block_type", "mlp_layer_types"):
            _set(config, name, _two_of(value))
    if getattr(config, "pad_token_id", 0) is None:
        config.pad_token_id = 0
    if hasattr(config, "use_cache"):
        config.use_cache = False


def _two_of(kinds: list[Any]) -> list[Any]:
    """Two layers, of different kinds where there are such."""
    first = kinds[0]
    return [first, next((kind for kind in kinds if kind != first), first)]


def _small(name: str, value: int) -> int:
    if name.endswith("token_id") or name.endswith("token_index") or name.endswith("_idx"):
        return value if value < _VOCABULARY else 3 + value % (_VOCABULARY - 3)
    for parts, small in _NUMBERS:
        if any(name == part or name.endswith("_" + part) for part in parts):
            return min(value, small)
    return value


def _set(config: Any, name: str, value: Any) -> None:
    try:
        setattr(config, name, value)
    except Exception:
        return  # derived from others


def _inputs(model: Any, config: Any, seed: int) -> dict[str, Any]:
    """Arguments for `forward`, labels among them where it takes any."""
    draw = torch.Generator().manual_seed(seed)
    taken = inspect.signature(model.forward).parameters
    text = getattr(config, "text_config", None) or config
    vision = getattr(config, "vision_config", None) or config
    inputs: dict[str, Any] = {}
    rows = 2 if {"pixel_values", "input_values", "input_features"} & set(taken) else 4
    if "input_ids" in taken and model.main_input_name != "pixel_values":
        low = min(10, _words(text) - 1)
        inputs["input_ids"] = torch.randint(low, _words(text), _ids(model, rows), generator=draw)
        if "attention_mask" in taken:
            mask = torch.ones(_ids(model, rows), dtype=torch.int64)
            mask[1, ..., -5:] = 0
            inputs["attention_mask"] = mask
    if "pixel_values" in taken:
        inputs["pixel_values"] = _pixels(model, vision, draw)
    if "input_values" in taken:
        inputs["input_values"] = torch.randn(2, 4000, generator=draw)
    if "input_features" in taken:
        inputs["input_features"] = _features(config, draw)
    if "past_values" in taken:
        inputs |= _series(config, taken, draw)
    if "decoder_input_ids" in taken and "labels" not in taken:
        inputs["decoder_input_ids"] = torch.randint(10, _words(text), (rows, 16), generator=draw)
    if not inputs:
        raise NoInputsError(f"{type(model).__name__}: {', '.join(taken)}")
    return inputs | _labels(model, config, text, taken, inputs, draw)


def _ids(model: nn.Module, rows: int) -> tuple[int, ...]:
    return (rows, 2, _LENGTH) if type(model).__name__.endswith("ForMultipleChoice") else (rows, _LENGTH)


def _words(config: Any) -> int:
    return int(getattr(config, "vocab_size", None) or _VOCABULARY)


def _pixels(model: Any, config: Any, draw: torch.Generator) -> torch.Tensor:
    side = getattr(config, "image_size", None) or 64
    height, width = (side, side) if isinstance(side, int) else (side[0], side[1])
    channels = getattr(config, "num_channels", None) or getattr(config, "in_channels", None) or 3
    frames = getattr(config, "num_frames", None)
    shape = (2, frames, channels, height, width) if frames else (2, channels, height, width)
    return torch.randn(shape, generator=draw)


def _features(config: Any, draw: torch.Generator) -> torch.Tensor:
    bins = getattr(config, "num_mel_bins", None) or getattr(config, "feature_size", None) or 80
    frames = getattr(config, "max_source_positions", None)
    audio = getattr(config, "audio_config", None)
    if frames:
        return torch.randn(2, bins, 2 * frames, generator=draw)
    if audio is not None:
        bins = getattr(audio, "num_mel_bins", None) or bins
    return torch.randn(2, 96, bins, generator=draw)


def _series(config: Any, taken: Any, draw: torch.Generator) -> dict[str, Any]:
    length = getattr(config, "context_length", None) or 64
    lags = getattr(config, "lags_sequence", None)
    past = length + (max(lags) if lags else 0)
    channels = getattr(config, "num_input_channels", None) or getattr(config, "input_size", 1)
    shape = (4, past) if channels == 1 else (4, past, channels)
    inputs: dict[str, Any] = {"past_values": torch.randn(shape, generator=draw)}
    ahead = getattr(config, "prediction_length", None) or 8
    if "past_time_features" in taken:
        features = getattr(config, "num_time_features", 0)
        inputs["past_time_features"] = torch.randn(4, past, features + 1, generator=draw)
        inputs["future_time_features"] = torch.randn(4, ahead, features + 1, generator=draw)
        inputs["past_observed_mask"] = torch.ones(shape)
    if "future_values" in taken:
        inputs["future_values"] = torch.randn((shape[0], ahead, *shape[2:]), generator=draw)
    return inputs


def _labels(
    model: Any, config: Any, text: Any, taken: Any, inputs: dict[str, Any], draw: torch.Generator
) -> dict[str, Any]:
    name = type(model).__name__
    rows = len(next(iter(inputs.values())))
    kinds = int(getattr(config, "num_labels", 2) or 2)
    if "start_positions" in taken:
        ends = torch.randint(1, 30, (rows,), generator=draw)
        return {"start_positions": ends, "end_positions": ends + 2}
    if "labels" not in taken:
        return {}
    if name.endswith("ObjectDetection"):
        box = torch.tensor([[0.5, 0.5, 0.3, 0.4], [0.3, 0.4, 0.2, 0.2]])
        return {"labels": [{"class_labels": torch.tensor([0, 1]), "boxes": box} for _ in range(rows)]}
    if name.endswith(
        ("ForSequenceClassification", "ForImageClassification", "VideoClassification", "XVector")
    ):
        return {"labels": torch.randint(0, kinds, (rows,), generator=draw)}
    if name.endswith("ForMultipleChoice"):
        return {"labels": torch.randint(0, 2, (rows,), generator=draw)}
    if name.endswith("ForTokenClassification"):
        return {"labels": torch.randint(0, kinds, inputs["input_ids"].shape, generator=draw)}
    if name.endswith("SemanticSegmentation"):
        side = inputs["pixel_values"].shape[-2:]
        return {"labels": torch.randint(0, kinds, (rows, *side), generator=draw)}
    if name.endswith("ForCTC"):
        return {"labels": torch.randint(3, min(_words(text), 30), (rows, 6), generator=draw)}
    if name.endswith(
        ("ForMaskedLM", "ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForPreTraining")
    ):
        if "input_ids" in inputs and "decoder_input_ids" not in taken:
            return {"labels": inputs["input_ids"].clone()}
        return {"labels": torch.randint(10, _words(text), (rows, 16), generator=draw)}
    return {}


def drawn(seed: int) -> list[tuple[str, str, str]]:
    """All (task, type, class) in an order drawn by a seed: tasks alternate, and no type repeats."""
    rng = random.Random(seed)
    of_task = tasks()
    for pairs in of_task.values():
        rng.shuffle(pairs)
    order, seen = [], set()
    while any(of_task.values()):
        for task, pairs in of_task.items():
            while pairs:
                kind, name = pairs.pop()
                if kind not in seen:
                    seen.add(kind)
                    order.append((task, kind, name))
                    break
    return order
