"""The attention modules of today's models, as the library transformers builds them.

Chapter 18 recomputes those of `SETTINGS`, chapter 20 those of `INDEXED`.

Nothing is downloaded: the models are small and their weights random, or they are built in full size
on the device meta, where tensors have shapes and no numbers. The numbers of released models are
stored, with the file that states them.
"""

from __future__ import annotations

from attnlib import needs

needs(__name__, "transformers")

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_map
from transformers import CONFIG_MAPPING, AutoModel

from attnbook.atlas import Released, stored

_SMALL: dict[str, Any] = {
    "vocab_size": 8,
    "hidden_size": 48,
    "intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
}
_GROUPED = {"num_key_value_heads": 2, "head_dim": 16, "sliding_window": 5}
# What a family needs beside the sizes. gpt-oss stretches its angles for long texts by YaRN, unless
# it is told not to.
SETTINGS: dict[str, dict[str, Any]] = {
    "llama": _GROUPED,
    "qwen3": _GROUPED,
    "gemma2": _GROUPED,
    "gpt_oss": _GROUPED
    | {
        "rope_parameters": {"rope_type": "default", "rope_theta": 150_000.0},
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
    },
    "deepseek_v3": {
        "num_key_value_heads": 6,
        "q_lora_rank": 20,
        "kv_lora_rank": 12,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4,
        "v_head_dim": 10,
        "first_k_dense_replace": 2,
    },
}
# The families of chapter 20: the latent of DeepSeek-V3, and an indexer that chooses five keys.
_INDEXED = SETTINGS["deepseek_v3"] | {"index_n_heads": 4, "index_head_dim": 14, "index_topk": 5}
INDEXED: dict[str, dict[str, Any]] = {
    "deepseek_v32": _INDEXED,
    "glm_moe_dsa": _INDEXED | {"head_dim": 4},
    # One entry stands for four tokens in the first layer, and for eight in the second.
    "deepseek_v4": {
        "head_dim": 16,
        "partial_rotary_factor": 0.25,
        "q_lora_rank": 20,
        "o_groups": 2,
        "o_lora_rank": 10,
        "sliding_window": 6,
        "layer_types": ["compressed_sparse_attention", "heavily_compressed_attention"],
        "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 8},
        "index_n_heads": 4,
        "index_head_dim": 12,
        "index_topk": 3,
        "n_routed_experts": 2,
        "num_experts_per_tok": 1,
        "mlp_layer_types": ["moe", "moe"],
    },
}


def attention_modules(
    family: str, n_tokens: int = 32, *, seed: int = 18
) -> list[tuple[torch.nn.Module, dict[str, Any]]]:
    """Return the attention module of each layer of a small model, with the arguments it was given.

    The model is built by transformers and run on random tokens, so the hidden states, the mask and
    the angles among the arguments are the library's own. The weights of the attention modules,
    gains and sinks among them, are normal numbers. Modules and arguments are then made float64.

    Args:
        family: one of `SETTINGS` or `INDEXED`, named as transformers names its folders.
        n_tokens: T, in each of two sequences.
        seed: of the weights and the tokens.

    Example:
        >>> [(module, arguments), _] = attention_modules("llama", n_tokens=3)
        >>> type(module).__name__, tuple(arguments["hidden_states"].shape)
        ('LlamaAttention', (2, 3, 48))
    """
    generator = torch.Generator().manual_seed(seed)
    config = CONFIG_MAPPING[family](**_SMALL, **(SETTINGS | INDEXED)[family])
    with torch.random.fork_rng(devices=[]):  # the library draws what we do not, the MLPs
        torch.manual_seed(seed)
        model = AutoModel.from_config(config, attn_implementation="eager")
    given: list[tuple[torch.nn.Module, dict[str, Any]]] = []

    def listen(module: torch.nn.Module, unnamed: tuple[Any, ...], named: dict[str, Any]) -> None:
        given.append((module, dict(zip(["hidden_states"], unnamed, strict=False)) | named))

    for layer in model.layers:
        for weight in layer.self_attn.parameters():
            torch.nn.init.normal_(weight, std=0.3, generator=generator)
        layer.self_attn.register_forward_pre_hook(listen, with_kwargs=True)
    tokens = torch.randn(2, n_tokens, _SMALL["hidden_size"], generator=generator)
    with torch.no_grad():
        model(inputs_embeds=tokens, use_cache=False)
    for module, _ in given:
        module.double().requires_grad_(False)
        module._forward_pre_hooks.clear()  # so that a later call is not listened to
    return [(module, tree_map(_double, arguments)) for module, arguments in given]


def _double(value: Any) -> Any:
    """Return a floating tensor in float64, and anything else as it is."""
    return value.double() if torch.is_tensor(value) and value.is_floating_point() else value


def released() -> list[Released]:
    """Return the twelve stored models that chapter 18 lists, the oldest first.

    Example:
        >>> first, *_, last = released()
        >>> first.model, first.released, last.model, last.released
        ('BLOOM 176B', '2022-07', 'Gemma 4 E2B', '2026-04')
    """
    return [model for model in stored() if model.table]


def changes(model: Released) -> str:
    """Return what a model changes in the formula of 2017, in words that its modules show.

    The library builds the model in full size on the device meta, with the released numbers. A word
    is said where an attention module has the part or the number that it names, and a fraction tells
    in how many of the layers. What no module shows is left out.

    Example:
        >>> changes(next(model for model in released() if model.model == "Gemma 2 9B"))
        '16/8 heads, rotary, cap 50; window 4096 (21/42)'
    """
    settings = dict(model.settings)
    if pattern := settings.get("layer_types"):
        n_layers = settings["num_hidden_layers"]
        settings["layer_types"] = (pattern * n_layers)[:n_layers]
    with torch.device("meta"):
        built = AutoModel.from_config(CONFIG_MAPPING[model.family](**settings))
    layers = list(built.layers if hasattr(built, "layers") else built.h)
    counts = Counter(word for layer in layers for word in _words(layer, built))
    equal: dict[int, list[str]] = {}
    for word, n in counts.items():
        equal.setdefault(n, []).append(word)
    return "; ".join(
        ", ".join(words) + (f" ({n}/{len(layers)})" if n < len(layers) else "")
        for n, words in sorted(equal.items(), reverse=True)
    )


def _words(layer: Any, built: Any) -> Iterator[str]:
    """Return a word for each change that the attention of one layer shows."""
    module = getattr(layer, "self_attn", None) or getattr(layer, "self_attention", None)
    if module is None:
        yield "linear" if hasattr(layer, "linear_attn") else "no attention"
        return
    n_heads = built.config.num_attention_heads
    group = getattr(module, "num_key_value_groups", 1)
    if hasattr(module, "kv_a_proj_with_mqa"):
        yield f"latent of {module.kv_lora_rank}"
    elif group > 1:
        yield f"{n_heads}/{n_heads // group} heads"
    if hasattr(built, "rotary_emb") and getattr(module, "use_rope", True):
        yield "rotary"
    if hasattr(built, "build_alibi_tensor"):
        yield "ALiBi"
    if hasattr(module, "q_norm"):
        yield "QK-norm"
    if hasattr(module, "v_norm"):
        yield "V-norm"
    d_k = getattr(module, "qk_head_dim", None) or getattr(module, "head_dim", 0)
    scale = getattr(module, "scaling", d_k**-0.5 if d_k else 1)
    if d_k and not math.isclose(scale, d_k**-0.5):
        yield "scale 1" if scale == 1 else f"scale 1/√{scale**-2:.0f}"
    if cap := getattr(module, "attn_logit_softcapping", None):
        yield f"cap {cap:.0f}"
    if window := getattr(module, "sliding_window", None):
        yield f"window {window}"
    if hasattr(module, "indexer"):
        yield f"best {built.config.index_topk}"
    if hasattr(module, "sinks"):
        yield "sinks"
    query = getattr(module, "q_proj", None)
    if query is not None and query.out_features == 2 * n_heads * module.head_dim:
        yield "gate"  # the other half of the outputs
    if getattr(module, "is_kv_shared_layer", False):
        yield "shared KV"
