"""The cards of the atlas: their bytes are those of the cache that the library itself fills."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModel

from attnbook import atlas

STORED = {model.model: model for model in atlas.stored()}
SMALL: dict[str, Any] = {"vocab_size": 8, "pad_token_id": None, "num_experts_per_tok": 1}
SMALL |= dict.fromkeys(["num_experts", "num_local_experts", "n_routed_experts"], 2)
SMALL |= dict.fromkeys(["intermediate_size", "moe_intermediate_size"], 16)
WINDOW, TWO_HEADS = {"sliding_window": 8}, {"num_attention_heads": 2, "num_key_value_heads": 2}
# For each kind of cache a model, as many of its layers as show it, and what is made smaller.
BUILT: dict[str, tuple[int, dict[str, Any]]] = {
    "gpt-oss-120b": (2, WINDOW),
    "Llama 4 Scout": (4, {"attention_chunk_size": 8}),
    "MiMo-V2-Flash": (3, WINDOW),
    "Gemma 4 26B": (6, WINDOW | {"vocab_size_per_layer_input": 8}),
    "Gemma 4 E2B": (
        35, WINDOW | {"vocab_size_per_layer_input": 8, "hidden_size_per_layer_input": 4},
    ),
    "DeepSeek-V3": (1, TWO_HEADS),
    "DeepSeek-V3.2-Exp": (1, TWO_HEADS | {"index_n_heads": 2}),
    "MiniMax-M3": (4, {}),
    "DeepSeek-V4-Pro": (
        3, WINDOW | {"num_attention_heads": 16, "index_n_heads": 2, "hc_mult": 1},
    ),
    "Qwen3-Next 80B": (4, {}),
    "Kimi K3": (4, TWO_HEADS | {"q_lora_rank": None, "linear_num_heads": 2}),
    "Nemotron 3 Nano": (6, {}),
    "LFM3 1.7B": (5, WINDOW | {"hidden_size": 64}),
}


def tensors(value: Any) -> list[torch.Tensor]:
    """Return the floating tensors in a value, and in what it consists of."""
    if torch.is_tensor(value):
        return [value] * value.is_floating_point()
    parts = list(value.values()) if isinstance(value, dict) else value
    return [one for part in parts for one in tensors(part)] if isinstance(parts, list) else []


@pytest.mark.parametrize("name", BUILT)
def test_bytes_are_those_of_the_librarys_cache(name: str) -> None:
    n_layers, smaller = BUILT[name]
    settings = STORED[name].settings | {"hidden_size": 64, "num_hidden_layers": n_layers} | smaller
    if kinds := settings.get("layer_types"):
        settings["layer_types"] = (kinds * n_layers)[:n_layers]
    model = STORED[name]._replace(settings=settings)
    built = AutoModel.from_config(CONFIG_MAPPING[model.family](**SMALL | settings)).bfloat16()
    n_tokens = 256 if "compress_rates" in settings else 24
    with torch.no_grad():
        cache = built(input_ids=torch.zeros(1, n_tokens, dtype=torch.long)).past_key_values
    layers = atlas.card(model).layers
    # The layers at the end that use the keys of others have no cache of their own.
    assert sum(layer.cache(n_tokens) for layer in layers[len(cache.layers) :]) == 0
    for kept, layer in zip(cache.layers, layers, strict=False):
        # Tokens that wait to be compressed are not counted.
        parts = {name: part for name, part in vars(kept).items()
                 if not name.startswith(("buffer", "overlap"))}
        found = {part.data_ptr(): part.nbytes for part in tensors(parts)}
        # After a token, the library drops the key that the next one will not see.
        assert sum(found.values()) == layer.cache(n_tokens) - layer.in_window


def test_every_model_has_a_month_and_a_source() -> None:
    months = [model.released for model in STORED.values()]
    assert len(STORED) == 30 and months == sorted(months, key=lambda month: month.ljust(7, "z"))
    for model in STORED.values():
        assert 0 < atlas.card(model).cache(4096) <= atlas.card(model).cache(131_072)
        assert re.fullmatch(r"20\d\d(-(0[1-9]|1[0-2]))?", model.released)
        assert re.match(
            r"arXiv:\d{4}\.\d{5}, table|github\.com/\S+, [0-9a-f]{7}, |transformers ", model.source
        )


def test_most_models_turn_queries_and_keys() -> None:
    """Chapter 9 says so."""
    assert sum("rotary" in str(atlas.card(model).words) for model in STORED.values()) > 20
