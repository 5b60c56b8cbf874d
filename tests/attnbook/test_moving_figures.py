"""The numbers of moving figures, computed a second time: by `attnlib`, or as a loop says it.

That a drawing stays as it is, is held elsewhere: the frame that it starts with by the stored images
of test_figures.py, each frame of a chapter's figure by nbval, which compares all that is stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import escape
from itertools import accumulate, permutations, product
from typing import Any

import drawings
import numpy as np
import pytest
import torch
from drawings import MOVING, frames, moving, number

from attnbook import examples, figures, words
from attnbook.figures.moving import changes
from attnlib import masks
from attnlib.numpy_dense import attention_weights, softmax
from attnlib.positions import rotary, sinusoidal
from attnlib.torch_ring import layout

Rows = Iterator[Any]  # the numbers of each row of a table


@pytest.mark.parametrize("name", MOVING)
def test_a_moving_drawing_tells_briefly_what_a_move_has_changed(name: str) -> None:
    drawing = moving(name)
    assert all(label.count("\n") <= 1 for label in drawing.labels)
    told = [label.split("\n")[0] for label in drawing.labels]
    assert all(10 < len(words) <= 160 for words in told)
    sizes = [len(control.options) for control in drawing.controls]
    slider = [control.kind for control in drawing.controls].index("slider")
    by_control = np.array(told, dtype=object).reshape(sizes)
    for along in np.moveaxis(by_control, slider, -1).reshape(-1, sizes[slider]):
        assert len(set(along)) == sizes[slider]
    first = np.ravel_multi_index([control.start for control in drawing.controls], sizes)
    assert drawing.alt == drawing.labels[first].replace("\n", " ")
    assert f'aria-label="{escape(drawing.alt)}"' in drawing.svg


def test_frames_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(ValueError, match="the same elements with the same attributes"):
        changes(["<path/>", "<line/>"])
    with pytest.raises(ValueError, match="must have a data-part; got M0"):
        changes(['<path d="M0"/>', '<path d="M1"/>'])


# -- the tables ------------------------------------------------------------------------------------


def attention_stepper() -> Rows:
    query, key, value = drawings.projected()
    scores, weights = query @ key.T, attention_weights(query, key)
    for t, j in np.ndindex(3, 3):
        scaled, share = scores[t, j] / 2**0.5, weights[t, j] * value[j]
        yield (*query[t], *key[j], scores[t, j], scaled, np.exp(scaled), weights[t, j], *value[j],
               *share, *(weights[t] @ value))


def attention_steps() -> Rows:
    query, key, value = drawings.projected()
    scores, weights = query @ key.T, attention_weights(query, key)
    named = examples.running().X, query, key, value, scores, scores / 2**0.5, weights
    for matrix in (*named, weights @ value):
        yield from matrix


def cache_filling() -> Rows:
    for chunks in drawings.WAYS.values():
        kept, totals = 0, np.zeros(4)
        for end in accumulate(chunks):
            new = masks.causal(end - kept, end, align="bottom-right")
            totals += masks.causal(end).sum(), new.sum(), end, end - kept
            yield totals
            kept = end


def chosen_keys() -> Rows:
    # Row i has i + 1 equal weights, and two of them are chosen.
    kept = np.mean([2 / (i + 1) for i in range(8, 16)])
    yield from ((0, 0.25, kept), (40, 0.75, kept))


def clock_hands() -> Rows:
    yield from sinusoidal(7, 10)


def eight_bits() -> Rows:
    """Powers of 2: e4m3 holds them as they are, or the number that they become is there too."""
    for offset in (0, 4, 8):
        exact = 2.0 ** torch.tensor([offset, offset + 4, offset - 13])
        held = exact.clamp(max=448).to(torch.float8_e4m3fn).float()
        yield [n for pair in zip(exact, held, strict=True) for n in dict.fromkeys(map(float, pair))]


def first_screen() -> Rows:
    for sentence in ("the boat reached the bank of the river", "she paid cash at the bank"):
        # Two places of one word have the same row, which the table has once.
        yield from dict(zip(sentence.split(), in_sentence(sentence), strict=True)).values()


def in_sentence(sentence: str) -> Rows:
    """The score of each word for “bank”, its weight, and how far it leans to water."""
    water, money = words.vectors("water money")
    x = words.vectors(sentence)
    scores = x @ made_key() @ [16.0, 16.0]
    yield from np.column_stack([scores, softmax(scores / 2**0.5), x @ (water - money)])


def made_key() -> np.ndarray:
    """W_K of chapter 5: the senses, without what lies in the words that every sentence has."""
    plain, senses = words.vectors("bank of the at").T, words.vectors("shore finance").T
    found: np.ndarray = senses - plain @ np.linalg.lstsq(plain, senses)[0]
    return found


def forms_explorer() -> Rows:
    q, k = drawings.formed()
    later = np.triu(np.full((5, 5), -np.inf), 1)
    distance = np.arange(5)[:, None] - np.arange(5)
    s = q @ k.T / 8**0.5
    lengths = np.linalg.norm(q, axis=1)[:, None] * np.linalg.norm(k, axis=1)
    scores = [(n * s, 0.0) for n in (1, 2, 4, 8, 16)]
    scores += [(8**0.5 * (q @ k.T) / lengths, 0.0)] * 5  # QK-norm undoes the factor
    scores += [(n * np.tanh(s / n), 0.0) for n in (50, 8, 4, 2, 1)]
    scores += [(s - slope * distance, 0.0) for slope in (0, 1 / 8, 1 / 4, 1 / 2, 1)]
    scores += [(np.where(distance < n, s, -np.inf), 0.0) for n in (5, 4, 3, 2, 1)]
    scores += [(s, np.exp(sink)) for sink in (-np.inf, 0, 1, 2, 4)]
    for shown, sink in scores:
        e = np.exp(shown + later)[-1]
        yield 100 * np.array([*e, sink]) / (e.sum() + sink)


def looking_back() -> Rows:
    for query in range(3):
        rows = [table[query] for table in drawings.BACK.values()]
        yield [n for row in rows for key in np.argsort(-row, kind="stable") if row[key] > 0
               for n in (key, 100 * row[key])]


def matrix_product() -> Rows:
    query, key, _ = drawings.projected()
    for q, k in product(query, key):
        yield q[0], k[0], q[1], k[1], q @ k


def memory_levels() -> Rows:
    T, d = drawings.TOKENS
    large, small = 2 * T**2 / 1e6, 2 * T * d / 1e6  # MB of the scores, and of each input
    thirds = [large / 3] * 3
    three = [0, 2 * small, *thirds * 3, small + large / 3, *thirds[1:], small, 0]
    for moved in (three, [0, 3 * small, *[0] * 12, small, 0]):
        for here, total in zip(moved, accumulate(moved), strict=True):
            yield here, total, total / 2  # at 2 · 10¹² bytes a second


def online_row() -> Rows:
    s, v = drawings.ARRIVING, drawings.ARRIVING_VALUE
    # How many keys are in the sums, and how many in the largest score.
    for read, seen in ((1, 1), (2, 2), (2, 3), (3, 3), (4, 4), (4, 5), (5, 5), (5, 5)):
        m = s[:seen].max()
        e = np.exp(s[:read] - m)
        yield m, e.sum(), e @ v[:read], e @ v[:read] / e.sum()


def permuted() -> Rows:
    X, *matrices = examples.running()[1:]
    for added, order in product((0, 1), permutations(range(3))):
        there = X[list(order)] + added * drawings.SHIFTS
        query, key, value = (there @ matrix for matrix in matrices)
        weights = attention_weights(query, key)
        yield from np.hstack([weights, weights @ value])


def recall_explorer() -> Rows:
    for n in (2, 4, 6):
        yield 1 / n, 1 / n, 4, 0.1, (2 * n - 3) / 10, 4 * n  # means of two pairs


def ring_timetable() -> Rows:
    """A tile has 10 by 10 scores; on the diagonal 55 of them, which the drawing calls a half."""
    for balance in ("contiguous", "zigzag"):
        own = [np.concatenate([np.arange(*span) for span in one]) for one in layout(60, 3, balance)]
        for step in range(3):
            seen = [np.sum(own[r - step] <= own[r][:, None]) for r in range(3)]
            tiles = [(n - 10 * (step == 0)) / 100 for n in seen]
            for rank in range(3):
                source = (rank - step) % 3
                yield source, *(own[source][::10] / 10), tiles[rank], max(tiles)


def scaling_explorer() -> Rows:
    rng = np.random.default_rng(396)
    query, keys = rng.standard_normal(64), rng.standard_normal((8, 64))
    for d_k, rules in drawings.rules().items():
        scores = keys[:, :d_k] @ query[:d_k]
        largest = [softmax(scores / divisor).max() for divisor in (1, d_k**0.5, d_k)]
        yield *largest, *((rule.score_std, rule.largest, rule.entropy) for rule in rules.values())


def state_layer() -> Rows:
    S, k, q, v = np.array([[2.0, 4], [6, 8]]), np.array([0.6, 0.8]), np.array([0.8, 0.6]), (8, -0.6)
    faded, old = 0.5 * S, 0.5 * k @ S
    row = 0.5 * (v - old)
    new = faded + [entry * row for entry in k]
    yield *S, 0.5, *faded
    yield *faded, k, old, v, v - old, 0.5, row, *(new - faded), *new
    yield *new, q, q @ new


def temperature_explorer() -> Rows:
    for temperature in (0.5, 1.0, 4.0):
        weights = softmax(np.array([0.0, 2.0, -1.0]) / temperature)
        yield *weights, np.exp(-weights @ np.log(weights))


def tile_walk() -> Rows:
    """After a tile: the state of its rows, at the end the output, and what old sums shrink to."""
    for mask in (np.ones((3, 4), dtype=bool), masks.causal(3, 4)):
        for rows, keys in product(([0, 1], [2]), ([0, 1, 2], [3])):
            here, before = np.isin(range(4), keys), np.arange(4) < keys[0]
            for i in rows:
                if not (mask[rows] & here).any():
                    yield []  # the tile is skipped
                    continue
                read = mask[i] & (here | before)
                m = drawings.WALKED[i, read].max()
                old = drawings.WALKED[i, mask[i] & before].max(initial=-np.inf)
                e, value = np.exp(drawings.WALKED[i, read] - m), drawings.WALKED_VALUE[read]
                output = [e @ value / e.sum()] if read.sum() == mask[i].sum() else []
                factor = [np.exp(old - m)] if -np.inf < old < m else []
                yield m, e.sum(), e @ value, *output, *factor


def which_head() -> Rows:
    for share, (sender, recipient) in product((0.0, 0.3, 0.5, 0.7, 1.0), drawings.LETTERS):
        people = [[0, 0], drawings.PEOPLE[sender], drawings.PEOPLE[recipient]]
        yield np.array([0, share, 1 - share]) @ people
        if share == 0:  # the two heads are the same for every share
            yield (np.array(drawings.HEADS) @ people).ravel()


def word_in_context() -> Rows:
    water, money, bank = words.vectors("water money bank")
    for way in range(5):
        for sentence in drawings.BANKS:
            x, is_bank = words.vectors(sentence), np.array(sentence.split()) == "bank"
            in_four = np.array([word in {"bank", "of", "the", "at"} for word in sentence.split()])
            means = [row / sum(row) for row in (is_bank, np.ones(len(x)), ~in_four)]
            made = np.array([row[1] for row in in_sentence(sentence)])
            weights = (*means, softmax(x @ bank), made)[way]
            yield *weights, weights @ x @ (water - money)


# The first column of numbers.
TABLES: dict[Callable[[], Rows], int] = {
    attention_stepper: 2, attention_steps: 3, cache_filling: 2, chosen_keys: 0, clock_hands: 1,
    eight_bits: 1, first_screen: 2, forms_explorer: 1, looking_back: 1, matrix_product: 2,
    memory_levels: 3, online_row: 3, permuted: 3, recall_explorer: 1, ring_timetable: 3,
    scaling_explorer: 1, state_layer: 1, temperature_explorer: 1, tile_walk: 4, which_head: 2,
    word_in_context: 2,
}


def shown(text: str) -> list[str]:
    return re.findall(r"−?\d+(?:\.\d+)?", text)


def rounding(text: str) -> float:
    """Half a unit of the last digit, and a little for the last bit."""
    return 0.501 * 10.0 ** -len(text.partition(".")[2])


@pytest.mark.parametrize("expected", TABLES, ids=lambda function: function.__name__)
def test_a_table_has_the_numbers_of_attnlib(expected: Callable[[], Rows]) -> None:
    rows = [row[TABLES[expected] :] for row in moving(expected.__name__).table[1:]]
    for row, values in zip(rows, expected(), strict=True):
        found = shown(" ".join(row))
        flat: Any = np.hstack([*values]) if len(values) else []
        assert len(found) == len(flat), (row, flat)
        for text, value in zip(found, flat, strict=True):
            assert abs(number(text) - value) <= rounding(text), (row, flat)


# Of these, the picture has inputs and steps that the table leaves out.
WITH_MORE = {"clock_hands", "memory_levels", "number_bits", "online_row", "temperature_explorer",
             "tile_walk", "turned_pair", "turned_query", "which_head"}


@pytest.mark.parametrize("name", [name for name in MOVING if name not in WITH_MORE])
def test_a_picture_shows_the_numbers_of_its_table_and_its_words(name: str) -> None:
    drawing = moving(name)
    cells = [cell for row in drawing.table for cell in row]
    told = np.array([number(text) for text in shown(" ".join([*cells, *drawing.labels]))])
    for parts in frames(drawing):
        for part in drawing.parts:
            for text in shown(parts[part]["text"]):
                assert "." not in text or abs(told - number(text)).min() <= rounding(text), part


# -- what is not in the table, or not as a number --------------------------------------------------


def test_scaling_explorer_starts_with_a_fair_draw() -> None:
    head, *rows = figures.scaling_explorer().table
    from_16 = np.array([[float(cell) for cell in row] for row in rows if int(row[0]) >= 16])
    means = [i for i, title in enumerate(head) if "largest weight, mean" in title]
    distance = ((from_16[:, 1:4] - from_16[:, means]) ** 2).mean(axis=0) ** 0.5
    assert len(means) == 3 and (distance < 0.08).all()
    assert [row[0] for row in rows] == [str(n * n) for n in range(1, 33)]


def test_the_tile_walk_adds_up_to_the_sums_that_it_shows() -> None:
    shown_sums = 0
    for parts, name in product(frames(moving("tile_walk")), "ℓõ"):
        *terms, now = (parts[f"made-{name}-{n}"]["text"] for n in range(5))
        factors = [[number(one) for one in shown(term)] for term in terms if term]
        if now:
            shown_sums += 1
            found = sum(float(np.prod(one)) for one in factors if one)
            assert found == pytest.approx(number(now[2:]), abs=0.016)
    assert shown_sums == 2 * 6  # of the eight tiles, two are skipped


def test_mask_explorer_ticks_what_each_mask_lets_through() -> None:
    drawing = moving("mask_explorer")
    kinds = product(drawing.controls[0].options, (0, 2))
    for (kind, n), parts, label in zip(kinds, frames(drawing), drawing.labels, strict=True):
        causal, places = masks.causal(4), np.arange(4)
        expected = {
            "causal": causal,
            "window": masks.window(4, 4, n, 0),
            "right padding": np.tile(places < n, (4, 1)),
            "causal, right padding": causal & (places < n),
            "causal, left padding": causal & (places >= 4 - n),
            "causal, two documents": causal & ((places[:, None] < n) == (places < n)),
        }[kind]
        ticks = [parts[f"cell-{i}-{j}"]["opacity"] == "1" for i, j in np.ndindex(4, 4)]
        assert ticks == expected.ravel().tolist()
        empty = [str(i) for i in range(4) if not expected[i].any()]
        told = f"{expected.sum()} of 16 pairs take part, {expected.mean():.0%}"
        assert f"{told}; empty rows: {', '.join(empty) or 'none'}" in label


def test_number_bits_are_those_of_torch() -> None:
    drawing = moving("number_bits")
    kinds = {"float32": torch.int32, "bfloat16": torch.int16, "float16": torch.int16}
    for value, parts, row in zip(
        drawings.BITS.values(), frames(drawing), drawing.table[1:], strict=True
    ):
        for column, (name, kind) in enumerate(kinds.items()):
            tensor = torch.tensor(value, dtype=torch.float64).to(getattr(torch, name))
            held, size = tensor.item(), 8 * tensor.element_size()
            word = f"{tensor.view(kind).item() % 2**size:0{size}b}"
            assert "".join(parts[f"{name}-{place}"]["text"] for place in range(size)) == word
            kept, off = row[1 + 2 * column : 3 + 2 * column]
            assert number(kept) == pytest.approx(held, rel=1e-8)
            special = ("overflow" if np.isinf(held) else "underflow" if value and not held else
                       "exact" if held == value else "")
            assert off == special or number(off) == pytest.approx(abs(held / value - 1), rel=0.06)


def test_memory_levels_say_what_decides() -> None:
    T, d = drawings.TOKENS
    computing, large, small = 4e6 * T**2 * d / 989.43e12, 2 * T**2 / 1e6, 2 * T * d / 1e6
    drawing = moving("memory_levels")
    memory = (4 * large + 4 * small) / 2  # µs at 2 · 10¹² bytes a second
    assert f"memory decides, {memory:.0f} µs against {computing:.1f} µs" in drawing.labels[15]
    assert f"computing decides, {computing:.1f} µs against {2 * small:.1f} µs" in drawing.labels[31]
    assert f"{1 + large / small:.0f} times less traffic" in drawing.svg


def test_the_first_screen_tells_where_bank_leans() -> None:
    water, money, bank = words.vectors("water money bank")
    for sentence, side, label in zip(
        ("the boat reached the bank of the river", "she paid cash at the bank"),
        ("water", "money"), moving("first_screen").labels[-2:], strict=True,
    ):
        _, weights, leans = np.transpose(list(in_sentence(sentence)))
        found = weights @ leans, bank @ (water - money), leans.mean()
        assert f"leans to {side}," in label
        assert [number(text) for text in shown(label)[1:]] == pytest.approx(found, abs=0.00501)


@pytest.mark.parametrize("loop", range(4))
def test_the_walk_backward_counts_the_blocks_that_are_moved(loop: int) -> None:
    """Of both sides two inputs are read; dQ is one sum of a block of queries, dK and dV are two."""
    n, tiles = 3, 6 if loop % 2 else 9  # of the causal ones, three are skipped
    outer, inner = (2, 1) if loop >= 2 else (1, 2)
    read = 2 * n + 2 * tiles + inner * (tiles - n)  # a sum that begins is not read
    told = f"after the last tile. Blocks moved so far: {read} read, {inner * tiles + outer * n} "
    assert told in moving("backward_walk").labels[(n**2 + 2) * (loop + 1) - 1]


def test_what_turns_with_the_position_keeps_its_product() -> None:
    for (u, offset), label in zip(
        product(range(6), range(1, 7)), moving("rotary_offset").labels, strict=True
    ):
        q, k = (rotary(np.array([x]), [t])[0] for x, t in (((0, -1.5), u + offset), ((1.0, -1), u)))
        found = [number(text) for text in shown(label)]
        assert found == pytest.approx([u, u + offset, offset, q @ k], abs=0.00501)
    z = sinusoidal(7, 10)
    for t, parts in enumerate(frames(moving("clock_hands"))):
        assert (f" = {z[3] @ z[0]:.2f}," in parts["product"]["text"]) == (t >= 3)


def test_the_atlas_tells_what_each_head_looks_at() -> None:
    drawing, weights = moving("head_explorer"), drawings.head_weights_of_two()
    for (sentence, layer, head), parts, label in zip(
        np.ndindex(2, 2, 2), frames(drawing), drawing.labels, strict=True
    ):
        row = weights[sentence, layer, head, 1]
        strongest = ("[CLS]", "a", ("because", "so")[sentence])[row.argmax()]
        assert f"a looks at {strongest} {row.max():.0%}" in label
        told = [parts[f"percent-{one}-0"]["text"] for one in range(2)]
        assert told == [f"{weight:.0%}" for weight in weights[:, layer, head, 1, 0]]
    # One step back, at the first token, and "a" → the first, each in the first sentence.
    first = weights[0].reshape(4, 3, 3)
    means = (first[:, 1, 0] + first[:, 2, 1]) / 2, first[..., 0].mean(-1), first[:, 1, 0]
    shown_means = [[number(cell) for cell in row[1:4]] for row in drawing.table[1:]]
    np.testing.assert_allclose(shown_means, 100 * np.transpose(means), atol=0.501)
