"""What stands around the rule of a layer with a state, for the page "Three layers with a state".

The layers are those of the library transformers, small and with random weights, so nothing is
downloaded. The rules themselves, and where the layers differ, stand on the page.
"""

# mypy: allow-untyped-calls

from __future__ import annotations

from attnlib import needs

needs(__name__, "transformers")

from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.kimi_linear import KimiLinearConfig, modeling_kimi_linear
from transformers.models.mamba2 import Mamba2Config, modeling_mamba2
from transformers.models.qwen3_next import Qwen3NextConfig, modeling_qwen3_next

# The class of the layer, the class of its configuration, and the sizes that make it small.
LAYERS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "Qwen3-Next": (
        modeling_qwen3_next.Qwen3NextGatedDeltaNet, Qwen3NextConfig,
        {"linear_num_key_heads": 2, "linear_num_value_heads": 6,
         "linear_key_head_dim": 16, "linear_value_head_dim": 5},
    ),
    "Kimi Linear": (
        modeling_kimi_linear.KimiLinearDeltaAttention, KimiLinearConfig,
        {"linear_num_heads": 3, "linear_head_dim": 16, "num_hidden_layers": 1,
         "pad_token_id": None},
    ),
    "Mamba-2": (
        modeling_mamba2.Mamba2Mixer, Mamba2Config,
        {"num_heads": 6, "head_dim": 16, "state_size": 10, "n_groups": 2, "chunk_size": 64},
    ),
}


def layer(name: str, seed: int = 21) -> Any:
    """Return a small layer of `LAYERS` in float64, with normal numbers as weights.

    Its gates are brought near 1, so that it matters what one block of tokens hands on to the next.

    >>> type(layer("Mamba-2")).__name__
    'Mamba2Mixer'
    """
    kind, config, sizes = LAYERS[name]
    module = kind(config(hidden_size=48, **sizes), 0).double().requires_grad_(False).eval()
    generator = torch.Generator().manual_seed(seed)
    for part, weight in module.named_parameters():
        nn.init.normal_(weight, std=0.3, generator=generator)
        if part.endswith("A_log"):
            weight.sub_(3)
    return module


def apart(ours: Tensor, module: Any, x: Tensor) -> dict[str, float]:
    """Return how far an output is from a layer's, as a share of the layer's largest entry.

    Even in a float64 module, the library casts to float32. So we compare twice: with the library as
    it is, and with its float32 exchanged for float64 during the call.

    >>> module, x = layer("Mamba-2"), torch.ones(1, 3, 48).double()
    >>> apart(module(x), module, x)["as it is"]
    0.0
    """
    shares = {}
    for name, kind, cast in (
        ("as it is", torch.float32, Tensor.float), ("in float64", torch.float64, Tensor.double),
    ):
        with mock.patch.object(torch, "float32", kind), mock.patch.object(Tensor, "float", cast):
            theirs = module(x)
        shares[name] = ((ours - theirs).abs().max() / theirs.abs().max()).item()
    return shares


def convolve(module: Any, y: Tensor) -> Tensor:
    """Return the layer's convolution of its last four tokens, with a SiLU behind it.

    Shapes:
        y (…, T, n), returns (…, T, n).

    >>> convolve(layer("Mamba-2"), torch.zeros(2, 7, 136).double()).shape
    torch.Size([2, 7, 136])
    """
    weight, bias = module.conv1d.weight, module.conv1d.bias
    mixed = F.conv1d(F.pad(y.mT, (3, 0)), weight, bias, groups=len(weight))
    return F.silu(mixed).mT


def heads(y: Tensor, n: int) -> Tensor:
    """Cut rows into n heads.

    Shapes:
        y (B, T, n·d), returns (B, n, T, d).

    >>> heads(torch.zeros(2, 7, 12), 3).shape
    torch.Size([2, 3, 7, 4])
    """
    cut: Tensor = y.unflatten(-1, (n, -1))
    return cut.movedim(2, 1)


def unit(y: Tensor) -> Tensor:
    """Divide each row by its length, with the small number that the libraries add to its square.

    >>> unit(torch.tensor([3.0, 4.0]))
    tensor([0.6000, 0.8000])
    """
    return y / (y.square().sum(-1, keepdim=True) + 1e-6).sqrt()


def rms_norm(y: Tensor, eps: float = 1e-6) -> Tensor:
    """Divide each row by its root mean square.

    >>> rms_norm(torch.tensor([1.0, 7.0]), 0)
    tensor([0.2000, 1.4000])
    """
    return y / (y.square().mean(-1, keepdim=True) + eps).sqrt()
