"""The usual mistakes, by name: each test says which of them a wrong result is the result of.

The conformance tests say that a rung is wrong; these say what went wrong. `make mistakes` makes
each mistake in the code and asks that the test named there goes red with the mistake's words.
Every rung that works in blocks takes 16 rows and 16 keys at a time here: 35 keys are two blocks
and a shorter one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mistakes import (
    drawn,
    fold,
    gradients,
    heads_apart,
    hold,
    log_sum_exp,
    masked,
    overflowing,
    scores,
    softmax,
    up_to,
)
from numpy.typing import NDArray
from rungs import DTYPES, Rung, devices

import attnlib

Array = NDArray[Any]

BLOCK = 16
L, S, E, E_V, H = 19, 35, 3, 2, 5

BLOCKS = {
    "numpy_blockwise": (("block_size", BLOCK),),
    "torch_blockwise": (("block_size_q", BLOCK), ("block_size_k", BLOCK)),
    "torch_decoding": (("block_size_k", BLOCK),),
}
RUNGS = [Rung(name, devices(name)[0], BLOCKS.get(name, ())) for name in attnlib.implementations()]


def on(rungs: list[Rung]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("rung", rungs, ids=lambda rung: rung.name)


every_rung = on(RUNGS)
every_rung_with_gradients = on([rung for rung in RUNGS if rung.on_tensors])
every_rung_in_blocks = on([r for r in RUNGS if r.blocks or r.name == "triton_fused"])


def inputs(n_queries: int = L, n_keys: int = S, heads: tuple[int, ...] = (2,)) -> list[Array]:
    """Return query, key, value and a gradient of the output."""
    return drawn(
        (*heads, n_queries, E), (*heads, n_keys, E), (*heads, n_keys, E_V), (*heads, n_queries, E_V)
    )


# -- forward ---------------------------------------------------------------------------------------


@every_rung
def test_scores_are_divided_by_the_root_of_d_k(rung: Rung) -> None:
    query, key, value, _ = inputs(heads=(H,))
    products = query @ key.mT

    def divided_by(divisor: float) -> Array:
        return softmax(products / divisor) @ value

    wrong = [
        ("scores are not divided at all", divided_by(1)),
        ("scores are divided by d_k", divided_by(E)),
        ("scores are divided by the root of d_model", divided_by((H * E) ** 0.5)),
        ("scores are divided by d_model", divided_by(H * E)),
        ("scores are multiplied by the root of d_k", divided_by(E**-0.5)),
    ]
    hold(rung, rung(query, key, value), divided_by(E**0.5), wrong)


@every_rung
def test_the_softmax_runs_along_the_keys(rung: Rung) -> None:
    query, key, value, _ = inputs(BLOCK, BLOCK)
    s = scores(query, key)
    powers = np.exp(s - s.max(-1, keepdims=True))
    by_query = softmax(s, axis=-2) @ value
    crossed = powers @ value / powers.sum(-2)[..., None]
    words = "the softmax runs along the queries"
    wrong = [(words, by_query), (words, crossed)]
    hold(rung, rung(query, key, value), softmax(s) @ value, wrong)


@every_rung
def test_the_largest_score_is_subtracted_before_exp(rung: Rung) -> None:
    query, key = np.ones((1, 4)), np.array([[500.0] * 4, [500.25] * 4])
    value = np.array([[4.0], [8.0]])
    got = overflowing(lambda: rung(query, key, value), (1, 1))
    right = softmax(np.array([[1000.0, 1000.5]])) @ value
    words = "exp overflows, the largest score was not subtracted"
    hold(rung, got, right, [(words, [[np.nan]])])


def climbing() -> tuple[list[Array], Array]:
    """Return inputs whose scores are higher in every block than in those before, and the scores."""
    query, key, value, _ = inputs(heads=())
    query[:] = 1
    key += 20.0 * (np.arange(S) // BLOCK)[:, None]
    value[:BLOCK] *= 1e3
    return [query, key, value], scores(query, key)


@every_rung_in_blocks
def test_a_larger_score_rescales_what_was_added_up_before_it(rung: Rung) -> None:
    arrays, s = climbing()
    value = arrays[2]
    wrong = [
        ("the row sum is not rescaled", fold(s, value, BLOCK, keep_sum=True)),
        ("the output is not rescaled", fold(s, value, BLOCK, keep_output=True)),
    ]
    hold(rung, rung(*arrays), softmax(s) @ value, wrong)


@every_rung
def test_every_key_takes_part_once(rung: Rung) -> None:
    query, key, value, _ = inputs(BLOCK, S)
    s = scores(query, key)
    j = np.arange(S)

    def without(keys: Any) -> Array:
        return softmax(masked(s, ~np.isin(j, j[keys]))) @ value

    tail = S - S % BLOCK
    blocks = [slice(start, start + BLOCK) for start in range(0, tail, BLOCK)]
    wrong = [
        ("the last key is left out", without(slice(S - 1, S))),
        ("the first key is left out", without(slice(1))),
        ("the last block, which is shorter, is left out", without(slice(tail, S))),
        *(("a block of keys is skipped", without(block)) for block in blocks),
    ]
    hold(rung, rung(query, key, value), softmax(s) @ value, wrong)


@every_rung
def test_every_query_gets_its_row(rung: Rung) -> None:
    query, key, value, _ = inputs(S, L, heads=())
    right = softmax(scores(query, key)) @ value
    got = rung(query, key, value)
    late = np.arange(S) >= S - S % BLOCK
    hold(rung, got[..., ~late, :], right[..., ~late, :], [])
    words = "the last block of queries, which is shorter, is left out"
    hold(rung, got[..., late, :], right[..., late, :], [], otherwise=words)


@every_rung
def test_a_causal_row_ends_with_its_own_key(rung: Rung) -> None:
    query, key, value, _ = inputs(S, S)
    s = scores(query, key)

    def seeing(part: Array) -> Array:
        return softmax(masked(s, part)) @ value

    late = "a query sees the key after its own"
    wrong = [
        ("a query does not see its own key", seeing(up_to(S, S, -1))),
        (late, seeing(up_to(S, S, 1))),
        (late, seeing(up_to(S, S, 1, BLOCK))),
        ("the future of a block is seen", seeing(up_to(S, S, BLOCK, BLOCK))),
        ("nothing is removed", seeing(up_to(S, S, S))),
    ]
    hold(rung, rung(query, key, value, is_causal=True), seeing(up_to(S, S)), wrong)


@every_rung
def test_a_row_begins_with_the_first_key_of_its_window(rung: Rung) -> None:
    query, key, value, _ = inputs(S, S)
    s = scores(query, key)

    def seeing(left: int) -> Array:
        return softmax(masked(s, up_to(S, S) & ~up_to(S, S, -left - 1))) @ value

    wrong = [
        ("a query sees a key before its window", seeing(BLOCK + 2)),
        ("a query does not see the first key of its window", seeing(BLOCK)),
        ("a window has no beginning", seeing(S)),
    ]
    found = rung(query, key, value, is_causal=True, window=(BLOCK + 1, None))
    hold(rung, found, seeing(BLOCK + 1), wrong)


@every_rung
@pytest.mark.parametrize("more", ["keys", "queries"])
def test_causal_rows_begin_at_the_first_key(rung: Rung, more: str) -> None:
    n_queries, n_keys = (L, S) if more == "keys" else (S, L)
    query, key, value, _ = inputs(n_queries, n_keys)
    s = scores(query, key)
    right = softmax(masked(s, up_to(n_queries, n_keys))) @ value
    other = softmax(masked(s, up_to(n_queries, n_keys, n_keys - n_queries))) @ value
    words = "the causal mask is aligned at the bottom right"
    hold(rung, rung(query, key, value, is_causal=True), right, [(words, other)])


@every_rung
def test_true_in_a_mask_takes_part(rung: Rung) -> None:
    query, key, value, _ = inputs()
    mask = np.random.default_rng(3).random((L, S)) < 0.6
    s = scores(query, key)
    tiled = mask[np.arange(L)[:, None] % BLOCK, np.arange(S) % BLOCK]
    wrong = [
        ("every block reads the first tile of the mask", softmax(masked(s, tiled)) @ value),
        ("True removes", softmax(masked(s, ~mask)) @ value),
        ("the mask is not looked at", softmax(s) @ value),
        ("False only lowers the score by 1", softmax(s - ~mask) @ value),
    ]
    hold(rung, rung(query, key, value, mask), softmax(masked(s, mask)) @ value, wrong)


@every_rung
def test_a_floating_mask_is_added_to_scaled_scores(rung: Rung) -> None:
    query, key, value, _ = inputs()
    (mask,) = drawn((L, S), seed=3)
    s = scores(query, key)
    wrong = [
        ("the mask is added before scaling", softmax(s + mask / E**0.5) @ value),
        ("the mask is subtracted", softmax(s - mask) @ value),
        ("the mask is not looked at", softmax(s) @ value),
        ("the mask is multiplied in", softmax(s * mask) @ value),
    ]
    hold(rung, rung(query, key, value, mask), softmax(s + mask) @ value, wrong)


@every_rung
def test_an_empty_row_gives_zeros(rung: Rung) -> None:
    query, key, value, _ = inputs(heads=())
    mask = np.ones((L, S), dtype=bool)
    mask[1] = False
    right = softmax(masked(scores(query, key), mask)) @ value
    spoilt, mean = right.copy(), right.copy()
    spoilt[1], mean[1] = np.nan, value.mean(0)
    wrong = [
        ("an empty row gives NaN", spoilt),
        ("an empty row gives the mean of all values", mean),
    ]
    hold(rung, rung(query, key, value, mask), right, wrong)


@every_rung
def test_neighbouring_heads_share_a_key_head(rung: Rung) -> None:
    query, key, value, _ = drawn((6, L, E), (2, S, E), (2, S, E_V), (1,))
    neighbours, tiled = ([h // 3 for h in range(6)], [h % 2 for h in range(6)])

    def sharing(heads: list[int]) -> Array:
        return softmax(scores(query, heads_apart(key, heads))) @ heads_apart(value, heads)

    wrong = [
        ("key heads are dealt out by tile: h % H_kv", sharing(tiled)),
        ("all heads use the first key head", sharing([0] * 6)),
    ]
    hold(rung, rung(query, key, value, enable_gqa=True), sharing(neighbours), wrong)


@every_rung
def test_the_log_sum_exp_is_natural_and_complete(rung: Rung) -> None:
    query, key, value, _ = inputs()
    s = scores(query, key)
    right = log_sum_exp(s)
    wrong = [
        ("the log-sum-exp is in base 2", right / np.log(2)),
        ("the log-sum-exp lacks the largest score", right - s.max(-1)),
        ("the log-sum-exp lacks the largest score", right - s[..., :BLOCK].max(-1)),
        ("the log-sum-exp is the largest score", s.max(-1)),
    ]
    hold(rung, rung.with_lse(query, key, value)[1], right, wrong)


@every_rung
def test_what_no_query_may_see_is_not_read(rung: Rung) -> None:
    query, key, value, _ = inputs(heads=())
    mask = np.arange(S) != 3
    right = softmax(masked(scores(query, key), mask)) @ value
    for name, array in (("key", key), ("value", value)):
        clean = array.copy()
        array[3] = np.nan
        words = f"NaN of a {name} that is removed comes out"
        hold(rung, rung(query, key, value, mask), right, [], otherwise=words)
        array[:] = clean


@every_rung
def test_nan_in_what_takes_part_comes_out(rung: Rung) -> None:
    query, key, value, _ = inputs(heads=())
    key[4, 1] = np.nan
    got = rung(query, key, value)
    hold(rung, got, np.full_like(got, np.nan), [], otherwise="a NaN that takes part is lost")


@every_rung
def test_half_precision_is_added_up_in_float32(rung: Rung) -> None:
    half = DTYPES["float16"]
    words = "half precision is rounded on the way, and not once at the end"
    # 2048 + 1 is 2048 in float16: 62 ones between two large numbers that cancel.
    value = np.ones((64, 1), half)
    value[0], value[-1] = 2048, -2048
    zeros = np.zeros((64, 1), half)
    got, lse = rung.with_lse(zeros, zeros, value)
    hold(rung, got, np.full((64, 1), 62 / 64).astype(half), [], otherwise=words)
    lost = np.full(64, np.log(64)).astype(half)
    hold(rung, lse.astype(half), lost, [], otherwise=words)
    hold(rung, np.abs(lse - np.log(64)).max() < 1e-6, True, [], otherwise=words)
    if rung.rounds_once:
        arrays = [array.astype(half) for array in inputs()[:3]]
        wide = rung(*(array.astype(np.float32) for array in arrays)).astype(half)
        hold(rung, rung(*arrays), wide, [], otherwise=words)


# -- backward --------------------------------------------------------------------------------------


@every_rung_with_gradients
def test_row_sums_are_subtracted_from_the_gradient_of_weights(rung: Rung) -> None:
    arrays = inputs(heads=())
    found, right = rung.gradients(*arrays), gradients(*arrays)
    without = gradients(*arrays, delta=False)
    for name in ("query", "key"):
        wrong = [("D = rowsum(dO ∘ O) is left out", without[name])]
        hold(rung, found[name], right[name], wrong)


@every_rung_with_gradients
@pytest.mark.parametrize("name", ["key", "value"])
def test_a_shared_key_head_gathers_from_its_group(rung: Rung, name: str) -> None:
    n_queries = 11  # one block, of which each head of the group has one
    query, key, value, upstream = drawn(
        (6, n_queries, E), (2, S, E), (2, S, E_V), (6, n_queries, E_V)
    )
    heads = [h // 3 for h in range(6)]
    apart = query, heads_apart(key, heads), heads_apart(value, heads), upstream
    each = gradients(*apart)[name].reshape(2, 3, S, -1)
    wrong = [
        (f"the gradient of the {name} is not summed over the group", each[:, member])
        for member in range(3)
    ]
    found = rung.gradients(query, key, value, upstream, enable_gqa=True)
    words = f"the gradient of the {name} is summed over the wrong heads"
    hold(rung, found[name], each.sum(1), wrong, otherwise=words)


@every_rung_with_gradients
@pytest.mark.parametrize("name", ["query", "key", "value"])
def test_no_block_is_skipped_backwards(rung: Rung, name: str) -> None:
    arrays = inputs(S, S, heads=())
    right = gradients(*arrays)[name]
    blocks = [slice(start, start + BLOCK) for start in range(0, S, BLOCK)]
    skipped = [gradients(*arrays, skip_keys=b, skip_queries=b)[name] for b in blocks]
    words = f"the gradient of the {name} misses a block"
    hold(rung, rung.gradients(*arrays)[name], right, [(words, wrong) for wrong in skipped])


@every_rung_with_gradients
@pytest.mark.parametrize("name", ["query", "key"])
def test_the_gradients_of_query_and_key_are_scaled_once(rung: Rung, name: str) -> None:
    arrays = inputs(heads=())
    right = gradients(*arrays)[name]
    wrong = [
        (f"the gradient of the {name} is not scaled", right * E**0.5),
        (f"the gradient of the {name} is scaled twice", right * E**-0.5),
    ]
    hold(rung, rung.gradients(*arrays)[name], right, wrong)


@every_rung_with_gradients
def test_the_gradient_of_the_log_sum_exp_is_added(rung: Rung) -> None:
    arrays = inputs(heads=())
    (above,) = drawn((L,), seed=3)
    right = gradients(*arrays, lse_upstream=above)["query"]
    wrong = [
        ("the gradient of the log-sum-exp is left out", gradients(*arrays)["query"]),
        (
            "the gradient of the log-sum-exp is subtracted",
            gradients(*arrays, lse_upstream=-above)["query"],
        ),
    ]
    hold(rung, rung.gradients(*arrays, None, above)["query"], right, wrong)


@every_rung_with_gradients
def test_an_empty_row_has_a_gradient_of_zero(rung: Rung) -> None:
    query, key, value, upstream = inputs(heads=())
    mask = np.ones((L, S), dtype=bool)
    mask[1] = False
    found = rung.gradients(query, key, value, upstream, mask)
    kept = np.arange(L) != 1
    right = gradients(query[kept], key, value, upstream[kept])
    right["query"] = np.insert(right["query"], 1, 0, axis=0)
    for name in ("query", "key", "value"):
        words = f"an empty row spoils the gradient of the {name}"
        hold(rung, found[name], right[name], [], otherwise=words)


@every_rung_with_gradients
def test_the_gradient_of_a_mask_is_not_scaled(rung: Rung) -> None:
    query, key, value, upstream = inputs(heads=())
    (mask,) = drawn((S,), seed=3)
    weights = softmax(scores(query, key) + mask)
    row = (upstream * (weights @ value)).sum(-1, keepdims=True)
    d_scores = weights * (upstream @ value.T - row)
    wrong = [
        ("the gradient of the mask is scaled", d_scores.sum(0) * E**-0.5),
        ("the gradient of the mask is that of the last query", d_scores[-1]),
        ("the gradient of the mask lacks the row sums", (weights * (upstream @ value.T)).sum(0)),
    ]
    found = rung.gradients(query, key, value, upstream, mask)
    hold(rung, found["attn_mask"], d_scores.sum(0), wrong)


@every_rung_with_gradients
def test_a_causal_gradient_stops_at_the_diagonal(rung: Rung) -> None:
    query, key, value, upstream = inputs(S, S, heads=())
    s, late = scores(query, key), np.arange(S)
    weights = softmax(masked(s, up_to(S, S)))
    found = rung.gradients(query, key, value, upstream, is_causal=True)
    wrong = [
        ("a query gives no gradient to its own value", np.tril(weights, -1).T @ upstream),
        ("a query gives a gradient to the future", softmax(s).T @ upstream),
        *(
            (
                "the gradient of the value misses a block of queries",
                weights[rest].T @ upstream[rest],
            )
            for rest in (late < BLOCK, late >= BLOCK, late < 2 * BLOCK)
        ),
    ]
    hold(rung, found["value"], weights.T @ upstream, wrong)
