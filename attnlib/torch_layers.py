"""Attention as layers that learn: modules of `torch.nn` around the functions of `torch_dense`.

Several heads go this way:

    tokens X → projections → heads → attention → heads side by side → W_O

`nn.Linear` keeps its matrix transposed: the W_Q of the course is `layer.W_Q.weight.T`. Entries of
the W are drawn with variance 1/d_model, so that features of X with variance 1 become queries and
keys with variance 1, which dividing by √d_k assumes (chapter 03). Biases start at 0.
"""

from __future__ import annotations

from attnlib import _needs

_needs(__name__, "torch")

from collections.abc import Callable, Sequence
from typing import Self

import torch
from torch import Tensor, nn

from attnlib import _layer_checks as checks
from attnlib._checks import checked_count
from attnlib._torch_cache import KVCache
from attnlib.positions import rotary, sinusoidal
from attnlib.torch_decoding import attend
from attnlib.torch_dense import scaled_dot_product_attention


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """Return x with a slice of the features for each head: (…, T, H · d) → (…, H, T, d).

    Example:
        >>> split_heads(torch.tensor([[1, 2, 3, 4]]), n_heads=2).tolist()
        [[[1, 2]], [[3, 4]]]
    """
    checks.check_axes(x, "T", "H · d")
    checks.check_heads(x.shape[-1], checked_count("n_heads", n_heads))
    return x.reshape(*x.shape[:-1], n_heads, x.shape[-1] // n_heads).transpose(-3, -2)


def merge_heads(x: Tensor) -> Tensor:
    """Return the heads side by side again: (…, H, T, d) → (…, T, H · d).

    Example:
        >>> merge_heads(torch.tensor([[[1, 2]], [[3, 4]]])).tolist()
        [[1, 2, 3, 4]]
    """
    checks.check_axes(x, "H", "T", "d")
    return x.transpose(-3, -2).flatten(-2)


def _draw(*projections: nn.Linear) -> None:
    for projection in projections:
        nn.init.normal_(projection.weight, std=projection.in_features**-0.5)
        if projection.bias is not None:
            nn.init.zeros_(projection.bias)


def _for_rows(starts: Sequence[int], rows: Callable[[int], Tensor]) -> Tensor:
    """Return rows(start) for each start, stacked; once for all where all are equal."""
    found = {start: rows(start) for start in starts}
    return found[starts[0]] if len(found) == 1 else torch.stack([found[n] for n in starts])


class SelfAttention(nn.Module):
    """Compute one head: for each token of X, what it takes from all tokens of X.

    softmax(Q Kᵀ / √d_k) V, with Q = X W_Q, K = X W_K, V = X W_V.

    Args:
        d_model: the number of features of a token.
        d_k, d_v: the number of features of a query or key, and of a value; d_model where None.
        bias: whether each projection adds a bias.
        is_causal: whether a token sees itself and the tokens before it only.
        max_seq_len: the largest T that a call may have; None sets no bound.

    Shapes:
        X (…, T, d_model) → (…, T, d_v)

    Raises:
        TypeError, ValueError: for sizes that are no integers ≥ 1; on a call, for an X, a mask or
            lengths that do not fit, and for T above max_seq_len.

    Source:
        Vaswani et al. 2017, equation 1; chapter 10.

    Example:
        >>> SelfAttention(d_model=4, d_k=2, d_v=3)(torch.zeros(5, 4)).shape
        torch.Size([5, 3])
    """

    def __init__(
        self, d_model: int, d_k: int | None = None, d_v: int | None = None, *,
        bias: bool = False, is_causal: bool = False, max_seq_len: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        d_k, d_v = (d_model if d is None else d for d in (d_k, d_v))
        checks.check_settings(bias, is_causal, max_seq_len, d_model=d_model, d_k=d_k, d_v=d_v)
        self.is_causal, self.max_seq_len = is_causal, max_seq_len
        self.W_Q = nn.Linear(d_model, d_k, bias)
        self.W_K = nn.Linear(d_model, d_k, bias)
        self.W_V = nn.Linear(d_model, d_v, bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        _draw(self.W_Q, self.W_K, self.W_V)

    def extra_repr(self) -> str:
        return f"is_causal={self.is_causal}, max_seq_len={self.max_seq_len}"

    def forward(
        self, X: Tensor, attn_mask: Tensor | None = None, *, lengths: checks.Lengths | None = None
    ) -> Tensor:
        """Return the output of each token. What any mask, lengths or is_causal removes is removed.

        Args:
            X: the tokens.
            attn_mask: a mask that broadcasts to (…, T, T). True takes part, floats are added.
            lengths: the lengths (B,) of the sequences in X (B, T, d_model). In a tensor, which a
                compiled layer needs, they are not checked against T. The output of a padding token
                is finite and means nothing. In a sequence of length 0 attention gives 0.
        """
        checks.check_tokens(X, self.W_Q.weight, self.max_seq_len)
        allowed = checks.joined_mask(X, attn_mask, lengths, self.is_causal)
        query, key, value = self.W_Q(X), self.W_K(X), self.W_V(X)
        return scaled_dot_product_attention(query, key, value, **allowed)


class MultiHeadSelfAttention(nn.Module):
    """Compute several heads, each with features of its own, and mix what they found by W_O.

    Each head has d_head = d_model / n_heads features, and its scores are divided by √d_head.

    Args:
        d_model, bias, is_causal, max_seq_len: as in `SelfAttention`.
        n_heads: the number of query heads.
        n_kv_heads: the number of key heads, n_heads where None. With fewer (grouped-query
            attention, GQA) head h reads key head h // (n_heads / n_kv_heads).
        positions: "sinusoidal" adds `positions.sinusoidal` to X; "learned" adds a learned row for
            each of max_seq_len positions, drawn with standard deviation 0.02; "rotary" turns
            queries and keys by `positions.rotary`. None leaves the layer blind to order.

    Shapes:
        X (…, T, d_model) → (…, T, d_model)

    Raises:
        TypeError, ValueError: as `SelfAttention`, and for heads or positions that do not fit.

    Source:
        Vaswani et al. 2017, section 3.2.2; Ainslie et al. 2023 (arXiv 2305.13245); chapter 08.

    Example:
        >>> layer = MultiHeadSelfAttention(d_model=6, n_heads=2, n_kv_heads=1)
        >>> layer.W_K.weight.shape, layer(torch.zeros(5, 6)).shape
        (torch.Size([3, 6]), torch.Size([5, 6]))
    """

    def __init__(
        self, d_model: int, n_heads: int, *, n_kv_heads: int | None = None, bias: bool = False,
        is_causal: bool = False, max_seq_len: int | None = None,
        positions: checks.Positions | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        sizes = {"d_model": d_model, "n_heads": n_heads, "n_kv_heads": n_kv_heads}
        checks.check_settings(bias, is_causal, max_seq_len, **sizes)
        checks.check_heads(d_model, n_heads, n_kv_heads)
        checks.check_positions(positions, max_seq_len, d_model, d_model // n_heads)
        self.n_heads, self.n_kv_heads = n_heads, n_kv_heads
        self.is_causal, self.max_seq_len, self.positions = is_causal, max_seq_len, positions
        d_kv = n_kv_heads * (d_model // n_heads)
        self.W_Q = nn.Linear(d_model, d_model, bias)
        self.W_K = nn.Linear(d_model, d_kv, bias)
        self.W_V = nn.Linear(d_model, d_kv, bias)
        self.W_O = nn.Linear(d_model, d_model, bias)
        rows = max_seq_len if positions == "learned" else None
        self.learned = None if rows is None else nn.Parameter(torch.empty(rows, d_model))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        _draw(self.W_Q, self.W_K, self.W_V, self.W_O)
        if self.learned is not None:
            nn.init.normal_(self.learned, std=0.02)

    def extra_repr(self) -> str:
        names = ("n_heads", "n_kv_heads", "is_causal", "max_seq_len", "positions")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

    def forward(
        self, X: Tensor, attn_mask: Tensor | None = None, *, lengths: checks.Lengths | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:  # fmt: skip
        """Return the output of each token, as `SelfAttention`; attn_mask fits (…, H, T, T).

        With a `torch_decoding.KVCache`, for a causal layer and without attn_mask, X (B, T, d_model)
        holds the next tokens of each sequence. They see the tokens in the cache, continue their
        positions, and join them there. `lengths` then says how many of the T tokens each sequence
        has. If the call fails, the cache is as it was before.
        """
        checks.check_tokens(X, self.W_Q.weight, self.max_seq_len)
        if cache is None:
            allowed = checks.joined_mask(X, attn_mask, lengths, self.is_causal, self.n_heads)
            query, key, value = self._projected(X, (0,))
            heads = scaled_dot_product_attention(query, key, value, **allowed, enable_gqa=True)
        else:
            checks.check_cache(cache, X, attn_mask, lengths, self.is_causal, self.max_seq_len)
            heads = attend(*self._projected(X, cache.lengths), cache, counts=lengths)
        output: Tensor = self.W_O(merge_heads(heads))
        return output

    def _projected(self, X: Tensor, starts: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Return query, key and value of tokens that begin, in row b, at position starts[b]."""
        n_tokens, d_model = X.shape[-2:]
        if self.positions == "sinusoidal":
            table = _for_rows(starts, lambda n: sinusoidal(n_tokens, d_model, like=X, start=n))
            X = X + table.to(X)
        elif self.positions is not None:
            places = _for_rows(starts, lambda n: torch.arange(n, n + n_tokens, device=X.device))
        if self.learned is not None:  # padding may have places that no token can have
            X = X + self.learned[places.clamp(max=len(self.learned) - 1)]
        query = split_heads(self.W_Q(X), self.n_heads)
        key, value = (split_heads(W(X), self.n_kv_heads) for W in (self.W_K, self.W_V))
        if self.positions == "rotary":
            query, key = rotary(query, places), rotary(key, places)
        return query, key, value

    @classmethod
    def from_torch(cls, mha: nn.MultiheadAttention, *, is_causal: bool = False) -> Self:
        """Return the layer that computes `mha(X, X, X, need_weights=False)[0]`, on copied weights.

        Two habits differ. Here X is (B, T, d_model), whatever mha.batch_first says. And here True
        in a mask takes part; in mha's attn_mask and key_padding_mask it removes: invert those.

        Raises:
            TypeError: for what is no nn.MultiheadAttention.
            ValueError: for kdim or vdim other than embed_dim, for add_bias_kv or add_zero_attn,
                and for dropout in training mode, because this layer drops nothing.
        """
        checks.check_torch(mha)
        bias = mha.in_proj_bias is not None
        with torch.device("meta"):  # draws nothing and takes no memory: mha brings the weights
            layer = cls(mha.embed_dim, mha.num_heads, bias=bias, is_causal=is_causal)
        state: dict[str, Tensor] = dict(mha.out_proj.named_parameters(prefix="W_O"))
        for kind, stacked in (("weight", mha.in_proj_weight), ("bias", mha.in_proj_bias)):
            if stacked is not None:  # the rows for Q, then those for K, then those for V
                state |= zip((f"W_{W}.{kind}" for W in "QKV"), stacked.chunk(3), strict=True)
        layer.load_state_dict({n: t.detach().clone() for n, t in state.items()}, assign=True)
        for name, parameter in layer.named_parameters():
            parameter.requires_grad_(state[name].requires_grad)  # what is frozen stays so
        return layer.train(mha.training)
