"""Cases of the topics lse, merge, documents, pages, sinks and soft cap: what servers ask for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from attncheck._calls import B, Call, Case, Documents, Draw, E, Given, H, L, Pages, S, Setting
from attncheck._draws import heads, qkv, random_bias, random_mask, shaped, with_mask
from attncheck._gradients import with_upstream
from attncheck._shapes import TWO_EMPTY_ROWS, large_scores
from attncheck._types import Array

CAUSAL = {"is_causal": True}
LAST = {"causal_align": "bottom-right"}


def lse() -> Iterator[Case]:
    """Yield the cases of the topic lse."""

    def own(name: str, draw: Draw, *needs: str, **more: Any) -> Case:
        return Case("lse", name, lambda setting: replace(draw(setting), lse=True), needs, **more)

    yield own("a batch of heads", shaped(), everywhere=True)
    yield own("8 queries, 131 keys", heads(8, 131), everywhere=True)
    yield own("1 query, 131 keys", heads(1, 131), everywhere=True)
    yield own("causal", heads(L, L, CAUSAL), "causal")
    yield own("causal, 70 queries and keys", heads(70, 70, CAUSAL), "causal", everywhere=True)
    draw = heads(7, 17, CAUSAL | LAST)
    yield own("causal at the bottom right", draw, "causal", "bottom-right")
    yield own("a window", heads(L, L, {"window": (2, 0)}), "windows")
    yield own("a boolean mask", with_mask(random_mask((L, S))), "masks")
    yield own("a floating mask", with_mask(random_bias((L, S))), "masks")
    yield own("scale=3.5", heads(options={"scale": 3.5}))
    draw = shaped((1, 6, L, E), (1, 2, S, E), (1, 2, S, E), {"enable_gqa": True})
    yield own("6 query heads, 2 key heads", draw, "groups", everywhere=True)
    for sign, word in ((1, "above"), (-1, "below")):
        draw = large_scores(sign)
        yield own(f"scores of ten thousand, all {word} 0", draw, dtypes=("float32", "float64"))
    draw = with_mask(TWO_EMPTY_ROWS)
    yield own("-∞ for a row that a boolean mask empties", draw, "masks", "empty")
    draw = heads(7, 5, CAUSAL | LAST)
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
        wide = "float64" if setting.dtype == "float64" else "float32"
        return replace(call, lse_upstream=Given(numbers, wide))

    return both


def merge() -> Iterator[Case]:
    """Yield the cases of the topic merge."""

    def own(name: str, draw: Draw, split: int, *needs: str, **more: Any) -> Case:
        return Case(
            "merge", name, lambda setting: replace(draw(setting), split=split), needs, **more
        )

    yield own("7 keys, cut at 3", shaped(), 3, everywhere=True)
    yield own("131 keys, cut at 64", heads(8, 131), 64, everywhere=True)
    yield own("131 keys, cut at 130", heads(1, 131), 130)
    yield own("large scores", large_scores(1), 4, dtypes=("float32", "float64"))
    draw = with_mask(np.arange(S) >= np.array([[4], [0], [3], [5], [1]]))
    yield own("one half has no key for some rows", draw, 3, "masks", "empty")
    yield own("no half has a key for two rows", with_mask(TWO_EMPTY_ROWS), 3, "masks", "empty")
    graded: dict[str, Any] = {"kinds": ("torch",)}
    draw = with_upstream(shaped())
    yield own("gradients, 7 keys, cut at 3", draw, 3, "gradients", **graded)
    draw = with_upstream(heads(8, 131))
    yield own("gradients, 131 keys, cut at 64", draw, 64, "gradients", **graded)
    draw = with_upstream(with_mask(np.arange(S) >= np.array([[4], [0], [3], [5], [1]])))
    name = "gradients, one half has no key for some rows"
    yield own(name, draw, 3, "masks", "empty", "gradients", **graded)
    draw_both = _with_lse_upstream(shaped())
    name = "gradients of output and log-sum-exp, 7 keys, cut at 3"
    yield own(name, lambda setting: replace(draw_both(setting), lse=True), 3, "gradients", **graded)


# Of length 1 and 0, a tile, one more, and a few.
TEXTS = Documents((1, 0, 64, 65, 5), (1, 0, 64, 65, 5))
OTHERS = Documents((3, 1, 7, 2), (5, 16, 0, 70))
# In each text another number of keys more than queries, and no row that sees nothing.
AHEAD = Documents((2, 5, 3), (3, 9, 10))


def documents() -> Iterator[Case]:
    """Yield the cases of the topic documents."""

    def own(name: str, texts: Documents, options: dict[str, Any], *needs: str, **more: Any) -> Case:
        return Case("documents", name, packed(texts, options), needs, **more)

    few = Documents((5, 3, 4), (5, 3, 4))
    yield own("three texts", few, {}, everywhere=True)
    yield own("three texts, causal", few, CAUSAL, "causal", everywhere=True)
    yield own("lengths 1, 0, 64, 65 and 5", TEXTS, {})
    yield own("lengths 1, 0, 64, 65 and 5, causal", TEXTS, CAUSAL, "causal", everywhere=True)
    yield own("other lengths for keys, one of them 0", OTHERS, {}, "empty")
    last = CAUSAL | LAST
    yield own("other lengths for keys, causal", OTHERS, last, "causal", "bottom-right", "empty")
    one = Documents((1, 1, 1), (17, 70, 5))
    yield own("one query for each text", one, last, "causal", "bottom-right", everywhere=True)
    name = "1, 4 and 7 keys more than queries"
    yield own(f"{name}, causal", AHEAD, last, "causal", "bottom-right", everywhere=True)
    yield own(f"{name}, causal at the top left", AHEAD, CAUSAL, "causal")
    ends = {"window": (3, 0)} | last
    yield own(f"{name}, a window", AHEAD, ends, "causal", "windows", "bottom-right")
    yield own("a window", TEXTS, {"window": (3, 0)} | LAST, "windows", "bottom-right")
    yield own("one text", Documents((7,), (7,)), CAUSAL, "causal")
    yield Case("documents", "NaN in one text changes no other", _nan_in_a_text)
    yield Case(
        "documents", "6 query heads, 2 key heads",
        packed(few, CAUSAL | {"enable_gqa": True}, 6, 2), ("groups", "causal"),
    )
    groups = {"enable_gqa": True}
    for end, draw, needs in (
        ("", packed(few, CAUSAL), ("causal",)),
        (", other lengths", packed(TEXTS, {}), ()),
        (", other lengths for keys, one of them 0", packed(OTHERS, {}), ("empty",)),
        (f", {name}, causal", packed(AHEAD, last), ("causal", "bottom-right")),
        (", 6 query heads, 2 key heads", packed(few, CAUSAL | groups, 6, 2), ("causal", "groups")),
        (f", {name}, 6 query heads, 2 key heads", packed(AHEAD, groups, 6, 2), ("groups",)),
    ):
        draw, needs = with_upstream(draw), (*needs, "gradients")
        yield Case("documents", f"gradients{end}", draw, needs, kinds=("torch",))


def packed(
    texts: Documents, options: dict[str, Any], n_heads: int = H, n_key_heads: int = H
) -> Draw:
    """Return the function that draws a call of texts in a row."""

    def draw(setting: Setting) -> Call:
        query, key = (n_heads, sum(texts.queries), E), (n_key_heads, sum(texts.keys), E)
        return Call(qkv(setting, query, key, key), options, documents=texts)

    return draw


def _nan_in_a_text(setting: Setting) -> Call:
    texts = Documents((5, 3, 4), (5, 3, 4))
    call = packed(texts, {})(setting)
    for name in ("key", "value"):
        call.given[name].numbers[:, 5:8] = np.nan
    return call


def pages() -> Iterator[Case]:
    """Yield the cases of the topic pages."""

    def own(name: str, draw: Draw, *needs: str, **more: Any) -> Case:
        return Case("pages", name, draw, needs, **more)

    yield own("one query, lengths within pages", paged(1, (0.5, 2.25)), everywhere=True)
    yield own("one query, whole pages", paged(1, (1, 3)))
    yield own("lengths of 1, and of a page and one", paged(1, (0.0, 1.0), plus=1))
    yield own("lengths of pages less one", paged(1, (2.0, 3.0), plus=-1))
    yield own("lengths of pages and one", paged(1, (2.0, 3.0), plus=1))
    yield own("many pages", paged(1, (9.5, 4.25, 11)), everywhere=True)
    draw = paged(1, (4.5, 3.25, 5), in_turn=True)
    yield own("pages of the sequences in turn, from the last to the first", draw)
    yield own("one sequence", paged(1, (2.5,)))
    yield own("pages that two sequences share", paged(1, (2.5, 2.25), shared=True))
    draw = paged(3, (1.5, 2.25), CAUSAL | LAST)
    yield own("three queries, causal", draw, "causal", "bottom-right")
    draw = paged(1, (2.5, 1.25), {"enable_gqa": True}, 6, 2)
    yield own("6 query heads, 2 key heads", draw, "groups", everywhere=True)
    draw = paged(1, (3.5, 2.25), {"window": (3, 0)} | LAST)
    yield own("a window", draw, "windows", "bottom-right")


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
    yield Case("sinks", "a batch of heads", _with_sinks(shaped(), some))
    # A batch of 1, so that a kernel for one sequence is asked too.
    for name, own in numbers.items():
        yield Case("sinks", name, _with_sinks(shaped((1, H, L, E), (1, H, S, E)), own))
    draw = shaped((1, H, L, E), (1, H, L, E), options=CAUSAL)
    yield Case("sinks", "causal", _with_sinks(draw, some), ("causal",))
    for n_queries in (1, 8):
        draw = _with_sinks(shaped((1, H, n_queries, E), (1, H, 131, E)), some)
        name = f"queries: {n_queries}, keys: 131"
        yield Case("sinks", name, draw, everywhere=True)
    draw = _with_sinks(with_mask(TWO_EMPTY_ROWS), some)
    yield Case("sinks", "rows without keys give zeros", draw, ("masks", "empty"))
    groups = shaped((1, 6, L, E), (1, 2, S, E), (1, 2, S, E), {"enable_gqa": True})
    six, name = _with_sinks(groups, some * 2), "6 query heads, 2 key heads"
    yield Case("sinks", name, six, ("groups",))
    for end, draw, needs in (
        ("a batch of heads", _with_sinks(shaped(), some), ()),
        ("one sequence", _with_sinks(shaped((1, H, L, E), (1, H, S, E)), some), ()),
        ("causal", _with_sinks(shaped((1, H, L, E), (1, H, L, E), None, CAUSAL), some),
         ("causal",)),
        ("queries: 8, keys: 131", _with_sinks(shaped((1, H, 8, E), (1, H, 131, E)), some), ()),
        (name, six, ("groups",)),
        ("rows without keys", _with_sinks(with_mask(TWO_EMPTY_ROWS), some), ("masks", "empty")),
    ):
        draw = with_upstream(draw, wanted=("query", "key", "value", "sinks"))
        needs = (*needs, "gradients")
        yield Case("sinks", f"gradients, {end}", draw, needs, kinds=("torch",))


def _with_sinks(draw: Draw, sinks: tuple[float, ...]) -> Draw:
    def both(setting: Setting) -> Call:
        call = draw(setting)
        wide = "float64" if setting.dtype == "float64" else "float32"
        return replace(call, given=call.given | {"sinks": Given(np.array(sinks), wide)})

    return both


def soft_cap() -> Iterator[Case]:
    """Yield the cases of the topic soft cap."""

    def own(name: str, draw: Draw, *needs: str, **more: Any) -> Case:
        return Case("soft cap", name, draw, needs, **more)

    for cap in (0.5, 30.0):
        draw = shaped(options={"softcap": cap})
        yield own(f"a cap of {cap}", draw, everywhere=True)
    yield own("a cap on large scores", _large_and_capped, dtypes=("float32", "float64"))
    draw = shaped((B, H, L, E), (B, H, L, E), options=CAUSAL | {"softcap": 2.0})
    yield own("the future is removed after the cap", draw, "causal", everywhere=True)
    draw = with_mask(random_mask((L, S)), options={"softcap": 2.0})
    yield own("a boolean mask removes after the cap", draw, "masks")
    draw = with_mask(random_bias((L, S)), options={"softcap": 2.0})
    yield own("a floating mask is added after the cap", draw, "masks")
    draw = with_mask(np.where(TWO_EMPTY_ROWS, 0.0, -np.inf), options={"softcap": 2.0})
    yield own("rows without keys give zeros", draw, "masks", "empty")
    draw = heads(70, 70, {"softcap": 2.0})
    yield own("70 queries and keys", draw, everywhere=True)
    yield own("scale=3.5", heads(options={"softcap": 2.0, "scale": 3.5}))
    capped = {"softcap": 2.0}
    for end, draw, needs in (
        ("a cap of 0.5", shaped(options={"softcap": 0.5}), ()),
        ("a cap of 2, scale=3.5", heads(options=capped | {"scale": 3.5}), ()),
        ("a cap of 30", shaped(options={"softcap": 30.0}), ()),
        ("causal", heads(70, 70, CAUSAL | capped), ("causal",)),
        ("a boolean mask", with_mask(random_mask((L, S)), options=capped), ("masks",)),
        ("a floating mask", with_mask(random_bias((L, S)), options=capped), ("masks",)),
    ):
        draw, needs = with_upstream(draw), (*needs, "gradients")
        yield own(f"gradients, {end}", draw, *needs, kinds=("torch",))


def _large_and_capped(setting: Setting) -> Call:
    call = large_scores(1)(setting)
    return replace(call, options=call.options | {"softcap": 50.0})
