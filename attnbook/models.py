"""The attention modules of today's models, as the library transformers builds them (chapter 18).

Nothing is downloaded: the models are small and their weights random, or they are built in full size
on the device meta, where tensors have shapes and no numbers.
"""

from __future__ import annotations

from attnlib import needs

needs(__name__, "transformers")

from typing import Any

import torch
from torch.utils._pytree import tree_map
from transformers import CONFIG_MAPPING, AutoModel

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


def attention_modules(
    family: str, n_tokens: int = 32, *, std: float = 0.3, seed: int = 18
) -> list[tuple[torch.nn.Module, dict[str, Any]]]:
    """Return the attention module of each layer of a small model, with the arguments it was given.

    The model is built by transformers and run on random tokens, so the hidden states, the mask and
    the angles among the arguments are the library's own. The weights of the attention modules,
    gains and sinks among them, are normal numbers. Modules and arguments are then made float64.

    Args:
        family: one of `SETTINGS`, named as transformers names its folders.
        n_tokens: T, in each of two sequences.
        std: the standard deviation of the weights.
        seed: of the weights and the tokens.

    Example:
        >>> [(module, arguments), _] = attention_modules("llama", n_tokens=3)
        >>> type(module).__name__, tuple(arguments["hidden_states"].shape)
        ('LlamaAttention', (2, 3, 48))
    """
    generator = torch.Generator().manual_seed(seed)
    config = CONFIG_MAPPING[family](**_SMALL, **SETTINGS[family])
    model = AutoModel.from_config(config, attn_implementation="eager")
    given: list[tuple[torch.nn.Module, dict[str, Any]]] = []

    def listen(module: torch.nn.Module, _: Any, arguments: dict[str, Any]) -> None:
        given.append((module, arguments))

    for layer in model.layers:
        for weight in layer.self_attn.parameters():
            torch.nn.init.normal_(weight, std=std, generator=generator)
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


PLACES = ("heads", "queries, keys", "scores", "which keys", "softmax")


def habits(family: str) -> dict[str, str]:
    """Return what the attention of a family does in each of five places of the formula.

    This holds for the library's default settings. The model is built in full size on the device
    meta, and what it does follows from its configuration and from the names of its parameters. A
    fraction says in how many of the layers.

    Example:
        >>> for place, habit in habits("gemma2").items():
        ...     print(f"{place}: {habit}")
        heads: groups of 2
        queries, keys: rotary
        scores: cap 50
        which keys: 4096 (13/26)
        softmax: –
    """
    config = CONFIG_MAPPING[family]()
    with torch.device("meta"):
        model = AutoModel.from_config(config)
    names = " ".join(name for name, _ in model.named_parameters())
    heads = config.num_attention_heads
    group = heads // (getattr(config, "num_key_value_heads", None) or heads)
    turned = hasattr(config, "rope_parameters")
    cap = getattr(config, "attn_logit_softcapping", None)
    layers = getattr(config, "layer_types", None) or []
    windows, linear = (layers.count(f"{kind}_attention") for kind in ("sliding", "linear"))
    found = (
        "latent" if "kv_a_" in names else f"groups of {group}" if group > 1 else "",
        ", ".join(["rotary"] * turned + ["QK-norm"] * ("q_norm" in names)),
        f"cap {cap:.0f}" if cap else "" if turned else "ALiBi",
        f"{config.sliding_window} ({windows}/{len(layers)})" if windows else "",
        "sinks" if "sinks" in names else f"linear ({linear}/{len(layers)})" if linear else "",
    )
    return {place: habit or "–" for place, habit in zip(PLACES, found, strict=True)}


def table(rows: dict[str, dict[str, str]]) -> None:
    """Print a line of words for each name, in columns under the places.

    Example:
        >>> table({"a": {"one": "–", "two": "cap 50"}, "longer": {"one": "sinks", "two": "–"}})
                one    two
        a       –      cap 50
        longer  sinks  –
    """
    places = next(iter(rows.values()))
    columns = [["", *rows], *([place, *(row[place] for row in rows.values())] for place in places)]
    widths = [max(map(len, column)) for column in columns]
    for line in zip(*columns, strict=True):
        words = (word.ljust(width) for word, width in zip(line, widths, strict=True))
        print("  ".join(words).rstrip())
