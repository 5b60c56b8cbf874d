"""Cases of the topics lse, merge, documents, pages, sinks and soft cap: what servers ask for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from attncheck._calls import B, Call, Case, Documents, Draw, E, Given, H, L, Pages, S, Setting
from attncheck._draws import case, changed, heads, qkv, random_bias, random_mask, shaped, with_mask
from attncheck._gradients import graded, with_upstream
from attncheck._shapes import LARGE_SCORES, TWO_EMPTY_ROWS, large_scores
from attncheck._types import BOTTOM_RIGHT, CAUSAL, GROUPED, Array, dtype_of_sums


def lse() -> Iterator[Case]:
    """Yield the cases of the topic lse."""

    def own(name: str, draw: Draw, *needs: str, **more: Any) -> Case:
        return case(name, changed(draw, lse=True), *needs, **more)

    yield own("a batch of heads", shaped(), everywhere=True)
    yield own("8 queries, 131 keys", heads(8, 131), everywhere=True)
    yield own("1 query, 131 keys", heads(1, 131), everywhere=True)
    yield own("causal", heads(L, L, CAUSAL), "causal")
    yield own("causal, 70 queries and keys", heads(70, 70, CAUSAL), "causal", everywhere=True)
    draw = heads(7, 17, CAUSAL | BOTTOM_RIGHT)
    yield own("causal at the bottom right", draw, "causal", "bottom-right")
    yield own("a window", heads(L, L, {"window": (2, 0)}), "windows")
    yield own("a boolean mask", with_mask(random_mask((L, S))), "masks")
    yield own("a floating mask", with_mask(random_bias((L, S))), "masks")
    yield own("scale=3.5", heads(options={"scale": 3.5}))
    draw = shaped((1, 6, L, E), (1, 2, S, E), (1, 2, S, E), GROUPED)
    yield own("6 query heads, 2 key heads", draw, "groups", everywhere=True)
    for name, draw in LARGE_SCORES.items():
        yield own(name, draw, dtypes=("float32", "float64"))
    draw = with_mask(TWO_EMPTY_ROWS)
    yield own("-∞ for a row that a boolean mask empties", draw, "masks", "empty")
    draw = heads(7, 5, CAUSAL | BOTTOM_RIGHT)
    yield own("-∞ for a row before the first key", draw, "causal", "bottom-right", "empty")
    for name, draw, needs in (
        ("a batch of heads", shaped(), ()),
        ("causal", heads(L, L, CAUSAL), ("causal",)),
        ("a boolean mask removes two rows", with_mask(TWO_EMPTY_ROWS), ("masks", "empty")),
        ("8 queries, 131 keys", heads(8, 131), ()),
    ):
        both = _with_lse_upstream(draw)
        whole = name == "a batch of heads"
        yield own(f"its gradient, {name}", both, *needs, kinds=("torch",), everywhere=whole)


def _with_lse_upstream(draw: Draw) -> Draw:
    above = with_upstream(draw)

    def both(setting: Setting) -> Call:
        call = above(setting)
        assert call.upstream is not None
        (numbers,) = setting.drawn(call.upstream.numbers.shape[:-1], salt=12)
        return replace(call, lse_upstream=Given(numbers, dtype_of_sums(setting.dtype)))

    return both


def merge() -> Iterator[Case]:
    """Yield the cases of the topic merge."""

    def own(name: str, draw: Draw, split: int, *needs: str, **more: Any) -> Case:
        return case(name, changed(draw, split=split), *needs, **more)

    yield own("7 keys, cut at 3", shaped(), 3, everywhere=True)
    yield own("131 keys, cut at 64", heads(8, 131), 64, everywhere=True)
    yield own("131 keys, cut at 130", heads(1, 131), 130)
    yield own("large scores", large_scores(1), 4, dtypes=("float32", "float64"))
    from_some = with_mask(np.arange(S) >= np.array([[4], [0], [3], [5], [1]]))
    yield own("one half has no key for some rows", from_some, 3, "masks", "empty")
    yield own("no half has a key for two rows", with_mask(TWO_EMPTY_ROWS), 3, "masks", "empty")
    yield graded("gradients, 7 keys, cut at 3", changed(shaped(), split=3), "gradients")
    draw = changed(heads(8, 131), split=64)
    yield graded("gradients, 131 keys, cut at 64", draw, "gradients")
    name, draw = "gradients, one half has no key for some rows", changed(from_some, split=3)
    yield graded(name, draw, "masks", "empty", "gradients")
    draw = changed(_with_lse_upstream(shaped()), split=3, lse=True)
    name = "gradients of output and log-sum-exp, 7 keys, cut at 3"
    yield case(name, draw, "gradients", kinds=("torch",))


FEW = Documents((5, 3, 4), (5, 3, 4))
# Of length 1 and 0, a tile, one more, and a few.
TEXTS = Documents((1, 0, 64, 65, 5), (1, 0, 64, 65, 5))
OTHERS = Documents((3, 1, 7, 2), (5, 16, 0, 70))
# In each text another number of keys more than queries, and no row that sees nothing.
AHEAD = Documents((2, 5, 3), (3, 9, 10))


def documents() -> Iterator[Case]:
    """Yield the cases of the topic documents."""

    def own(name: str, texts: Documents, options: dict[str, Any], *needs: str, **more: Any) -> Case:
        return case(name, packed(texts, options), *needs, **more)

    yield own("three texts", FEW, {}, everywhere=True)
    yield own("three texts, causal", FEW, CAUSAL, "causal", everywhere=True)
    yield own("lengths 1, 0, 64, 65 and 5", TEXTS, {})
    yield own("lengths 1, 0, 64, 65 and 5, causal", TEXTS, CAUSAL, "causal", everywhere=True)
    yield own("other lengths for keys, one of them 0", OTHERS, {}, "empty")
    last = CAUSAL | BOTTOM_RIGHT
    yield own("other lengths for keys, causal", OTHERS, last, "causal", "bottom-right", "empty")
    one = Documents((1, 1, 1), (17, 70, 5))
    yield own("one query for each text", one, last, "causal", "bottom-right", everywhere=True)
    name = "1, 4 and 7 keys more than queries"
    yield own(f"{name}, causal", AHEAD, last, "causal", "bottom-right", everywhere=True)
    yield own(f"{name}, causal at the top left", AHEAD, CAUSAL, "causal")
    ends = {"window": (3, 0)} | last
    yield own(f"{name}, a window", AHEAD, ends, "causal", "windows", "bottom-right")
    yield own("a window", TEXTS, {"window": (3, 0)} | BOTTOM_RIGHT, "windows", "bottom-right")
    yield own("one text", Documents((7,), (7,)), CAUSAL, "causal")
    yield case("NaN in one text changes no other", _nan_in_a_text)
    grouped = packed(FEW, CAUSAL | GROUPED, 6, 2)
    yield case("6 query heads, 2 key heads", grouped, "groups", "causal")
    for end, draw, needs in (
        ("", packed(FEW, CAUSAL), ("causal",)),
        (", other lengths", packed(TEXTS, {}), ()),
        (", other lengths for keys, one of them 0", packed(OTHERS, {}), ("empty",)),
        (f", {name}, causal", packed(AHEAD, last), ("causal", "bottom-right")),
        (", 6 query heads, 2 key heads", grouped, ("causal", "groups")),
        (f", {name}, 6 query heads, 2 key heads", packed(AHEAD, GROUPED, 6, 2), ("groups",)),
    ):
        yield graded(f"gradients{end}", draw, *needs, "gradients")


def packed(
    texts: Documents, options: dict[str, Any], n_heads: int = H, n_key_heads: int = H
) -> Draw:
    """Return the function that draws a call of texts in a row."""

    def draw(setting: Setting) -> Call:
        query, key = (n_heads, sum(texts.queries), E), (n_key_heads, sum(texts.keys), E)
        return Call(qkv(setting, query, key, key), options, documents=texts)

    return draw


def _nan_in_a_text(setting: Setting) -> Call:
    call = packed(FEW, {})(setting)
    for name in ("key", "value"):
        call.given[name].numbers[:, 5:8] = np.nan
    return call


def pages() -> Iterator[Case]:
    """Yield the cases of the topic pages."""
    yield case("one query, lengths within pages", paged(1, (0.5, 2.25)), everywhere=True)
    yield case("one query, whole pages", paged(1, (1, 3)))
    yield case("lengths of 1, and of a page and one", paged(1, (0.0, 1.0), plus=1))
    yield case("lengths of pages less one", paged(1, (2.0, 3.0), plus=-1))
    yield case("lengths of pages and one", paged(1, (2.0, 3.0), plus=1))
    yield case("many pages", paged(1, (9.5, 4.25, 11)), everywhere=True)
    draw = paged(1, (4.5, 3.25, 5), in_turn=True)
    yield case("pages of the sequences in turn, from the last to the first", draw)
    yield case("one sequence", paged(1, (2.5,)))
    yield case("pages that two sequences share", paged(1, (2.5, 2.25), shared=True))
    draw = paged(3, (1.5, 2.25), CAUSAL | BOTTOM_RIGHT)
    yield case("three queries, causal", draw, "causal", "bottom-right")
    draw = paged(1, (2.5, 1.25), GROUPED, 6, 2)
    yield case("6 query heads, 2 key heads", draw, "groups", everywhere=True)
    draw = paged(1, (3.5, 2.25), {"window": (3, 0)} | BOTTOM_RIGHT)
    yield case("a window", draw, "windows", "bottom-right")


def paged(
    n_queries: int, filled: tuple[float, ...], options: dict[str, Any] | None = None,
    n_heads: int = H, n_key_heads: int = H, *, plus: int = 0, shared: bool = False,
    in_turn: bool = False,
) -> Draw:
    """Return what draws queries beside keys in pages, as many pages as `filled` says.

    The pages of a sequence are in no order, or those of all sequences in turn from the last to the
    first. NaN stands behind its length and in free pages.
    """

    def draw(setting: Setting) -> Call:
        page = setting.page
        lengths = tuple(int(n * page) + plus for n in filled)
        n_each = max(-(-n // page) for n in lengths)
        rng = np.random.default_rng([setting.seed, 5])
        n_pages = n_each * len(lengths) + 2
        table = rng.permutation(n_pages)[: n_each * len(lengths)].reshape(len(lengths), n_each)
        if in_turn:
            table = np.arange(table.size)[::-1].reshape(table.shape[::-1]).T
        if shared:
            table[1, :2] = table[0, :2]
        query = (len(lengths), n_heads, n_queries, E)
        pool = (n_pages, n_key_heads, page, E)
        given = qkv(setting, query, pool, pool)
        there: Array = np.zeros((n_pages, page), dtype=bool)
        for row, length in zip(table, lengths, strict=True):
            for slot in range(length):
                there[row[slot // page], slot % page] = True
        for name in ("key", "value"):
            given[name].numbers.swapaxes(1, 2)[~there] = np.nan
        return Call(given, options or {}, pages=Pages(table, lengths))

    return draw


def sinks() -> Iterator[Case]:
    """Yield the cases of the topic sinks."""
    numbers = {
        "some sinks": (0.3, -1.2, 2.0), "sinks of 0": (0.0, 0.0, 0.0),
        "sinks of -∞ change nothing": (-np.inf,) * 3,
        "a sink far above the scores takes all weight": (300.0, 1.0, 300.0),
    }
    some = numbers["some sinks"]
    batch = _with_sinks(shaped(), some)
    yield case("a batch of heads", batch)
    # A batch of 1, so that a kernel for one sequence is asked too.
    one = shaped((1, H, L, E), (1, H, S, E))
    for name, own in numbers.items():
        yield case(name, _with_sinks(one, own))
    future = _with_sinks(shaped((1, H, L, E), (1, H, L, E), options=CAUSAL), some)
    yield case("causal", future, "causal")
    long = {n: _with_sinks(shaped((1, H, n, E), (1, H, 131, E)), some) for n in (1, 8)}
    for n_queries, draw in long.items():
        yield case(f"queries: {n_queries}, keys: 131", draw, everywhere=True)
    empty = _with_sinks(with_mask(TWO_EMPTY_ROWS), some)
    yield case("rows without keys give zeros", empty, "masks", "empty")
    groups = _with_sinks(shaped((1, 6, L, E), (1, 2, S, E), (1, 2, S, E), GROUPED), some * 2)
    yield case("6 query heads, 2 key heads", groups, "groups")
    for end, draw, needs in (
        ("a batch of heads", batch, ()),
        ("one sequence", _with_sinks(one, some), ()),
        ("causal", future, ("causal",)),
        ("queries: 8, keys: 131", long[8], ()),
        ("6 query heads, 2 key heads", groups, ("groups",)),
        ("rows without keys", empty, ("masks", "empty")),
    ):
        draw = with_upstream(draw, wanted=("query", "key", "value", "sinks"))
        yield case(f"gradients, {end}", draw, *needs, "gradients", kinds=("torch",))


def _with_sinks(draw: Draw, sinks: tuple[float, ...]) -> Draw:
    def both(setting: Setting) -> Call:
        call = draw(setting)
        own = Given(np.array(sinks), dtype_of_sums(setting.dtype))
        return replace(call, given=call.given | {"sinks": own})

    return both


def soft_cap() -> Iterator[Case]:
    """Yield the cases of the topic soft cap."""
    capped = {"softcap": 2.0}
    for cap in (0.5, 30.0):
        draw = shaped(options={"softcap": cap})
        yield case(f"a cap of {cap}", draw, everywhere=True)
    yield case("a cap on large scores", _large_and_capped, dtypes=("float32", "float64"))
    draw = shaped((B, H, L, E), (B, H, L, E), options=CAUSAL | capped)
    yield case("the future is removed after the cap", draw, "causal", everywhere=True)
    draw = with_mask(random_mask((L, S)), options=capped)
    yield case("a boolean mask removes after the cap", draw, "masks")
    draw = with_mask(random_bias((L, S)), options=capped)
    yield case("a floating mask is added after the cap", draw, "masks")
    draw = with_mask(np.where(TWO_EMPTY_ROWS, 0.0, -np.inf), options=capped)
    yield case("rows without keys give zeros", draw, "masks", "empty")
    draw = heads(70, 70, capped)
    yield case("70 queries and keys", draw, everywhere=True)
    yield case("scale=3.5", heads(options=capped | {"scale": 3.5}))
    for end, draw, needs in (
        ("a cap of 0.5", shaped(options={"softcap": 0.5}), ()),
        ("a cap of 2, scale=3.5", heads(options=capped | {"scale": 3.5}), ()),
        ("a cap of 30", shaped(options={"softcap": 30.0}), ()),
        ("causal", heads(70, 70, CAUSAL | capped), ("causal",)),
        ("a boolean mask", with_mask(random_mask((L, S)), options=capped), ("masks",)),
        ("a floating mask", with_mask(random_bias((L, S)), options=capped), ("masks",)),
    ):
        yield graded(f"gradients, {end}", draw, *needs, "gradients")


def _large_and_capped(setting: Setting) -> Call:
    call = large_scores(1)(setting)
    return replace(call, options=call.options | {"softcap": 50.0})
