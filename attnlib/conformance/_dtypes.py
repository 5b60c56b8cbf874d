"""Cases of the topics dtypes and numbers: precision, NaN, infinity and the largest numbers."""

from collections.abc import Iterator
from itertools import product

import numpy as np

from attnlib._checks import HALF, Array
from attnlib.conformance._calls import (
    NOT_FLOAT16,
    B,
    Call,
    Case,
    Draw,
    E,
    Given,
    H,
    L,
    S,
    drawn,
    heads,
    random_mask,
    rounded,
    shaped,
    with_mask,
)
from attnlib.conformance._tolerance import forward_size


def dtypes() -> Iterator[Case]:
    """Yield the cases of the topic dtypes, which come in every dtype unless told otherwise."""
    yield Case("dtypes", "a batch of heads", shaped())
    yield Case("dtypes", "causal", shaped(options={"is_causal": True}), ("causal",))
    yield Case("dtypes", "a boolean mask", with_mask(random_mask((B, H, L, S))), ("masks",))
    (added,) = drawn((B, H, L, S), seed=3)
    yield Case("dtypes", "a floating mask", with_mask(added), ("masks",))
    name = "a float32 mask beside half precision"
    yield Case("dtypes", name, with_mask(added, "float32"), ("masks",), dtypes=HALF)
    draw = shaped((6, L, E), (2, S, E), options={"enable_gqa": True})
    yield Case("dtypes", "6 query heads, 2 key heads", draw, ("groups",))
    yield Case("dtypes", "one head dimension for all", heads())
    yield Case("dtypes", "scale=-0.7", heads(options={"scale": -0.7}))
    yield Case("dtypes", "131 queries and 149 keys", heads(131, 149))
    name = "a score of 780,000, beyond the largest float16"
    yield Case("dtypes", name, _beyond_float16)
    name = "4,096 equal weights add up in float32"
    yield Case("dtypes", name, _many_equal_weights, dtypes=HALF)


def _beyond_float16(dtype: str) -> Call:
    one = np.ones((1, 1, 1, E))
    given = _given(dtype, 200 * one, 300 * one, one)
    return Call(given, {"scale": 1.0}, truth=one, peer=one, size=8.0)


def _many_equal_weights(dtype: str) -> Call:
    """In half precision a sum of small terms stops growing, at 256 or at 2,048 times a term.

    The number of keys is a power of 2, so that half precision can hold the weights: a kernel that
    rounds them, and adds them up in float32, is right to the last bit.
    """
    n_keys = 4096
    value = np.repeat([0.0, 1.0], n_keys // 2)[None, None, :, None] * np.ones(3)
    given = _given(dtype, np.zeros((1, 1, 1, 3)), np.ones((1, 1, n_keys, 3)), value)
    half = np.full((1, 1, 1, 3), 0.5)
    return Call(given, truth=half, peer=half)


def numbers() -> Iterator[Case]:
    """Yield the cases of the topic numbers."""
    for where in ("query", "key", "value"):
        for bad in (np.nan, np.inf):
            name = f"{bad} in one number of the {where} comes out where it takes part"
            yield Case("numbers", name, with_bad_number(where, bad))
    for bad, additive in product((np.nan, np.inf, -np.inf), (False, True)):
        kind = "floating" if additive else "boolean"
        name = f"{bad} in keys and values that a {kind} mask removes changes nothing"
        yield Case("numbers", name, bad_removed_keys(bad, additive), ("masks",))
    name = "NaN in a key of the future changes nothing in the past"
    yield Case("numbers", name, _nan_in_the_future, ("causal",))
    name = "NaN in a query row whose keys are all removed gives zeros"
    yield Case("numbers", name, _nan_in_an_empty_row, ("masks", "empty"))
    for way in ("is_causal", "a boolean mask", "a floating mask"):
        name = f"a key removed by {way} never wins, not even against scores of -1e12"
        needs = ("causal",) if way == "is_causal" else ("masks",)
        yield Case("numbers", name, _never_wins(way), needs, dtypes=NOT_FLOAT16)
    name = "scores of -3e38, all alike, give the mean of the values"
    yield Case("numbers", name, _equal_scores, ("masks",), dtypes=NOT_FLOAT16)
    for score in (-3e38, -2.5e38, 2.5e38, 3e38):
        name = f"one key has the weight 1 for a score of {score:g}"
        yield Case("numbers", name, _one_key(score), dtypes=NOT_FLOAT16)
    for sign, word in ((1.0, "one sign"), (None, "either sign")):
        name = f"values near the largest number, of {word}, have a finite mean"
        yield Case("numbers", name, _near_the_largest(sign), dtypes=("float32", "float64"))


def usual_inputs(dtype: str) -> dict[str, Given]:
    """Return query, key and value as most kernels take them: batch, heads, one E for all."""
    return heads()(dtype).given


def with_bad_number(where: str, bad: float) -> Draw:
    """Return the function that draws a call with NaN or ∞ in one number of an argument."""

    def draw(dtype: str) -> Call:
        given = usual_inputs(dtype)
        given[where].numbers[0, 1, 3, 2] = bad
        return Call(given)

    return draw


def bad_removed_keys(bad: float, additive: bool = False) -> Draw:
    """Return the function that draws a call with NaN or ∞ in keys and values that are removed."""

    def draw(dtype: str) -> Call:
        given = usual_inputs(dtype)
        clean = {name: own.numbers.copy() for name, own in given.items()}
        for name in ("key", "value"):
            given[name].numbers[..., [2, 6], :] = bad
        kept = np.ones((L, S), dtype=bool)
        kept[:, [2, 6]] = False
        mask = Given(np.where(kept, 0.0, -np.inf), dtype) if additive else Given(kept, "bool")
        return Call(given | {"attn_mask": mask}, meant=clean)

    return draw


def _nan_in_the_future(dtype: str) -> Call:
    given = usual_inputs(dtype)
    given["key"].numbers[..., 3, :] = np.nan
    return Call(given, {"is_causal": True})


def _nan_in_an_empty_row(dtype: str) -> Call:
    given = usual_inputs(dtype)
    given["query"].numbers[..., 2, :] = np.nan
    kept = np.repeat(np.arange(L)[:, None] != 2, S, axis=1)
    return Call(given | {"attn_mask": Given(kept, "bool")})


def _never_wins(way: str) -> Draw:
    def draw(dtype: str) -> Call:
        query, key, value = drawn((1, B, L, 1), (1, B, L, 1), (1, B, L, 1), dtype=dtype)
        query[:], key[:] = rounded(np.array([1e6]), dtype), rounded(np.array([-1e6]), dtype)
        key[..., 3:, :] = 0
        given = _given(dtype, query, key, value)
        # All scores of a row are equal or out of reach, so that they bring no error.
        size = forward_size(np.zeros_like(query), key, value)
        if way == "is_causal":
            return Call(given, {"is_causal": True}, size=size)
        allowed = np.tri(L, dtype=bool)
        floating = Given(np.where(allowed, 0.0, -np.inf), dtype)
        mask = Given(allowed, "bool") if way == "a boolean mask" else floating
        return Call(given | {"attn_mask": mask}, size=size)

    return draw


def _given(dtype: str, query: Array, key: Array, value: Array) -> dict[str, Given]:
    arrays = {"query": query, "key": key, "value": value}
    return {name: Given(array, dtype) for name, array in arrays.items()}


def _equal_scores(dtype: str) -> Call:
    given = usual_inputs(dtype)
    given["query"].numbers[:] = 0
    low = Given(rounded(np.full((L, S), -3e38), dtype), dtype)
    query, key, value = (own.numbers for own in given.values())
    size = forward_size(query, key, value)
    return Call(given | {"attn_mask": low}, size=size)


def _one_key(score: float) -> Draw:
    def draw(dtype: str) -> Call:
        query, one = rounded(np.full((1, 1, 1, 1), score), dtype), np.ones((1, 1, 1, 1))
        truth = 5 * one
        return Call(_given(dtype, query, one, truth), {"scale": 1.0}, truth=truth, size=8.0)

    return draw


def _near_the_largest(sign: float | None) -> Draw:
    def draw(dtype: str) -> Call:
        query, key, signs = drawn((1, B, L, E), (1, B, 19, E), (1, B, 19, E), dtype=dtype)
        signs = np.sign(signs) if sign is None else np.full_like(signs, sign)
        largest = rounded(np.array(0.999 * float(np.finfo(dtype).max)), dtype)
        return Call(_given(dtype, query, key, largest * signs))

    return draw
