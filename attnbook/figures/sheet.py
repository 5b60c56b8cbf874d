"""The drawings of "Attention on one sheet", which is also the poster: each half as wide as a page.

They take no arguments, because the page calls them by name. Their numbers come from `attnlib`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnbook import examples
from attnbook.figures.drawing import Array, Drawing, arrow, line, rect, text
from attnbook.figures.grid import cells
from attnbook.figures.labels import END, START, decimal
from attnbook.figures.mask_explorer import KINDS
from attnlib.numpy_blockwise import SoftmaxState
from attnlib.numpy_dense import attention_scores, attention_weights

HALF, WIDE, HIGH, TOP = 326.0, 31.0, 23.0, 58.0


def _matrices(parts: Sequence[tuple[str, str, str, Array, int, str]], left: float, sign: str,
              about: str) -> Drawing:
    """Return three matrices with `sign` before the last: name, colour, shape, entries, words."""
    tokens, body, told, high = examples.running().tokens, "", [], 3 * HIGH
    shown = [[[decimal(v, part[4]) for v in row] for row in part[3]] for part in parts]
    # A number of five signs needs a wider cell.
    cell = [WIDE + 4 * (max(len(v) for row in rows for v in row) > 4) for rows in shown]
    rooms = [len(part[3].T) * one for part, one in zip(parts, cell, strict=True)]
    gap = (HALF - 1 - left - sum(rooms)) / 2
    for place, (name, colour, shape, table, digits, words) in enumerate(parts):
        x = left + rooms[place] / 2
        body += text(x, 18, name, font_size=19, font_weight="600", fill=colour or "ink")
        body += text(x, 36, shape, fill="muted")
        limit = float(np.abs(table).max())
        body += cells(table, left, TOP, limit, digits, cell[place], HIGH, colour or None)
        for j, token in enumerate(tokens if name not in "QVO" else ()):  # a column for each key
            body += text(left + (j + 0.5) * cell[place], TOP - 5, token, fill="muted")
        for i, token in enumerate(tokens if name == "Q" else ()):
            body += text(left - 5, TOP + (i + 0.5) * HIGH + 4.5, token, fill="muted", **END)
        for row, line_of_words in enumerate(words.split("|")):
            body += text(x, TOP + high + 19 + 16 * row, line_of_words)
        if place:
            between = sign if place > 1 else "·"
            body += text(left - gap / 2, TOP + high / 2 + 6, between, font_size=19)
        left += rooms[place] + gap
        told.append(f"{name}, {shape}: {'; '.join(', '.join(row) for row in shown[place])}")
    return Drawing.from_elements(body, HALF, TOP + high + 41, f"{about} {'. '.join(told)}.")


def sheet_scores() -> Drawing:
    """Return the first half of the formula with the numbers of the running example: the scores."""
    X, W_Q, W_K = examples.running()[1:4]
    parts = (
        ("Q", "query", "L × dₖ", X @ W_Q, 1, "what each|token asks"),
        ("Kᵀ", "key", "dₖ × S", (X @ W_K).T, 1, "what each|token offers"),
        ("QKᵀ ÷ √dₖ", "", "L × S", attention_scores(X @ W_Q, X @ W_K), 1, "how well|they match"),
    )
    return _matrices(parts, 30, "→", "Every query meets every key.")


def sheet_output() -> Drawing:
    """Return the second half of the formula: weights, values and outputs."""
    X, W_Q, W_K, W_V = examples.running()[1:]
    weights = attention_weights(X @ W_Q, X @ W_K)
    parts = (
        ("A", "weight", "L × S", weights, 2, "softmax:|rows add up to 1"),
        ("V", "value", "S × dᵥ", X @ W_V, 1, "what each|token gives"),
        ("O", "output", "L × dᵥ", weights @ X @ W_V, 2, "values mixed|by weights"),
    )
    return _matrices(parts, 1, "=", "The weights mix the values.")


def sheet_masks() -> Drawing:
    """Return four masks as small grids, each with its name and its rule."""
    n_queries, n_keys, cell, body, told = 4, 6, 11.0, "", []
    kinds = {"causal, top-left": 0, "causal, bottom-right": 0, "window": 2, "right padding": 4}
    for place, (kind, size) in enumerate(kinds.items()):
        rule, make = KINDS[kind]
        x, y = 166.0 * (place % 2), 2 + 60.0 * (place // 2)
        mask = make(n_queries, n_keys, size)
        for (i, j), seen in np.ndenumerate(mask):
            look = {"fill_opacity": "0.6"} if seen else {}
            body += rect(x + 1 + j * cell, y + i * cell, cell, cell, "weight" if seen else "none",
                         stroke="muted", **look)
        names = [*kind.replace("right p", "p").split(", "), rule.format(size)]
        for row, words in enumerate(names):
            top = y + n_queries * cell / 2 + 5 + 17 * (row - (len(names) - 1) / 2)
            look = {} if row == len(names) - 1 else {"font_weight": "600"}
            body += text(x + n_keys * cell + 8, top, words, **START, **look)
        told.append(f"{kind}, {names[-1]}: {', '.join(map(str, mask.sum(axis=1)))}")
    alt = f"Keys that each of {n_queries} queries sees, of {n_keys}. {'; '.join(told)}."
    return Drawing.from_elements(body, HALF, 110, alt)


def sheet_heads() -> Drawing:
    """Return how four query heads share four, two or one head of keys and values."""
    n_heads, step, body, told = 4, 24.0, "", []
    for place, (kind, shared) in enumerate((("MHA", 4), ("GQA", 2), ("MQA", 1))):
        left = 115.0 * place
        for n in range(n_heads):
            # Query head n uses key head floor(n · h_kv / h).
            key = (n * shared // n_heads + 0.5) * n_heads / shared * step + left - 2
            x = left + (n + 0.5) * step - 2
            body += line(x, 40, key, 60, "ink")
            for letter, name, at, y in (("Q", "query", x, 22), ("K", "key", key, 60),
                                        ("V", "value", key, 78)):
                body += rect(at - 9, y, 18, 18, name)
                body += text(at, y + 13.5, letter, fill="paper", font_weight="600")
        middle = left + n_heads * step / 2 - 2
        body += text(middle, 14, kind, font_weight="600")
        body += text(middle, 113, "cache × 1" + f"/{n_heads // shared}" * (shared < n_heads))
        told.append(f"{kind}: {shared}")
    alt = f"Heads of keys and values for {n_heads} query heads. {', '.join(told)}."
    return Drawing.from_elements(body, HALF, 118, alt)


def sheet_merge() -> Drawing:
    """Return two pieces of a row of scores, and the row that they become."""
    scores, value = np.array([0.5, 0.0, 1.0, 2.0, 0.5, 1.5]), np.ones((6, 1))
    empty, foot, bar, tall = SoftmaxState.empty((1,), 1), 72.0, 19.0, 50.0
    one, two = (empty.update(scores[None, k], value[k]) for k in (slice(3), slice(3, 6)))
    both = one.merge(two)
    factor = float(np.exp(one.m - both.m)[0])
    body = ""
    for x, state, keys in ((22.0, one, range(3)), (124.0, two, range(3, 6)),
                           (212.0, both, range(6))):
        for place, key in enumerate(keys):
            at = x + 2 + place * bar
            high = tall * float(np.exp(scores[key] - state.m[0]))
            if state is both and key < 3:  # as it was in its piece
                before = tall * float(np.exp(scores[key] - one.m[0]))
                body += rect(at, foot - before, bar - 4, before, stroke="muted",
                             stroke_dasharray="3 2")
            body += rect(at, foot - high, bar - 4, high, "weight", fill_opacity="0.6",
                         stroke="weight")
        wide = len(keys) * bar
        body += line(x, foot, x + wide, foot, "muted")
        told = f"m = {state.m[0]:g}, ℓ = {decimal(state.ell[0])}"
        body += text(x + wide / 2, foot + 19, told)
    body += text(212 + 1.5 * bar, 14, f"× {factor:.2f}", font_weight="600")
    body += text(101, foot - 20, "+", font_size=19)
    body += arrow(188, foot - 26, 207, foot - 26, "ink", 2)
    alt = (
        f"Bars of two pieces of a row, with m = {one.m[0]} and {two.m[0]}: together the bars of "
        f"the first shrink, times {factor:.2f}, and ℓ = {decimal(both.ell[0])}."
    )
    return Drawing.from_elements(body, HALF, foot + 27, alt)


def _amount(value: float, unit: str) -> str:
    """Return an amount with a prefix: of 1,024 for bytes, else of 1,000."""
    base, prefixes = (1024, "KMGT") if unit == "iB" else (1000, "KMGTP")
    power = int(np.log(value) / np.log(base) + 1e-9)
    return f"{value / base**power:.3g} {prefixes[power - 1]}{unit}"


def sheet_costs() -> Drawing:
    """Return what one layer costs at three lengths: 32 heads of 128, two bytes a number."""
    lengths, h, d = (1_024, 8_192, 131_072), 32, 128
    rows = {
        "operations ∝ T²": [_amount(4 * h * T * T * d, "") for T in lengths],
        "all weights ∝ T²": [_amount(2 * h * T * T, "iB") for T in lengths],
        "only Lᵢ (fp32) ∝ T": [_amount(4 * h * T, "iB") for T in lengths],
        "K, V cache ∝ T": [_amount(2 * 2 * h * T * d, "iB") for T in lengths],
    }
    rights, body = (182.0, 252.0, 325.0), text(0, 15, "tokens T", fill="muted", **START)
    for right, T in zip(rights, lengths, strict=True):
        body += text(right, 15, f"{T:,}", fill="muted", **END)
    for place, (name, amounts) in enumerate(rows.items()):
        y = 39.0 + 22 * place
        body += line(0, y - 17, HALF, y - 17, "muted" if place == 0 else "grid")
        body += text(0, y, name, **START)
        for right, amount in zip(rights, amounts, strict=True):
            strong = {"font_weight": "600"} if place == 1 else {}
            body += text(right, y, amount, **END, **strong)
    told = "; ".join(f"{name}: {', '.join(amounts)}" for name, amounts in rows.items())
    alt = f"One layer of {h} heads of {d}, at {', '.join(map(str, lengths))} tokens. {told}."
    return Drawing.from_elements(body, HALF, 112, alt)
