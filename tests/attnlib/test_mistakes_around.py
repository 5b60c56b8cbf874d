"""The usual mistakes around attention, by name: masks, positions, layers, steps, states.

See test_mistakes, which does this for each rung of the ladder.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from mistakes import drawn, heads_apart, hold, log_sum_exp, masked, scores, softmax, up_to
from numpy.typing import NDArray

from attnlib import masks, numpy_dense, torch_dense
from attnlib.numpy_blockwise import SoftmaxState
from attnlib.positions import rotary, sinusoidal
from attnlib.torch_layers import MultiHeadSelfAttention, SelfAttention, merge_heads, split_heads

Array = NDArray[Any]

B, T, D_MODEL, N_HEADS = 2, 7, 12, 3
D_HEAD = D_MODEL // N_HEADS


# -- masks -----------------------------------------------------------------------------------------


def test_causal_masks() -> None:
    for n_queries, n_keys in ((4, 4), (3, 5), (5, 3)):
        bottom = up_to(n_queries, n_keys, n_keys - n_queries)
        wrong = [
            ("a query does not see its own key", up_to(n_queries, n_keys, -1)),
            ("a query sees the key after its own", up_to(n_queries, n_keys, 1)),
            ("a query sees the future", ~up_to(n_queries, n_keys, -1)),
        ]
        if n_queries != n_keys:
            wrong.append(("the causal mask is aligned at the bottom right", bottom))
        hold("causal", masks.causal(n_queries, n_keys), up_to(n_queries, n_keys), wrong)
    words = "the bottom-right mask is shifted the wrong way"
    wrong = [(words, up_to(3, 5, -2)), ("bottom-right is top-left", up_to(3, 5))]
    hold("causal", masks.causal(3, 5, align="bottom-right"), up_to(3, 5, 2), wrong)


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_padding_masks(kind: Any) -> None:
    lengths, place = np.array([4, 1, 6]), np.arange(6)
    right = place < lengths[:, None, None, None]
    wrong = [
        ("the tokens are removed, and the padding is kept", ~right),
        ("one token of padding is seen", place <= lengths[:, None, None, None]),
        ("the last token is removed", place < lengths[:, None, None, None] - 1),
        ("the padding stands at the front", place >= 6 - lengths[:, None, None, None]),
    ]
    hold("padding", masks.padding(kind(lengths), 6), right, wrong)


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_left_padding_masks(kind: Any) -> None:
    lengths, place = np.array([4, 1, 6]), np.arange(6)
    ends = lengths[:, None, None, None]
    wrong = [
        ("the padding stands at the end", place < ends),
        ("the tokens are removed, and the padding is kept", place < 6 - ends),
        ("the first token is removed", place > 6 - ends),
        ("one token of padding is seen", place >= 5 - ends),
        ("the places of the tokens are counted from the front", place >= ends),
    ]
    hold("padding", masks.padding(kind(lengths), 6, side="left"), place >= 6 - ends, wrong)


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_document_masks(kind: Any) -> None:
    ids, key_ids = np.array([1, 1, 2, 3]), np.array([1, 2, 2, 3, 3])
    rows = ids[:, None]
    wrong = [
        ("every token sees every document", rows == rows + 0 * key_ids),
        ("a token sees the other documents, and not its own", rows != key_ids),
        ("a token sees the documents before its own", rows >= key_ids),
        ("queries and keys are exchanged", (rows == key_ids).T),
    ]
    hold("document", masks.document(kind(ids), kind(key_ids)), rows == key_ids, wrong)


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_document_masks_of_other_keys(kind: Any) -> None:
    ids, key_ids = np.array([5, 5, 6]), np.array([6, 5, 5])
    wrong = [("the ids of the keys are not looked at", ids[:, None] == ids)]
    hold("document", masks.document(kind(ids), kind(key_ids)), ids[:, None] == key_ids, wrong)


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_document_masks_of_a_batch(kind: Any) -> None:
    ids = np.array([[1, 1, 2], [1, 2, 2]])
    right = ids[:, :, None] == ids[:, None, :]
    wrong = [("the axis of the heads is missing", right)]
    hold("document", masks.document(kind(ids)), right[:, None], wrong)


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_prefix_masks(kind: Any) -> None:
    i, j = np.arange(5)[:, None], np.arange(7)
    wrong = [
        ("the last key of the prefix is not seen", (j < 3) | (j <= i)),
        ("the key after the prefix is seen", (j <= 4) | (j <= i)),
        ("only the prefix is seen", (j < 4) & (i >= 0)),
        ("the prefix is causal too", j <= i),
        ("the prefix stands at the end", (j >= 3) | (j <= i)),
        ("the causal mask is aligned at the bottom right", (j < 4) | (j <= i + 2)),
    ]
    hold("prefix", masks.prefix(kind(4), 5, 7), (j < 4) | (j <= i), wrong)


def biases(slopes: Any, distance: Array) -> Array:
    negative: Array = -np.asarray(slopes)[:, None, None] * distance
    return negative


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_alibi_masks(kind: Any) -> None:
    steps = np.arange(3)[:, None] - np.arange(5)
    right = biases([1 / 4, 1 / 16, 1 / 64, 1 / 256], abs(steps))
    wrong = [
        ("the first slope is 1", biases([1, 1 / 4, 1 / 16, 1 / 64], abs(steps))),
        ("slopes are halved from head to head, whatever their number",
         biases([1 / 2, 1 / 4, 1 / 8, 1 / 16], abs(steps))),
        ("the farther key is preferred", -right),
        ("keys after the query gain by their distance",
         biases([1 / 4, 1 / 16, 1 / 64, 1 / 256], steps)),
        ("all heads have one slope", biases([1 / 4] * 4, abs(steps))),
        ("the mask is aligned at the bottom right",
         biases([1 / 4, 1 / 16, 1 / 64, 1 / 256], abs(steps + 2))),
    ]  # fmt: skip
    hold("alibi", masks.alibi(4, 3, 5, like=kind(0.0)), right, wrong)


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_alibi_slopes_of_other_numbers_of_heads(kind: Any) -> None:
    found = -masks.alibi(6, 2, like=kind(0.0))[:, 1, 0]
    four = [1 / 4, 1 / 16, 1 / 64, 1 / 256]
    plain = np.float32(2.0 ** (-8 * np.arange(1, 7) / 6))
    wrong = [
        ("slopes are 2^(-8h/H) for every number of heads", plain),
        ("the extra slopes begin with the second", [*four, 1 / 4, 1 / 16]),
        ("the extra slopes are not every second one", [*four, 1 / 2, 1 / 4]),
        ("the slopes of 8 heads are taken", 0.5 ** np.arange(1, 7)),
        ("the slopes are sorted", sorted([*four, 1 / 2, 1 / 8])[::-1]),
    ]
    hold("alibi", found, [*four, 1 / 2, 1 / 8], wrong)


def test_window_masks() -> None:
    i, j = np.arange(5)[:, None], np.arange(7)
    wrong = [
        ("left and right are exchanged", (j >= i - 1) & (j <= i + 2)),
        ("the window lacks its left end", (j > i - 2) & (j <= i + 1)),
        ("the window lacks its right end", (j >= i - 2) & (j < i + 1)),
        ("the window is outside in", (j < i - 2) | (j > i + 1)),
    ]
    hold("window", masks.window(5, 7, 2, 1), (j >= i - 2) & (j <= i + 1), wrong)


def test_combined_masks() -> None:
    one, two = np.array([True, True, False, False]), np.array([True, False, True, False])
    wrong = [("a key is kept that one of the masks keeps", one | two)]
    hold("combine", masks.combine(one, two), one & two, wrong)
    added, other = np.array([1.0, 2.0, 3.0, -np.inf]), np.array([0.5, -np.inf, 0.25, 1.0])
    right = np.array([1.5, -np.inf, -np.inf, -np.inf])
    wrong = [
        ("floating masks are not added", np.array([0.5, -np.inf, -np.inf, -np.inf])),
        ("a boolean mask does not remove beside a floating one", added + other),
    ]
    hold("combine", masks.combine(added, np.array([True, True, False, True]), other), right, wrong)
    least = np.full(1, np.finfo(np.float32).min)
    words = "finite masks that are added remove a key"
    hold("combine", np.isfinite(masks.combine(least, least)), [True], [(words, [False])])


# -- positions -------------------------------------------------------------------------------------


def angles(n_tokens: int, d: int, base: float = 1e4, first: int = 0) -> Array:
    return (np.arange(n_tokens) + first)[:, None] * base ** (-np.arange(0, d, 2) / d)


def in_turn(even: Array, odd: Array) -> Array:
    return np.stack([even, odd], -1).reshape(*even.shape[:-1], -1)


def test_sinusoidal_positions() -> None:
    phi, later = angles(5, 6), angles(5, 6, first=1)
    up = angles(5, 6, 1e-4)
    twice = np.arange(5)[:, None] * 1e4 ** (-np.arange(0, 6, 2) / 3)
    wrong = [
        ("sine and cosine are exchanged", in_turn(np.cos(phi), np.sin(phi))),
        ("sines and cosines stand in halves", np.concatenate([np.sin(phi), np.cos(phi)], -1)),
        ("positions begin at 1", in_turn(np.sin(later), np.cos(later))),
        ("angles grow with the pair", in_turn(np.sin(up), np.cos(up))),
        ("the exponent is 2c/d twice over", in_turn(np.sin(twice), np.cos(twice))),
    ]  # fmt: skip
    hold("sinusoidal", sinusoidal(5, 6), in_turn(np.sin(phi), np.cos(phi)), wrong)


def turned(x: Array, phi: Array, pairs: str = "neighbours") -> Array:
    half = x.shape[-1] // 2
    first, second = (
        (x[..., :half], x[..., half:]) if pairs == "halves" else (x[..., ::2], x[..., 1::2])
    )
    a, b = first * np.cos(phi) - second * np.sin(phi), first * np.sin(phi) + second * np.cos(phi)
    return np.concatenate([a, b], -1) if pairs == "halves" else in_turn(a, b)


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_rotary_positions(kind: Any) -> None:
    (x,) = drawn((5, 6))
    phi = angles(5, 6)
    wrong = [
        ("pairs are turned backwards", turned(x, -phi)),
        ("pairs are a feature and the one half the width away", turned(x, phi, "halves")),
        ("positions begin at 1", turned(x, angles(5, 6, first=1))),
        ("all pairs turn at one speed", turned(x, np.repeat(phi[:, :1], 3, 1))),
        ("nothing is turned", x),
    ]
    hold("rotary", rotary(kind(x)), turned(x, phi), wrong)


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_half_split_rotary_positions(kind: Any) -> None:
    (x,) = drawn((5, 6))
    phi, order = angles(5, 6), [0, 2, 4, 1, 3, 5]
    right = turned(x, phi, "halves")
    wrong = [
        ("pairs are always neighbours", turned(x, phi)),
        ("halves pair neighbours", turned(x, phi)[:, order]),
        ("neighbours are put where halves belong", in_turn(right[:, :3], right[:, 3:])),
        ("halves are turned backwards", turned(x, -phi, "halves")),
        ("all pairs turn at one speed", turned(x, np.repeat(phi[:, :1], 3, 1), "halves")),
        ("nothing is turned", x),
    ]
    hold("rotary", rotary(kind(x), interleaved=False), right, wrong)


# -- steps of the matrix form, and the state of the online softmax ---------------------------------


@pytest.mark.parametrize("form", [numpy_dense, torch_dense], ids=lambda form: form.__name__[8:])
def test_the_steps_of_the_matrix_form(form: Any) -> None:
    X, W, query, key, value = drawn((T, 5), (5, 5), (T, 3), (T, 3), (T, 5))
    given = [torch.tensor(a) if form is torch_dense else a for a in (X, W, query, key, value)]
    hold("project", form.project(*given[:2]), X @ W, [("the matrix is transposed", X @ W.T)])
    s = scores(query, key)
    wrong = [
        ("rows hold keys, and columns queries", s.T),
        ("scores are not divided by the root of d_k", s * 3**0.5),
    ]
    hold("attention_scores", form.attention_scores(*given[2:4]), s, wrong)
    wrong = [("the softmax runs along the queries", softmax(s, 0))]
    hold("softmax", form.softmax(given[4], -1), softmax(value), [("other axis", softmax(value, 0))])
    words = "softmax takes its axis from the end whatever it is given"
    hold("softmax", form.softmax(given[4], 0), softmax(value, 0), [(words, softmax(value))])
    hold("attention_weights", form.attention_weights(*given[2:4]), softmax(s), wrong)
    causal = softmax(masked(s, up_to(T, T)))
    wrong = [
        ("the future has weight", softmax(s)),
        ("weights do not add up to 1", softmax(s) * up_to(T, T)),
    ]
    hold("attention_weights", form.attention_weights(*given[2:4], is_causal=True), causal, wrong)
    Q, K, V = X @ W, X @ W.T, X @ (W + 1)
    matrices = [torch.tensor(w) if form is torch_dense else w for w in (W, W.T, W + 1)]
    wrong = [
        ("keys and values are exchanged", softmax(scores(Q, V)) @ K),
        ("queries and keys are exchanged", softmax(scores(K, Q)) @ V),
        ("the tokens are not projected to values", softmax(scores(Q, K)) @ X),
    ]
    hold(
        "self_attention", form.self_attention(given[0], *matrices), softmax(scores(Q, K)) @ V, wrong
    )


def test_merging_two_states() -> None:
    query, key, value = drawn((T, 3), (9, 3), (9, 2))
    key[5:] += 3
    s = scores(query, key)
    parts = slice(0, 5), slice(5, 9)
    empty = SoftmaxState.empty((T,), 2)
    one, two = (empty.update(s[:, p], value[p]) for p in parts)
    highest = np.maximum(one.row_max, two.row_max)
    shrunk = [np.exp(state.row_max - highest) for state in (one, two)]
    outputs, sums = [one.output, two.output], [one.row_sum, two.row_sum]
    total = sum(e * x for e, x in zip(shrunk, sums, strict=True))

    def divided(output: Any, row_sum: Any) -> Array:
        return np.asarray(output) / np.asarray(row_sum)[:, None]

    added = sum(e[:, None] * x for e, x in zip(shrunk, outputs, strict=True))
    wrong = [
        ("the row sum is not rescaled", divided(added, sum(sums))),
        ("the output is not rescaled", divided(sum(outputs), total)),
        ("the second state is left out", divided(one.output, one.row_sum)),
        ("the first state is left out", divided(two.output, two.row_sum)),
        ("the factors are exchanged", divided(
            sum(e[:, None] * x for e, x in zip(shrunk[::-1], outputs, strict=True)),
            sum(e * x for e, x in zip(shrunk[::-1], sums, strict=True)),
        )),
    ]  # fmt: skip
    output, lse = one.merge(two).finish()
    hold("merge", output, softmax(s) @ value, wrong)
    hold(
        "merge", lse, log_sum_exp(s), [("the row sum is not rescaled", highest + np.log(sum(sums)))]
    )
    lone = empty.merge(empty).finish()[0]
    hold("merge", lone, np.zeros((T, 2)), [("an empty row gives NaN", np.full((T, 2), np.nan))])


# -- layers ----------------------------------------------------------------------------------------


def weight(projection: torch.nn.Linear) -> Array:
    matrix: Array = projection.weight.detach().numpy().T
    return matrix


def head(array: Array, h: int) -> Array:
    return array[..., h * D_HEAD : (h + 1) * D_HEAD]


def by_heads(
    layer: MultiHeadSelfAttention, X: Array, part: Array | None = None, *, d: int = D_HEAD,
    plain_reshape: bool = False, mixed: bool = True, rotated: str = "",
) -> Array:  # fmt: skip
    """Return the layer's output by a loop over its heads; with each option a mistake."""
    q, k, v = (X @ weight(W) for W in (layer.W_Q, layer.W_K, layer.W_V))
    group = layer.n_heads // layer.n_kv_heads
    phi = angles(X.shape[-2], D_HEAD)
    outputs = []
    for h in range(layer.n_heads):
        if plain_reshape:
            cut = (x.reshape(*x.shape[:-2], -1, T, D_HEAD)[..., h, :, :] for x in (q, k, v))
            a, b, c = cut
        else:
            a, b, c = head(q, h), head(k, h // group), head(v, h // group)
        a, b, c = (
            turned(x, phi) if name in rotated else x
            for name, x in zip("qkv", (a, b, c), strict=True)
        )
        s = a @ b.swapaxes(-1, -2) / d**0.5
        outputs.append(softmax(s if part is None else masked(s, part)) @ c)
    joined = np.concatenate(outputs, -1)
    return joined @ weight(layer.W_O) if mixed else joined


def layer_and_tokens(**options: Any) -> tuple[MultiHeadSelfAttention, Array, torch.Tensor]:
    torch.manual_seed(1)
    layer = MultiHeadSelfAttention(D_MODEL, N_HEADS, **options).double()
    (X,) = drawn((B, T, D_MODEL))
    return layer, X, torch.tensor(X)


def test_the_heads_of_a_layer() -> None:
    (x,) = drawn((T, D_MODEL))
    apart = x.reshape(T, N_HEADS, D_HEAD).swapaxes(0, 1)
    words = "heads are cut by a reshape, which mixes tokens"
    split = split_heads(torch.tensor(x), N_HEADS)
    hold("split_heads", split, apart, [(words, x.reshape(N_HEADS, T, D_HEAD))])
    words = "heads are joined by a reshape, which mixes tokens"
    hold("merge_heads", merge_heads(split), x, [(words, apart.reshape(T, D_MODEL))])
    layer, X, tokens = layer_and_tokens()
    wrong = [
        ("scores are divided by the root of d_model", by_heads(layer, X, d=D_MODEL)),
        ("heads are cut by a reshape, which mixes tokens", by_heads(layer, X, plain_reshape=True)),
        ("the output projection is left out", by_heads(layer, X, mixed=False)),
        ("the future is not seen", by_heads(layer, X, up_to(T, T))),
    ]
    hold("MultiHeadSelfAttention", layer(tokens).detach(), by_heads(layer, X), wrong)


def test_grouped_heads_of_a_layer() -> None:
    layer, X, tokens = layer_and_tokens(n_kv_heads=1)
    hold("MultiHeadSelfAttention", layer(tokens).detach(), by_heads(layer, X), [])
    torch.manual_seed(1)
    layer = MultiHeadSelfAttention(24, 6, n_kv_heads=2).double()
    (X,) = drawn((T, 24))
    q, k, v = (X @ weight(W) for W in (layer.W_Q, layer.W_K, layer.W_V))

    def sharing(heads: list[int]) -> Array:
        cut = [x.reshape(T, -1, 4).swapaxes(0, 1) for x in (q, k, v)]
        found = softmax(scores(cut[0], heads_apart(cut[1], heads))) @ heads_apart(cut[2], heads)
        joined: Array = found.swapaxes(0, 1).reshape(T, 24) @ weight(layer.W_O)
        return joined

    right, tiled = sharing([0, 0, 0, 1, 1, 1]), sharing([0, 1, 0, 1, 0, 1])
    words = "key heads are dealt out by tile: h % H_kv"
    hold("MultiHeadSelfAttention", layer(torch.tensor(X)).detach(), right, [(words, tiled)])


def test_positions_of_a_layer() -> None:
    layer, X, tokens = layer_and_tokens(positions="rotary")
    wrong = [
        ("queries are turned and keys are not", by_heads(layer, X, rotated="q")),
        ("keys are turned and queries are not", by_heads(layer, X, rotated="k")),
        ("values are turned too", by_heads(layer, X, rotated="qkv")),
        ("nothing is turned", by_heads(layer, X)),
    ]
    hold("rotary", layer(tokens).detach(), by_heads(layer, X, rotated="qk"), wrong)
    layer, X, tokens = layer_and_tokens(positions="sinusoidal")
    placed = X + in_turn(np.sin(angles(T, D_MODEL)), np.cos(angles(T, D_MODEL)))
    wrong = [("the positions are not added", by_heads(layer, X))]
    hold("sinusoidal", layer(tokens).detach(), by_heads(layer, placed), wrong)
    layer, X, tokens = layer_and_tokens(positions="learned", max_seq_len=9)
    assert layer.learned is not None
    learned = layer.learned.detach().numpy()
    wrong = [
        ("the positions are not added", by_heads(layer, X)),
        ("the last positions are taken, not the first", by_heads(layer, X + learned[-T:])),
    ]
    hold("learned", layer(tokens).detach(), by_heads(layer, X + learned[:T]), wrong)


@pytest.mark.parametrize("is_causal", [False, True])
def test_lengths_and_masks_of_a_layer(is_causal: bool) -> None:
    layer, X, tokens = layer_and_tokens(is_causal=is_causal)
    lengths = np.array([4, 6])
    inside = (np.arange(T) < lengths[:, None])[:, None]
    allowed = up_to(T, T) if is_causal else np.ones((T, T), dtype=bool)
    near = up_to(T, T, 1)
    wrong = [
        ("padding takes part and tokens do not", by_heads(layer, X, allowed & near & ~inside)),
        ("padding takes part", by_heads(layer, X, (allowed & near)[None])),
        ("the mask is not looked at", by_heads(layer, X, allowed & inside)),
    ]
    if is_causal:
        wrong.append(("the future is seen beside lengths", by_heads(layer, X, near & inside)))
        words = "the mask is not looked at"
        wrong = [pair for pair in wrong if pair[0] != words]  # causal, it removes nothing more
    got = layer(tokens, torch.tensor(near), lengths=lengths.tolist()).detach()
    hold("MultiHeadSelfAttention", got, by_heads(layer, X, allowed & near & inside), wrong)


def test_one_head_as_a_layer() -> None:
    torch.manual_seed(1)
    layer = SelfAttention(5, 3, 4, is_causal=True).double()
    (X,) = drawn((T, 5))
    Q, K, V = (X @ weight(W) for W in (layer.W_Q, layer.W_K, layer.W_V))

    def seeing(query: Array, key: Array, d: float) -> Array:
        found: Array = softmax(masked(query @ key.T / d**0.5, up_to(T, T))) @ V
        return found

    wrong = [
        ("scores are divided by the root of d_model", seeing(Q, K, 5)),
        ("queries and keys are exchanged", seeing(K, Q, 3)),
        ("the future is seen", softmax(scores(Q, K)) @ V),
    ]
    hold("SelfAttention", layer(torch.tensor(X)).detach(), seeing(Q, K, 3), wrong)


def test_a_layer_made_of_torchs() -> None:
    torch.manual_seed(1)
    mha = torch.nn.MultiheadAttention(D_MODEL, N_HEADS, bias=False, batch_first=True).double()
    (X,) = drawn((B, T, D_MODEL))
    tokens = torch.tensor(X)
    layer = MultiHeadSelfAttention.from_torch(mha)
    right = mha(tokens, tokens, tokens, need_weights=False)[0].detach()
    layer.W_K, layer.W_Q = layer.W_Q, layer.W_K
    exchanged = layer(tokens).detach()
    layer.W_K, layer.W_Q = layer.W_Q, layer.W_K
    layer.W_K, layer.W_V = layer.W_V, layer.W_K
    other = layer(tokens).detach()
    layer = MultiHeadSelfAttention.from_torch(mha)
    wrong = [
        ("queries and keys are exchanged", exchanged),
        ("keys and values are exchanged", other),
    ]
    hold("from_torch", layer(tokens).detach(), right, wrong)


def test_weights_are_drawn_for_scores_of_variance_one() -> None:
    torch.manual_seed(1)
    layer = SelfAttention(256, 128)
    with torch.no_grad():
        spread = float(layer.W_Q(torch.randn(512, 256)).std())
    hold("SelfAttention", round(spread, 1), 1.0, [
        ("weights have variance 1, queries d_model", 16.0),
        ("weights have standard deviation 1/d_model", 0.1),
        ("weights are those of nn.Linear", 0.6),
    ])  # fmt: skip


# -- bands in kernels ------------------------------------------------------------------------------


def window(low: int | Array, high: int | Array) -> Array:
    """Say which of 60 keys each of 32 queries sees: those from i + low to i + high."""
    i, j = np.arange(32)[:, None], np.arange(60)
    return (j >= i + low) & (j <= i + high)


def test_windows_of_the_triton_kernels() -> None:
    """Two blocks of 16 queries; keys from i + 2 to i + 19, in tiles of 16 from 2 or 18 on."""
    pytest.importorskip("triton", reason="triton is for Linux")
    from bands import SCALE, operands, run

    from attnlib._checks import Band

    given = operands(32, 60)
    query, key, value = (x[0, 0].cpu().numpy() for x in given[:3])
    i, j = np.arange(32)[:, None], np.arange(60)
    block, right = i // 16 * 16, window(2, 19)

    def attended(mask: Array) -> Array:
        return softmax(masked(query @ key.T * SCALE, mask)) @ value

    wrong = [
        ("the place of the first query is ignored", window(-12, 5)),
        ("the left bound is off by one", window(3, 19)),
        ("the left bound is off by one", right | ((j == i + 1) & (j >= block + 2))),
        ("the right bound is off by one", window(2, 18)),
        ("the first key of a block is skipped", right & (j != block + 2)),
        (
            "a tile that the left bound crosses is seen as a whole",
            right | ((j >= block + 2) & (j < block + 18)),
        ),
        (
            "a tile that the right bound crosses is seen as a whole",
            right | ((j >= block + 18) & (j < block + 34)),
        ),
    ]
    output = run(given, Band(14, 12, 5))[0][0, 0].cpu()
    hold("windows", output, attended(right), [(words, attended(mask)) for words, mask in wrong])


def key_gradients(band: tuple[int, int, int]) -> list[tuple[Array, Array]]:
    """Return dK and dV of 60 queries and keys: by the kernels, and by the dense form."""
    pytest.importorskip("triton", reason="triton is for Linux")
    from bands import SCALE, operands, run, seen, upstream

    from attnlib._checks import Band

    given = operands(60, 60)
    output, lse, _, *found = run(given, Band(*band))
    leaves = [x.clone().requires_grad_() for x in given[:3]]
    results = torch_dense.scaled_dot_product_attention_with_lse(
        *leaves, seen(60, 60, Band(*band)), scale=SCALE
    )
    right = torch.autograd.grad(results, leaves[1:], upstream(output, lse))
    return [(x.cpu().numpy(), y.cpu().numpy()) for x, y in zip(found, right, strict=True)]


def test_windows_of_the_triton_kernels_backwards() -> None:
    """Queries see 20 keys at most, so that no tile of 16 × 16 is whole."""
    for found, right in key_gradients((0, 17, 2)):
        hold("windows", found, right, [], otherwise="a block of keys misses some of its queries")


def test_whole_tiles_of_the_triton_kernels_backwards() -> None:
    words = "a query that sees part of a block of keys is taken to see all of it"
    for band in ((0, 33, 0), (8, 40, 5)):
        for found, right in key_gradients(band):
            hold("windows", found, right, [], otherwise=words)
