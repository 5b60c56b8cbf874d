"""Cases of the topics dtypes and numbers: precision, NaN, infinity and the largest numbers."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from attncheck._calls import NOT_FLOAT16, B, Call, Case, Draw, E, Given, H, L, S, Setting, rounded
from attncheck._definition import allowed_keys
from attncheck._draws import case, heads, inputs, random_bias, random_mask, shaped, with_mask
from attncheck._types import BOTTOM_RIGHT, CAUSAL, GROUPED, HALF, Array


def dtypes() -> Iterator[Case]:
    """Yield the cases of the topic dtypes, which come in every dtype unless told otherwise."""
    yield case("a batch of heads", shaped(), everywhere=True)
    yield case("causal", shaped(options=CAUSAL), "causal", everywhere=True)
    yield case("a boolean mask", with_mask(random_mask((B, H, L, S))), "masks")
    added = random_bias((B, H, L, S))
    yield case("a floating mask", with_mask(added), "masks")
    name = "a float32 mask beside half precision"
    yield case(name, with_mask(added, "float32"), "masks", dtypes=HALF)
    draw = shaped((6, L, E), (2, S, E), options=GROUPED)
    yield case("6 query heads, 2 key heads", draw, "groups")
    yield case("one head dimension for all", heads())
    yield case("scale=-0.7", heads(options={"scale": -0.7}))
    yield case("131 queries and 149 keys", heads(131, 149))
    yield case("a score of 780,000, beyond the largest float16", _beyond_float16)
    yield case("4,096 equal weights add up in float32", _many_equal_weights, dtypes=HALF)


def _beyond_float16(setting: Setting) -> Call:
    one = np.ones(setting.shape((1, 1, 1, E)))
    value = np.ones(setting.shape(setting.value((1, 1, 1, E))))
    given = inputs(setting, 200 * one, 300 * one, value)
    scale = 13 / setting.head_dims[0]
    return Call(given, {"scale": scale}, truth=value, peer=value, size=8.0)


def _many_equal_weights(setting: Setting) -> Call:
    """In half precision a sum of small terms stops growing, at 256 or at 2,048 times a term.

    The number of keys is a power of 2, so that half precision can hold the weights: a kernel that
    rounds them, and adds them up in float32, is right to the last bit.
    """
    n_keys = 4096
    one = np.ones(setting.shape((1, 1, 1, E)))
    ones = np.ones(setting.shape(setting.value((1, 1, 1, E))))
    value = np.repeat([0.0, 1.0], [n_keys // 4, 3 * n_keys // 4])[None, None, :, None] * ones
    given = inputs(setting, 0 * one, np.repeat(one, n_keys, axis=-2), value)
    return Call(given, truth=0.75 * ones, peer=0.75 * ones)


def numbers() -> Iterator[Case]:
    """Yield the cases of the topic numbers."""
    for where, bad in product(("query", "key", "value"), (np.nan, np.inf)):
        name = f"{bad} in one number of the {where} comes out where it takes part"
        yield case(name, with_bad_number(where, bad))
    name = "nan in one number of the query comes out, 70 keys"
    yield case(name, with_bad_number("query", np.nan, 70))
    for bad, additive in product((np.nan, np.inf, -np.inf), (False, True)):
        kind = "floating" if additive else "boolean"
        name = f"{bad} in keys and values that a {kind} mask removes changes nothing"
        yield case(name, bad_removed_keys(bad, additive), "masks")
    name = "NaN in a key of the future changes nothing in the past"
    yield case(name, _nan_in_the_future, "causal")
    for n, window in ((L, (1, 1)), (131, (3, 0))):
        name = f"NaN in a key outside of a window changes nothing, window={window}, {n} keys"
        yield case(name, _nan_outside(n, {"window": window}), "windows")
    draw = _nan_outside(131, {"window": (3, 0), **BOTTOM_RIGHT}, n_queries=1)
    name = "NaN in all keys outside of the window of the last query changes nothing"
    yield case(name, draw, "windows", "bottom-right")
    name = "NaN in a query row whose keys are all removed gives zeros"
    yield case(name, _nan_in_an_empty_row, "masks", "empty")
    for way in ("is_causal", "a boolean mask", "a floating mask"):
        name = f"a key removed by {way} never wins, not even against scores of -1e12"
        need = "causal" if way == "is_causal" else "masks"
        yield case(name, _never_wins(way), need, dtypes=NOT_FLOAT16)
    name = "scores of -3e38, all alike, give the mean of the values"
    yield case(name, _equal_scores, "masks", dtypes=NOT_FLOAT16)
    for score in (-3e38, -2.5e38, 2.5e38, 3e38):
        name = f"one key has the weight 1 for a score of {score:g}"
        yield case(name, _one_key(score), dtypes=NOT_FLOAT16)
    for sign, word in ((1.0, "one sign"), (None, "either sign")):
        name = f"values near the largest number, of {word}, have a finite mean"
        yield case(name, _near_the_largest(sign), dtypes=("float32", "float64"))


def with_bad_number(where: str, bad: float, n_keys: int = S) -> Draw:
    """Return the function that draws a call with NaN or ∞ in one number of an argument."""

    def draw(setting: Setting) -> Call:
        call = heads(L, n_keys)(setting)
        call.given[where].numbers[0, 1, 3, 2] = bad
        return call

    return draw


def bad_removed_keys(bad: float, additive: bool = False) -> Draw:
    """Return the function that draws a call with NaN or ∞ in keys and values that are removed."""

    def draw(setting: Setting) -> Call:
        call = _with_bad_keys(heads()(setting), [2, 6], bad)
        kept = np.ones((L, S), dtype=bool)
        kept[:, [2, 6]] = False
        floating = Given(np.where(kept, 0.0, -np.inf), setting.dtype)
        mask = floating if additive else Given(kept, "bool")
        return replace(call, given=call.given | {"attn_mask": mask})

    return draw


def _with_bad_keys(call: Call, keys: Any, bad: float) -> Call:
    """Return a call with NaN or ∞ in these keys and their values, which must not matter."""
    clean = {name: own.numbers.copy() for name, own in call.given.items()}
    for name in ("key", "value"):
        call.given[name].numbers[..., keys, :] = bad
    return replace(call, meant=clean)


def _nan_in_the_future(setting: Setting) -> Call:
    call = heads(L, L, CAUSAL)(setting)
    call.given["key"].numbers[..., 3, :] = np.nan
    return call


def _nan_outside(n_keys: int, options: dict[str, Any], n_queries: int = L) -> Draw:
    """Return what draws a call whose keys and values are NaN where no query sees them."""

    def draw(setting: Setting) -> Call:
        seen = allowed_keys(n_queries, n_keys, **options)
        assert seen is not None
        call = heads(n_queries, n_keys, options)(setting)
        return _with_bad_keys(call, ~seen.any(axis=0), np.nan)

    return draw


def _nan_in_an_empty_row(setting: Setting) -> Call:
    given = heads()(setting).given
    given["query"].numbers[..., 2, :] = np.nan
    kept = np.repeat(np.arange(L)[:, None] != 2, S, axis=1)
    return Call(given | {"attn_mask": Given(kept, "bool")})


def _first_feature(setting: Setting, *columns: Array) -> list[Array]:
    """Return arrays with E features, of which all but the first are 0."""
    wide = [np.zeros((*column.shape, setting.head_dims[0])) for column in columns]
    for array, column in zip(wide, columns, strict=True):
        array[..., 0] = column
    return wide


def _never_wins(way: str) -> Draw:
    def draw(setting: Setting) -> Call:
        dtype = setting.dtype
        tops = [float(rounded(np.array([top]), dtype)[0]) for top in (1e6, -1e6)]
        columns = [np.full((1, B, L), top) for top in tops]
        columns[1][..., 3:] = 0
        query, key = _first_feature(setting, *columns)
        (value,) = setting.drawn(setting.value((1, B, L, E)))
        given = inputs(setting, query, key, value)
        # All scores of a row are equal or out of reach, so that they bring no error.
        size = 4 * L * float(np.abs(value).max())
        if way == "is_causal":
            return Call(given, CAUSAL, size=size)
        allowed = np.tri(L, dtype=bool)
        floating = Given(np.where(allowed, 0.0, -np.inf), dtype)
        mask = Given(allowed, "bool") if way == "a boolean mask" else floating
        return Call(given | {"attn_mask": mask}, size=size)

    return draw


def _equal_scores(setting: Setting) -> Call:
    given = heads()(setting).given
    given["query"].numbers[:] = 0
    low = Given(rounded(np.full((L, S), -3e38), setting.dtype), setting.dtype)
    size = 4 * S * float(np.abs(given["value"].numbers).max())
    return Call(given | {"attn_mask": low}, size=size)


def _one_key(score: float) -> Draw:
    def draw(setting: Setting) -> Call:
        top = float(rounded(np.array([score]), setting.dtype)[0])
        query, key = _first_feature(setting, np.full((1, 1, 1), top), np.ones((1, 1, 1)))
        truth = np.full(setting.shape(setting.value((1, 1, 1, E))), 5.0)
        given = inputs(setting, query, key, truth)
        return Call(given, {"scale": 1.0}, truth=truth, size=8.0)

    return draw


def _near_the_largest(sign: float | None) -> Draw:
    def draw(setting: Setting) -> Call:
        shapes = (1, B, L, E), (1, B, 19, E), setting.value((1, B, 19, E))
        query, key, signs = setting.drawn(*shapes)
        signs = np.sign(signs) if sign is None else np.full_like(signs, sign)
        top = 0.999 * float(np.finfo(setting.dtype).max)
        largest = rounded(np.array(top), setting.dtype)
        return Call(inputs(setting, query, key, largest * signs))

    return draw
