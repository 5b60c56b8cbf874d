"""What released models keep of a text: the bytes of their caches, computed from configurations.

The configurations are stored, each with the file that states it. No library is needed, and nothing
is downloaded. `attnbook.models` builds some of them with transformers, and the tests compare.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, NamedTuple

# Caches are counted in bfloat16, states in float32, in which the library adds them up.
BF16, FLOAT32 = 2, 4


class Released(NamedTuple):
    """What a file of its authors, or a copy of it, says of a released model."""

    model: str
    released: str  # year and month
    source: str  # the file; for a repository with its commit
    family: str  # as transformers names it
    settings: dict[str, Any]  # as transformers names them; layer_types are repeated
    words: list[str]  # parts of its attention that have no number
    table: bool = False  # whether chapter 18 lists it


class Layer(NamedTuple):
    """What one layer keeps of a text.

    `kind` is "all keys", "chosen", "compressed", "compressed, chosen", "window", "state", "shared"
    (keys and values of an earlier layer) or "no attention".
    """

    kind: str
    leaves: float = 0  # bytes that a token leaves for good; a mean, where several share an entry
    window: int = 0  # so many of the last tokens ...
    in_window: int = 0  # ... take so many bytes each
    state: int = 0  # bytes, however long the text is
    tokens: int = 1  # so many share an entry

    def cache(self, n_tokens: int) -> int:
        """Return the bytes that the layer keeps of a text."""
        inside = self.in_window * min(n_tokens, self.window)
        return int(self.leaves * n_tokens) + inside + self.state


class Card(NamedTuple):
    """What the atlas says of a model: each number computed from its settings."""

    model: str
    released: str
    way: str  # how little a token leaves: "own keys", "shared keys", "latent", "windows", ...
    layers: list[Layer]
    heads: str
    sizes: str
    words: str
    keys: str = "own keys"  # what a token leaves in a layer that keeps all: "shared keys", ...

    def leaves(self) -> float:
        """Return the bytes that a token leaves for good, in all layers together."""
        return sum(layer.leaves for layer in self.layers)

    def cache(self, n_tokens: int) -> int:
        """Return the bytes that all layers keep of a text."""
        return sum(layer.cache(n_tokens) for layer in self.layers)

    def kinds(self) -> Counter[str]:
        """Return how many layers there are of each kind."""
        return Counter(layer.kind for layer in self.layers)


def stored() -> list[Released]:
    """Return all stored models, the oldest first.

    Example:
        >>> first, *_, last = stored()
        >>> first.model, last.model
        ('BLOOM 176B', 'LFM3 1.7B')
    """
    with (files("attnbook") / "data" / "models.json").open(encoding="utf-8") as file:
        return [Released(**model) for model in json.load(file)]


def card(model: Released) -> Card:
    """Return the card of a model, computed from its settings alone.

    Example:
        >>> found = card(next(model for model in stored() if model.model == "Gemma 2 9B"))
        >>> found.heads, found.sizes
        ('16 query heads, 8 key heads', 'dₖ 256, scale 1/√256')
        >>> found.way, found.words
        ('windows', 'positions turn all entries (rotary); scores stay within ±50 (cap)')
        >>> found.leaves(), found.cache(131_072)
        (172032, 23253221376)
    """
    settings = _filled(model.settings)
    kinds, n_layers = settings["layer_types"], settings["num_hidden_layers"]
    layers = [_layer(settings, kinds[n % len(kinds)]) for n in range(n_layers)]
    if n_shared := settings.get("num_kv_shared_layers", 0):
        layers[-n_shared:] = [Layer("shared")] * n_shared
    words = "; ".join(_words(settings, model.words))
    way = _way(settings, {layer.kind for layer in layers})
    heads, sizes = _heads(settings, model.words)
    keys = _way(settings, set())
    return Card(model.model, model.released, way, layers, heads, sizes, words, keys)


def _filled(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings that also have what follows from others: d_k, d_v and the key heads."""
    n_heads = settings.get("num_attention_heads") or settings["n_head"]
    if "kv_lora_rank" in settings:
        d_k = settings["qk_nope_head_dim"] + settings["qk_rope_head_dim"]
    else:
        d_k = settings.get("head_dim") or settings["hidden_size"] // n_heads
    standard = {
        "num_hidden_layers": settings.get("n_layer"), "num_attention_heads": n_heads,
        "num_key_value_heads": n_heads, "v_head_dim": d_k, "layer_types": ["full_attention"],
    }
    return standard | settings | {"head_dim": d_k}


def _way(settings: dict[str, Any], kinds: set[str]) -> str:
    """Return what in a model makes the cache small; where there are several, the strongest."""
    ways = {
        "compressed": "compress_rates" in settings,
        "states": "state" in kinds,
        "latent": "kv_lora_rank" in settings,
        "windows": "window" in kinds,
        "shared keys": settings["num_key_value_heads"] < settings["num_attention_heads"],
        "own keys": True,
    }
    return next(way for way, is_there in ways.items() if is_there)


def _layer(settings: dict[str, Any], kind: str) -> Layer:
    """Return what a layer keeps, of a kind as transformers names it."""
    if kind in ("moe", "mlp"):
        return Layer("no attention")
    if kind in ("linear_attention", "conv"):
        return Layer("state", state=_state(settings, kind))
    entry = BF16 * _entry(settings, kind)
    chosen = BF16 * settings.get("index_head_dim", 0)  # the key of the indexer
    if kind in settings.get("compress_rates", ()):
        # One entry for several tokens, beside a window in which each token has its own.
        chosen *= kind == "compressed_sparse_attention"
        tokens = settings["compress_rates"][kind]
        name = "compressed" + ", chosen" * bool(chosen)
        leaves = (entry + chosen) / tokens
        return Layer(name, leaves, settings["sliding_window"], entry, tokens=tokens)
    if kind == "sliding_attention":
        return Layer("window", 0, settings["sliding_window"], entry)
    if kind == "chunked_attention":
        return Layer("window", 0, settings["attention_chunk_size"], entry)
    if "index_topk" in settings or kind == "minimax_m3_sparse":
        return Layer("chosen", entry + chosen)
    return Layer("all keys", entry)


def _entry(settings: dict[str, Any], kind: str) -> int:
    """Return how many numbers a token leaves in a layer with softmax."""
    n_heads, d_k, d_v = (
        int(settings[name]) for name in ("num_key_value_heads", "head_dim", "v_head_dim")
    )
    if "kv_lora_rank" in settings:
        return int(settings["kv_lora_rank"] + settings["qk_rope_head_dim"])  # for all heads
    if "compress_rates" in settings:
        return d_k  # the key is the value
    if kind == "sliding_attention":
        n_heads = settings.get("swa_num_key_value_heads", n_heads)
    elif "global_head_dim" in settings:
        n_heads = settings.get("num_global_key_value_heads", n_heads)
        d_k = d_v = settings["global_head_dim"]
    return n_heads * (d_k + d_v)


def _state(settings: dict[str, Any], kind: str) -> int:
    """Return the bytes of a state, with the last inputs of its convolution."""
    if kind == "conv":
        return BF16 * int(settings["conv_L_cache"] * settings["hidden_size"])
    if "mamba_num_heads" in settings:
        size, n_inputs = settings["ssm_state_size"], settings["conv_kernel"]
        inner = settings["mamba_num_heads"] * settings["mamba_head_dim"]
        entries, channels = inner * size, inner + 2 * settings["n_groups"] * size
    else:
        n_heads, size = settings.get("linear_num_heads", 0), settings.get("linear_head_dim", 0)
        n_keys = settings.get("linear_num_key_heads", n_heads)
        n_values = settings.get("linear_num_value_heads", n_heads)
        d_k = settings.get("linear_key_head_dim", size)
        d_v = settings.get("linear_value_head_dim", size)
        entries, n_inputs = n_values * d_k * d_v, settings["linear_conv_kernel_dim"]
        channels = 2 * n_keys * d_k + n_values * d_v
    return int(FLOAT32 * entries + BF16 * n_inputs * channels)


def _heads(settings: dict[str, Any], words: list[str]) -> tuple[str, str]:
    """Return the heads of a model, and the sizes of keys and values with the scale."""
    d_k, d_v, n_shared = (
        settings[name] for name in ("head_dim", "v_head_dim", "num_key_value_heads")
    )
    shared = f"{n_shared} key head{'s' * (n_shared > 1)}"
    if "kv_lora_rank" in settings:
        shared = f"one latent of {settings['kv_lora_rank']} + {settings['qk_rope_head_dim']}"
    if other := settings.get("swa_num_key_value_heads"):
        shared += f" ({other} in windows)"
    if other := settings.get("num_global_key_value_heads"):
        shared += f" ({other} without window)"
    sizes = f"dₖ {d_k}"
    if wider := settings.get("global_head_dim"):
        sizes += f" ({wider} without window)"
    if d_v != d_k:
        sizes += f", dᵥ {d_v}"
    divisor = "" if "scale 1" in words else f"/√{settings.get('query_pre_attn_scalar', d_k)}"
    return f"{settings['num_attention_heads']} query heads, {shared}", f"{sizes}, scale 1{divisor}"


# What the words of a stored model mean.
MEANINGS = {
    "ALiBi": "scores fall with the distance (ALiBi)", "NoPE": "positions do not enter (NoPE)",
    "QK-norm": "queries and keys get one length (QK-norm)", "V-norm": "so do values (V-norm)",
    "gate": "a gate multiplies the output", "sinks": "weight can go to nobody (sink)",
    "sinks in windows": "in windows, weight can go to nobody (sink)",
}


def _words(settings: dict[str, Any], words: list[str]) -> Iterator[str]:
    """Return how positions enter, and what else stands in the attention."""
    turned = settings.get("rotary_dim") or settings.get("qk_rope_head_dim")
    if share := settings.get("partial_rotary_factor"):
        turned = int(share * settings["head_dim"])
    if not {"ALiBi", "NoPE"} & set(words):
        entries = f"{turned} of {settings['head_dim']}" if turned else "all"
        interval = settings.get("no_rope_layer_interval")
        but = f", but not in every {interval}th layer" if interval else ""
        yield f"positions turn {entries} entries{but} (rotary)"
    yield from (MEANINGS[word] for word in words if word in MEANINGS)
    if cap := settings.get("attn_logit_softcapping"):
        yield f"scores stay within ±{cap:.0f} (cap)"
    if best := settings.get("index_topk"):
        yield f"a query reads the best {best:,} entries"
    if blocks := settings.get("index_topk_blocks"):
        yield f"a query reads the best {blocks} blocks of {settings['index_block_size']} keys"
    if "compress_rates" in settings:
        yield f"and the last {settings['sliding_window']} tokens as they are"
