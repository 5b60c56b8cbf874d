"""The matrix form of attention on tensors: any device and floating dtype, with gradients.

The steps are those of `numpy_dense`, under the same names, and mean the same:

    Q, K, V = X W_Q, X W_K, X W_V       project
    S       = scale · Q Kᵀ              attention_scores
    A       = softmax(S + mask)         attention_weights
    O       = A V                       scaled_dot_product_attention

Half precision (float16, bfloat16) is computed in float32, and rounded once, at the end. A score
beyond the range of the computing dtype is infinite there: -∞ removes its key, +∞ gives NaN. Nothing
here looks at the numbers to decide what to do, so that everything can be differentiated (twice,
and in forward mode), compiled, batched by `torch.vmap` and run on the meta device. Under
`torch.autocast` inputs are cast as for torch's own attention.
"""

from __future__ import annotations

from attnlib import _needs

_needs(__name__, "torch")

import math

import torch
from torch import Tensor

from attnlib._checks import Band, Call, Window, beyond, check_axis, check_projection
from attnlib._torch_checks import as_autocast_does, check_tensors, torch_call

HALF = (torch.float16, torch.bfloat16)


def _widened(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in HALF else tensor


def _scores(query: Tensor, key: Tensor, scale: float) -> Tensor:
    query, key = _widened(query), _widened(key)
    if beyond(scale, torch.finfo(query.dtype)):
        query, key = query.double(), key.double()
    if abs(scale) > 1:  # a large query times a large scale could be ∞ on the way
        return torch.matmul(query, key.mT) * scale
    return torch.matmul(query * scale, key.mT)  # L E products with the scale, not L S


def _fill(scores: Tensor, where: Tensor, number: float) -> None:
    """Overwrite scores in place, unseen by autograd.

    The weight of such a score is 0, or its row is put out later: its gradient is 0 without help.
    Recorded, each fill would cost the backward a pass over L S numbers.
    """
    scores.detach().masked_fill_(where, number)


def _masked(scores: Tensor, attn_mask: Tensor | None, part: Tensor | None) -> Tensor:
    """Give the scores after the mask; `part` says which keys take part (None: all of them).

    The score of a removed key is replaced, so that nothing of it is left, NaN included.
    """
    if part is None:
        return scores
    if attn_mask is None:
        _fill(scores, ~part, -math.inf)
        return scores
    if attn_mask.dtype == torch.bool:
        return scores.masked_fill(~part, -math.inf)
    scores = scores + attn_mask.to(scores.dtype)
    _fill(scores, ~part, -math.inf)
    return scores


def _softmax(scores: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Give the weights, and which rows are empty (`dim` kept). Those come out as if all equal.

    The scores are overwritten. An empty row holds -∞ alone, of which softmax makes NaN.
    """
    if scores.numel():
        empty = scores.detach().amax(dim, keepdim=True) == -math.inf
    else:
        empty = (scores == -math.inf).all(dim, keepdim=True)
    _fill(scores, empty, 0)
    return torch.softmax(scores, dim), empty


def _folded(rows: Tensor, group: int) -> Tensor:
    """Make one list of the rows that share a key head: (…, H, L, ·) → (…, H_kv, group L, ·)."""
    if group <= 1:
        return rows
    *batch, heads, length, features = rows.shape
    return rows.reshape(*batch, heads // group, group * length, features)


def _unfolded(rows: Tensor, group: int) -> Tensor:
    """Take `_folded` back: (…, H_kv, group L, ·) → (…, H, L, ·)."""
    if group <= 1:
        return rows
    *batch, heads, length, features = rows.shape
    return rows.reshape(*batch, heads * group, length // group, features)


def _taking_part(
    call: Call, query: Tensor, attn_mask: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """Return the mask, folded as the queries are, and which keys take part (None: all of them)."""
    part = None
    if attn_mask is not None:
        if attn_mask.ndim < 2:
            attn_mask = attn_mask.reshape(1, -1)
        if call.group > 1:
            whole = attn_mask.expand(*call.batch, call.n_queries, call.n_keys)
            attn_mask = _folded(whole, call.group)
        part = attn_mask if attn_mask.dtype == torch.bool else attn_mask != -math.inf
    if call.band.left is not None or call.band.right is not None:
        queries, keys = (
            torch.arange(n, device=query.device) for n in (call.n_queries, call.n_keys)
        )
        seen = call.band.sees(queries[:, None], keys).repeat(max(call.group, 1), 1)
        part = seen if part is None else part & seen
    return attn_mask, part


def _seen(tensor: Tensor, part: Tensor | None) -> Tensor:
    """Put zeros for what no query may see: 0 · NaN is NaN, in gradients too."""
    return tensor if part is None else tensor.masked_fill(~part.any(-2)[..., None], 0)


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    call: Call,
) -> tuple[Tensor, Tensor, Tensor]:
    """Give the output, the scores (of an empty row: 0), and which rows are empty."""
    if call.group == 0:  # no query heads, so no use for key heads
        key, value = key[..., :0, :, :], value[..., :0, :, :]
    attn_mask, part = _taking_part(call, query, attn_mask)
    query = _folded(query, call.group)
    # Under a plain causal mask, and with no more keys than queries, the last query sees all keys.
    if attn_mask is not None or call.n_keys > call.n_queries or call.band != Band(0, None, 0):
        key, value = _seen(key, part), _seen(value, part)
    scores = _masked(_scores(query, key, call.scale), attn_mask, part)
    weights, empty = _softmax(scores, -1)
    if dropout_p:
        weights = torch.dropout(weights, dropout_p, train=True)
    output = torch.matmul(weights, _widened(value).to(weights.dtype)).masked_fill(empty, 0)
    return output, scores, empty


@as_autocast_does
def project(X: Tensor, W: Tensor) -> Tensor:
    """Give X W: each token (row) of X, mapped by the same matrix.

    Shapes: X (…, T, d_model), W (d_model, d) → (…, T, d).
    Raises: TypeError for what is no floating tensor; ValueError for shapes that do not fit.
    Source: chapter 01.

    >>> project(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0], [10.0, 1.0]]))
    tensor([[21.,  2.]])
    """
    check_tensors({"X": X, "W": W})
    check_projection(tuple(X.shape), "W", tuple(W.shape))
    return torch.matmul(_widened(X), _widened(W)).to(X.dtype)


@as_autocast_does
def attention_scores(query: Tensor, key: Tensor, *, scale: float | None = None) -> Tensor:
    """Give the scaled scores: row i holds query i against all keys.

    S = scale · Q Kᵀ, with scale = 1/√E where it is None.

    Shapes: query (…, L, E), key (…, S, E) → (…, L, S).
    Raises: TypeError, ValueError as `scaled_dot_product_attention`.
    Source: Vaswani et al. 2017, section 3.2.1; chapters 02 and 03.

    >>> q, k = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [5.0, 6.0]])
    >>> attention_scores(q, k, scale=1.0)
    tensor([[11., 17.]])
    """
    call = torch_call({"query": query, "key": key}, scale=scale)
    return _scores(query, key, call.scale).to(query.dtype)


def softmax(scores: Tensor, dim: int = -1) -> Tensor:
    """Give positive weights that add up to 1 along `dim`.

    a_j = exp(s_j - max s) / Σ_j exp(s_j - max s)

    Only -∞ along `dim`: nothing takes part, and all weights are 0. NaN stays NaN.

    Shapes: any → the same.
    Raises: TypeError for what is no floating tensor, or a dimension that is no integer;
    numpy.exceptions.AxisError (a ValueError) for a dimension that is not there.
    Source: chapter 04.

    >>> softmax(torch.tensor([7.0, 7.0]))
    tensor([0.5000, 0.5000])
    """
    check_tensors({"scores": scores})
    check_axis("dim", dim, tuple(scores.shape))
    weights, empty = _softmax(_widened(scores).clone(), dim)
    return weights.masked_fill(empty, 0).to(scores.dtype)


@as_autocast_does
def attention_weights(
    query: Tensor,
    key: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    causal_align: str = "top-left",
    window: Window | None = None,
) -> Tensor:
    """Return the weights: row i says how much query i takes from each key.

    A = softmax(scale · Q Kᵀ + mask), along the keys.

    Shapes: query (…, H, L, E), key (…, H_kv, S, E), attn_mask broadcasts to (…, H, L, S)
        → (…, H, L, S).
    Raises: TypeError, ValueError as `scaled_dot_product_attention`.
    Source: Vaswani et al. 2017, section 3.2.1; chapter 04.

    >>> attention_weights(torch.zeros(2, 1), torch.zeros(2, 1), is_causal=True)
    tensor([[1.0000, 0.0000],
            [0.5000, 0.5000]])
    """
    tensors = {"query": query, "key": key}
    call = torch_call(tensors, attn_mask, 0.0, is_causal, scale, enable_gqa, causal_align, window)
    if call.group == 0:  # no query heads, so no use for key heads
        key = key[..., :0, :, :]
    attn_mask, part = _taking_part(call, query, attn_mask)
    rows = _folded(query, call.group)
    scores = _masked(_scores(rows, _seen(key, part), call.scale), attn_mask, part)
    weights, empty = _softmax(scores, -1)
    return _unfolded(weights.masked_fill(empty, 0), call.group).to(query.dtype)


@as_autocast_does
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    causal_align: str = "top-left",
    window: Window | None = None,
) -> Tensor:
    """Give the attention output: for each query a weighted mean of the values.

    O = softmax(scale · Q Kᵀ + mask) V, with scale = 1/√E where it is None.

    A key takes part in a query's row if the mask there is True, or a float other than -∞, and,
    with `is_causal`, if j ≤ i. A row in which no key takes part gives zeros, and zero gradients.
    `causal_align` says where query 0 stands among the keys: at key 0 ("top-left"), or so that the
    last query stands at the last key ("bottom-right"), as in decoding. `window` (left, right) says
    how many keys before and after its own place a query sees; None sets no bound.
    NaN in what takes part gives NaN. In a key or value that takes part in no row of its head, it
    changes nothing. In one that takes part in some rows, the others see a NaN value as well, as
    in torch (0 · NaN), but not a NaN key; gradients mix the rows and are NaN in both cases.

    `dropout_p` is the chance of each weight to be put to 0; the rest is divided by 1 - dropout_p.

    Shapes: query (…, H, L, E), key (…, H, S, E), value (…, H, S, E_v) → (…, H, L, E_v). The
        leading dimensions broadcast, and there may be none. attn_mask broadcasts to (…, H, L, S).
        With `enable_gqa` key and value have H_kv heads; head h uses key head h // (H / H_kv).
    Raises: TypeError for what is no dense tensor, a dtype that is not floating, dtypes that
        differ, a mask that is neither boolean nor floating, a flag that is not a bool. ValueError
        for ranks, lengths, heads, devices or masks that do not fit, a mask beside is_causal, a
        scale that is not finite, dropout outside 0 … 1. The message says what came.
    Source: Vaswani et al. 2017, equation 1; chapter 10.

    The query is 0, so both keys get the weight 1/2, and the output is the mean of the values:

    >>> keys, values = torch.tensor([[1.0], [2.0]]), torch.tensor([[10.0], [20.0]])
    >>> scaled_dot_product_attention(torch.tensor([[0.0]]), keys, values)
    tensor([[15.]])
    """
    tensors = {"query": query, "key": key, "value": value}
    call = torch_call(
        tensors, attn_mask, dropout_p, is_causal, scale, enable_gqa, causal_align, window
    )
    output, _, _ = _attend(query, key, value, attn_mask, dropout_p, call)
    return _unfolded(output, call.group).to(query.dtype)


@as_autocast_does
def scaled_dot_product_attention_with_lse(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    causal_align: str = "top-left",
    window: Window | None = None,
) -> tuple[Tensor, Tensor]:
    """Give the attention output, and the natural log of each row's sum of exponentials.

    lse_i = log Σ_j exp(s_ij), with gradients; -∞ for a row in which no key takes part.

    Shapes: as `scaled_dot_product_attention`, and lse (…, H, L): in float32 for half precision,
    else in query's dtype. Dropout does not change it.

    >>> q, k, v = torch.zeros(1, 1), torch.zeros(4, 1), torch.zeros(4, 1)
    >>> _, lse = scaled_dot_product_attention_with_lse(q, k, v)
    >>> lse.exp()
    tensor([4.])
    """
    tensors = {"query": query, "key": key, "value": value}
    call = torch_call(
        tensors, attn_mask, dropout_p, is_causal, scale, enable_gqa, causal_align, window
    )
    output, scores, empty = _attend(query, key, value, attn_mask, dropout_p, call)
    lse = torch.logsumexp(scores, dim=-1, keepdim=True)
    # Where a score is +∞ the weights are NaN; torch says ∞ for the sum.
    lse = lse.masked_fill(lse == math.inf, math.nan).masked_fill(empty, -math.inf)
    output, lse = _unfolded(output, call.group), _unfolded(lse, call.group)[..., 0]
    # A value may have batch dimensions that the scores do not have.
    lse = lse.expand(output.shape[:-1]).contiguous()
    return output.to(query.dtype), lse.to(_widened(query).dtype)


@as_autocast_does
def self_attention(
    X: Tensor,
    W_Q: Tensor,
    W_K: Tensor,
    W_V: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    causal_align: str = "top-left",
    window: Window | None = None,
) -> Tensor:
    """Return, for each token of X, what it takes from all tokens of X.

    Q = X W_Q, K = X W_K, V = X W_V, then softmax(scale · Q Kᵀ + mask) V.

    Shapes: X (…, T, d_model), W_Q and W_K (d_model, d_k), W_V (d_model, d_v) → (…, T, d_v); with
        heads X (…, 1, T, d_model), W_Q (H, d_model, d_k), W_K and W_V (H_kv, d_model, d)
        → (…, H, T, d_v), where H_kv = H, or fewer with enable_gqa.
    Raises: TypeError, ValueError as `project` and `scaled_dot_product_attention`.
    Source: Vaswani et al. 2017, equation 1; chapters 01 and 05.

    >>> zero, one = torch.zeros(1, 1), torch.ones(1, 1)
    >>> self_attention(torch.tensor([[1.0], [3.0]]), zero, zero, one)
    tensor([[2.],
            [2.]])
    """
    matrices = {"W_Q": W_Q, "W_K": W_K, "W_V": W_V}
    check_tensors({"X": X} | matrices)
    for name, W in matrices.items():
        check_projection(tuple(X.shape), name, tuple(W.shape), heads=True)
    # Wide from the projections on, so that half precision is rounded once, at the end.
    query, key, value = (torch.matmul(_widened(X), _widened(W)) for W in matrices.values())
    if attn_mask is not None and isinstance(attn_mask, Tensor) and attn_mask.dtype == X.dtype:
        attn_mask = _widened(attn_mask)
    output = scaled_dot_product_attention(
        query, key, value, attn_mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa,
        causal_align=causal_align, window=window,
    )  # fmt: skip
    return output.to(X.dtype)
