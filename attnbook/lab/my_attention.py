"""My attention. `python -m attnbook.lab my_attention` grades it, one stage after the other."""

import torch


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Return softmax(scale · Q Kᵀ + mask) V, where scale is 1/√d_k unless it is given.

    query is (…, L, d_k), key (…, S, d_k), value (…, S, d_v), and the result (…, L, d_v).
    The lab never sets dropout_p and enable_gqa.
    """
    raise NotImplementedError
