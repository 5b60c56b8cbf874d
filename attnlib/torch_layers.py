"""Attention as layers that learn: modules of `torch.nn` around the functions of `torch_dense`.

Several heads go this way:

    tokens X → projections → heads → attention → heads side by side → W_O

`nn.Linear` keeps its matrix transposed: the W_Q of the course is `layer.W_Q.weight.T`. Entries of
the W are drawn with variance 1/d_model, so that features of X with variance 1 become queries and
keys with variance 1, which dividing by √d_k assumes (chapter 03). Biases start at 0.
"""

from __future__ import annotations

from attnlib import needs

needs(__name__, "torch")

from collections.abc import Callable, Sequence
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor, nn

from attnlib import masks
from attnlib._checks import check_flag, check_mask, checked_count, checked_counts, dtype_name
from attnlib._tensors import check_devices, check_tensor, has_autocast
from attnlib._torch_cache import KVCache
from attnlib.positions import rotary, sinusoidal
from attnlib.torch_decoding import attend
from attnlib.torch_dense import scaled_dot_product_attention

Lengths = Sequence[int] | Tensor
Positions = Literal["sinusoidal", "learned", "rotary"]


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """Return x with a slice of the features for each head: (…, T, H · d) → (…, H, T, d).

    Example:
        >>> split_heads(torch.tensor([[1, 2, 3, 4]]), n_heads=2).tolist()
        [[[1, 2]], [[3, 4]]]
    """
    _check_axes(x, "T", "H · d")
    _check_heads(x.shape[-1], checked_count("n_heads", n_heads))
    return x.reshape(*x.shape[:-1], n_heads, x.shape[-1] // n_heads).transpose(-3, -2)


def merge_heads(x: Tensor) -> Tensor:
    """Return the heads side by side again: (…, H, T, d) → (…, T, H · d).

    Example:
        >>> merge_heads(torch.tensor([[[1, 2]], [[3, 4]]])).tolist()
        [[1, 2, 3, 4]]
    """
    _check_axes(x, "H", "T", "d")
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
    ) -> None:
        super().__init__()
        d_k, d_v = (d_model if d is None else d for d in (d_k, d_v))
        _check_settings(bias, is_causal, max_seq_len, d_model=d_model, d_k=d_k, d_v=d_v)
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
        self, X: Tensor, attn_mask: Tensor | None = None, *, lengths: Lengths | None = None
    ) -> Tensor:
        """Return the output of each token. What any mask, lengths or is_causal removes is removed.

        Args:
            X: the tokens.
            attn_mask: a mask that broadcasts to (…, T, T). True takes part, floats are added.
            lengths: the lengths (B,) of the sequences in X (B, T, d_model). In a tensor, which a
                compiled layer needs, they are not checked against T. The output of a padding token
                is finite and means nothing. In a sequence of length 0 attention gives 0.
        """
        _check_tokens(X, self.W_Q.weight, self.max_seq_len)
        allowed = _joined_mask(X, attn_mask, lengths, self.is_causal)
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

    It has no dropout, in training neither: `torch_dense.scaled_dot_product_attention` takes a
    dropout_p.

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
        positions: Positions | None = None,
    ) -> None:
        super().__init__()
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        sizes = {"d_model": d_model, "n_heads": n_heads, "n_kv_heads": n_kv_heads}
        _check_settings(bias, is_causal, max_seq_len, **sizes)
        _check_heads(d_model, n_heads, n_kv_heads)
        _check_positions(positions, max_seq_len, d_model, d_model // n_heads)
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
        self, X: Tensor, attn_mask: Tensor | None = None, *, context: Tensor | None = None,
        lengths: Lengths | None = None, cache: KVCache | None = None,
    ) -> Tensor:
        """Return the output of each token, as `SelfAttention`.

        Args:
            X: the tokens, (…, T, d_model).
            attn_mask: a mask that broadcasts to (…, H, T, S). True takes part, floats are added.
            context: a second sequence (…, S, d_model), of max_seq_len tokens at most, which has
                the keys and values (cross-attention); X has the queries alone. The layer must have
                neither is_causal nor positions. None for X itself.
            lengths: the lengths (B,) of the sequences with the keys, as in `SelfAttention`.
            cache: a `torch_decoding.KVCache`, for a causal layer, without attn_mask. X holds the
                next tokens of each sequence, and `lengths` how many of them each has. They see
                the tokens in the cache, continue their positions, and join them there. If the
                call fails, the cache is as it was before.
        """
        _check_tokens(X, self.W_Q.weight, self.max_seq_len)
        if cache is not None:
            if context is not None:
                raise ValueError("context must be None beside a cache")
            _check_cache(cache, X, attn_mask, lengths, self.is_causal, self.max_seq_len)
            heads = attend(*self._projected(X, cache.lengths), cache, counts=lengths)
        else:
            if context is not None:
                _check_context(context, X, self)
            n_heads = (self.n_heads,)
            mask = _joined_mask(X, attn_mask, lengths, self.is_causal, n_heads, context)
            query, key, value = self._projected(X, (0,), context)
            heads = scaled_dot_product_attention(query, key, value, **mask, enable_gqa=True)
        output: Tensor = self.W_O(merge_heads(heads))
        return output

    def _projected(
        self, X: Tensor, starts: Sequence[int], context: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the queries of X, and the keys and values of X or of the context, by heads.

        Tokens begin, in row b, at position starts[b].
        """
        n_tokens, d_model = X.shape[-2:]
        if self.positions == "sinusoidal":
            table = _for_rows(starts, lambda n: sinusoidal(n_tokens, d_model, like=X, start=n))
            X = X + table.to(X)
        elif self.positions is not None:
            at = _for_rows(starts, lambda n: torch.arange(n, n + n_tokens, device=X.device))
        if self.learned is not None:  # padding may have positions that no token can have
            X = X + self.learned[at.clamp(max=len(self.learned) - 1)]
        seen = X if context is None else context
        query = split_heads(self.W_Q(X), self.n_heads)
        key, value = (split_heads(W(seen), self.n_kv_heads) for W in (self.W_K, self.W_V))
        if self.positions == "rotary":
            query, key = rotary(query, at), rotary(key, at)
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
        if not isinstance(mha, nn.MultiheadAttention):
            raise TypeError(f"mha must be a torch.nn.MultiheadAttention; got {type(mha).__name__}")
        if not (size := mha.embed_dim) == mha.kdim == mha.vdim:
            came = f"{mha.kdim} and {mha.vdim}"
            raise ValueError(f"mha must have kdim and vdim equal to embed_dim = {size}; got {came}")
        if mha.bias_k is not None or mha.add_zero_attn:
            raise ValueError("mha must have neither add_bias_kv nor add_zero_attn")
        if mha.dropout and mha.training:
            came = f"dropout {mha.dropout} in training mode"
            raise ValueError(
                f"mha must be in eval mode, because nothing is dropped here; got {came}"
            )
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


# What the layers ask of their arguments -----------------------------------------------------------


def _check_settings(bias: object, is_causal: object, max_seq_len: object, **sizes: object) -> None:
    check_flag("bias", bias)
    check_flag("is_causal", is_causal)
    limit = {} if max_seq_len is None else {"max_seq_len": max_seq_len}
    for name, size in (sizes | limit).items():
        checked_count(name, size, least=1)


def _check_axes(x: Tensor, *axes: str) -> None:
    check_tensor("x", x)
    if x.ndim < len(axes):
        raise ValueError(f"x must be (…, {', '.join(axes)}); got {tuple(x.shape)}")


def _check_heads(d_model: int, n_heads: int, n_kv_heads: int = 1) -> None:
    if n_heads < 1 or d_model % n_heads:
        raise ValueError(f"n_heads must divide d_model; got {n_heads} and {d_model}")
    if n_heads % n_kv_heads:
        raise ValueError(f"n_kv_heads must divide n_heads; got {n_kv_heads} and {n_heads}")


def _check_positions(positions: object, max_seq_len: int | None, d_model: int, d_head: int) -> None:
    kinds = get_args(Positions)
    if positions is not None and positions not in kinds:
        raise ValueError(f"positions must be None or one of {', '.join(kinds)}; got {positions!r}")
    if positions == "learned" and max_seq_len is None:
        raise ValueError("max_seq_len must be given for learned positions; got None")
    if positions == "sinusoidal" and d_model % 2:
        raise ValueError(f"d_model must be even for sinusoidal positions; got {d_model}")
    if positions == "rotary" and d_head % 2:
        raise ValueError(f"d_model / n_heads must be even for rotary positions; got {d_head}")


def _check_tokens(X: Tensor, W: Tensor, max_seq_len: int | None, name: str = "X") -> None:
    """Require tokens X (…, T, d_model) that the weights W (d, d_model) can take."""
    check_tensor(name, X)
    if X.ndim < 2 or X.shape[-1] != W.shape[-1]:
        raise ValueError(f"{name} must be (…, T, d_model = {W.shape[-1]}); got {tuple(X.shape)}")
    if X.device != W.device:
        raise ValueError(f"{name} must be on the device of the weights, {W.device}; got {X.device}")
    device = X.device.type
    # Under autocast the projections choose the dtype themselves, except for float64.
    casts = has_autocast(device) and torch.is_autocast_enabled(device)
    if X.dtype != W.dtype and not (casts and torch.float64 not in (X.dtype, W.dtype)):
        came = dtype_name(X)
        raise TypeError(f"{name} must have the dtype of the weights, {dtype_name(W)}; got {came}")
    if max_seq_len is not None and X.shape[-2] > max_seq_len:
        wanted = f"at most max_seq_len = {max_seq_len} tokens (none is cut off here)"
        raise ValueError(f"{name} must have {wanted}; got {X.shape[-2]}")


def _joined_mask(
    X: Tensor, attn_mask: Tensor | None, lengths: Lengths | None, is_causal: bool,
    heads: tuple[int, ...] = (), context: Tensor | None = None,
) -> dict[str, Any]:
    """Return the attn_mask and the is_causal that together remove what all three remove."""
    name, seen = ("X", X) if context is None else ("context", context)
    *batch, n_tokens, _ = X.shape
    n_keys = seen.shape[-2]
    given = []
    if attn_mask is not None:
        check_tensor("attn_mask", attn_mask)
        check_devices({"X": X, "attn_mask": attn_mask})
        check_mask(attn_mask, X, (*batch, *heads, n_tokens, n_keys))
        given.append(attn_mask)
    if lengths is not None:
        padding = torch.as_tensor(masks.padding(lengths, n_keys), device=X.device)
        if seen.ndim != 3 or len(padding) != len(seen):
            wanted = f"hold one length for each sequence of {name} (B, T, d_model)"
            came = f"{len(padding)} lengths and {name} {tuple(seen.shape)}"
            raise ValueError(f"lengths must {wanted}; got {came}")
        given.append(padding if heads else padding[:, 0])  # (B, 1, 1, S) or (B, 1, S)
    if not given:
        return {"is_causal": is_causal}
    if is_causal:
        given.append(masks.causal(n_tokens, like=X))
    return {"attn_mask": given[0] if len(given) == 1 else masks.combine(*given)}


def _check_context(context: Tensor, X: Tensor, layer: MultiHeadSelfAttention) -> None:
    """Require a second sequence that fits the first, and a layer that knows no order."""
    if layer.is_causal or layer.positions is not None:
        came = f"is_causal={layer.is_causal}, positions={layer.positions!r}"
        raise ValueError(f"context needs a layer without order; got one with {came}")
    _check_tokens(context, layer.W_K.weight, layer.max_seq_len, "context")
    if context.shape[:-2] != X.shape[:-2]:
        came = f"{tuple(context.shape)} and X {tuple(X.shape)}"
        raise ValueError(f"context must share the leading dimensions of X; got {came}")


def _check_cache(
    cache: object, X: Tensor, attn_mask: object, lengths: Lengths | None, is_causal: bool,
    max_seq_len: int | None,
) -> None:
    """Require a cache that the tokens X can continue, without one past max_seq_len."""
    if not isinstance(cache, KVCache):
        raise TypeError(f"cache must be a torch_decoding.KVCache; got {type(cache).__qualname__}")
    if not is_causal:
        raise ValueError("cache must be given to a layer with is_causal=True; got False")
    if attn_mask is not None:
        raise ValueError("attn_mask must be None beside a cache, which is causal; got a mask")
    if X.ndim != 3 or len(X) != len(cache.lengths):
        wanted = f"(B, T, d_model) with B = {len(cache.lengths)}, as the cache"
        raise ValueError(f"X must be {wanted}; got {tuple(X.shape)}")
    counts: Sequence[int] = (X.shape[1],) * len(X)
    if lengths is not None:
        counts = checked_counts("lengths", lengths, counts)
    for row, (length, count) in enumerate(zip(cache.lengths, counts, strict=True)):
        if max_seq_len is not None and length + count > max_seq_len:
            wanted = f"continue a sequence to at most max_seq_len = {max_seq_len} tokens"
            raise ValueError(f"X must {wanted}; got {length} + {count} in row {row}")
