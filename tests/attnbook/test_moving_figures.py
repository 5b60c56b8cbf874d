"""What moving figures count and compute by themselves, in every frame.

That a drawing stays as it is, is held elsewhere: the frame that it starts with by the stored images
of test_figures.py, each frame of a chapter's figure by nbval, which compares all that is stored.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html import escape
from itertools import permutations, product

import drawings
import numpy as np
import pytest
from drawings import MOVING, frames, moving, number

from attnbook import figures, words
from attnbook.figures import sides
from attnbook.figures.first_screen import MIDDLE, UNIT
from attnbook.figures.moving import changes
from attnlib import masks
from attnlib.numpy_dense import softmax
from attnlib.torch_ring import layout


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


def test_what_changes_is_found_in_the_finished_frames() -> None:
    frame = '<g data-part="a" opacity="{}"><text data-part="b">{}</text><path d="M0"/></g>'
    found = changes([frame.format(*values) for values in ((0, "x&lt;"), (1, ""), (0, "x"))])
    assert found == {"a": {"opacity": "010"}, "b": {"text": ["x<", "", "x"]}}
    with pytest.raises(ValueError, match="the same elements with the same attributes"):
        changes([frame, frame.replace("<path", "<line")])
    with pytest.raises(ValueError, match="must have a data-part; got M0"):
        changes([frame, frame.replace("M0", "M1")])


def minus(shown: str) -> str:
    """Return numbers with a true minus, and none before zero."""
    return shown.replace("-0.00", "0.00").replace("-", "−")


def test_scaling_explorer_walks_and_weighs_the_scores_of_one_query() -> None:
    drawing, rng = moving("scaling_explorer"), np.random.default_rng(396)
    query, keys = rng.standard_normal(64), rng.standard_normal((8, 64))
    sizes = drawings.SIZES
    scores = {d_k: keys[:, :d_k] @ query[:d_k] for d_k in sizes}
    # The heads of all walks lie on one scale, whose 0 is that of the region ±√d_k.
    found = frames(drawing)
    roots = [(float(parts["root"]["y"]), float(parts["root"]["height"])) for parts in found]
    unit = roots[-1][1] / 2 / 8
    for d_k, parts, (top, height), row in zip(sizes, found, roots, drawing.table[1:], strict=True):
        leader = int(scores[d_k].argmax())
        assert height == pytest.approx(2 * unit * d_k**0.5, abs=0.2)
        middle = top + height / 2
        for key, score in enumerate(scores[d_k]):
            assert float(parts[f"head-{key}"]["cy"]) == pytest.approx(
                middle - unit * score, abs=0.3
            )
            assert parts[f"head-{key}"]["r"] == "35"[key == leader]
            assert parts[f"walk-{key}"]["stroke-width"] == "13"[key == leader]
        assert parts["leader"]["text"].removeprefix("now ") == f"key {leader} leads"
        undivided, divided = (softmax(scores[d_k] / by).max() for by in (1, d_k**0.5))
        assert parts["headline"]["text"] == (
            f"Undivided, key {leader} takes {undivided:.2f}; ÷ √dₖ leaves it {divided:.2f}"
        )
        for panel, divisor in enumerate((1, d_k**0.5, d_k)):
            weights = softmax(scores[d_k] / divisor)
            heights = [float(parts[f"bar-{panel}-{key}"]["height"]) for key in range(8)]
            np.testing.assert_allclose(heights, 76 * weights, atol=0.051)
            assert parts[f"most-{panel}"]["height"] == parts[f"bar-{panel}-{leader}"]["height"]
            assert parts[f"largest-{panel}"]["text"] == row[1 + panel] == f"{weights.max():.2f}"
        assert parts["verdict-0"]["text"] == (
            "uneven"
            if undivided <= 0.75
            else f"one key takes {'all' if undivided > 0.995 else 'most'}"
        )
        assert parts["verdict-1"]["text"] == "uneven from 4 on"


def test_scaling_explorer_starts_with_a_fair_draw() -> None:
    head, *rows = figures.scaling_explorer().table
    from_16 = np.array([[float(cell) for cell in row] for row in rows if int(row[0]) >= 16])
    means = [i for i, title in enumerate(head) if "largest weight, mean" in title]
    distance = ((from_16[:, 1:4] - from_16[:, means]) ** 2).mean(axis=0) ** 0.5
    assert len(means) == 3 and (distance < 0.08).all()
    assert [row[0] for row in rows] == [str(n * n) for n in range(1, 33)]


def test_stepper_shows_each_number_from_the_step_that_computes_it() -> None:
    drawing, (query, key, value) = moving("attention_stepper"), drawings.projected()
    raw_scores = query @ key.T
    weights = softmax(raw_scores / np.sqrt(2))
    output = weights @ value
    shadows = raw_scores / np.linalg.norm(query, axis=1)[:, None]
    since = {"exp-number": 3, "weight-number": 4, "share-number": 5}
    assert drawing.controls[1].options[drawing.controls[1].start] == "output"
    for frame, parts in enumerate(frames(drawing)):
        t, step = divmod(frame, 7)
        for j, (name, first) in product(range(3), since.items()):
            assert (parts[f"{name}-{j}"]["text"] == "") == (step < first), (name, frame)
        for j, token in enumerate(("the", "cat", "sat")):
            score = (shadows, raw_scores, raw_scores / 2**0.5)[min(step, 2)][t, j]
            assert parts[f"score-number-{j}"]["text"] == minus(f"{score:.2f}")
            if step >= 4:
                assert parts[f"weight-number-{j}"]["text"] == f"{token} {weights[t, j]:.2f}"
        if step == 1:
            assert f"({np.linalg.norm(query[t]):.2f})" in parts["step"]["text"]
            if step >= 3:
                shown = f"{np.exp(raw_scores[t, j] / 2**0.5):.2f}"
                assert parts[f"exp-number-{j}"]["text"] == shown
            if step >= 5:
                assert parts[f"share-number-{j}"]["text"] == f"{weights[t, j]:.2f} of {token}"
        if step == 6:
            entries = minus(", ".join(f"{entry:.2f}" for entry in output[t]))
            assert parts["output-number"]["text"] == f"= o ({entries})"
            assert entries in drawing.labels[frame]


def points(parts: dict[str, dict[str, str]], name: str) -> np.ndarray:
    """Return the corners of an arrow's head, its tip first."""
    corners = parts[f"{name}-tip"]["points"].split()
    return np.array([corner.split(",") for corner in corners], dtype=float)


def test_stepper_turns_scores_into_parts_of_1_and_adds_the_shares_up_to_the_output() -> None:
    drawing, (query, key, value) = moving("attention_stepper"), drawings.projected()
    raw_scores = query @ key.T
    scores = raw_scores / 2**0.5
    weights = softmax(scores)
    found = frames(drawing)
    for t in range(3):
        of_token = found[7 * t : 7 * t + 7]
        # One unit for products, scores and exponentials.
        unit = 132 / np.exp(scores).max()
        for step, shown in ((1, raw_scores), (2, scores)):
            wide = [float(of_token[step][f"score-{j}"]["width"]) for j in range(3)]
            np.testing.assert_allclose(wide, unit * abs(shown[t]), atol=0.2)
        for name, expected in (("exp", unit * np.exp(scores[t])), ("weight", 216 * weights[t])):
            wide = [float(of_token[6][f"{name}-{j}"]["width"]) for j in range(3)]
            np.testing.assert_allclose(wide, expected, atol=0.2)
        # A bar starts where the last step has left it, unseen.
        assert of_token[2]["exp-1"]["width"] == of_token[2]["score-1"]["width"]
        assert of_token[3]["weight-1"]["x"] == of_token[3]["exp-1"]["x"]
        assert (of_token[2]["exp-1"]["opacity"], of_token[3]["exp-1"]["opacity"]) == ("0", "1")
        # From the point where all values start, shares go as far as their weights say.
        last, start = (
            of_token[6],
            np.array([float(of_token[0]["output-shaft"][c]) for c in ("x1", "y1")]),
        )
        end = start.copy()
        for j in range(3):
            np.testing.assert_allclose(
                points(of_token[5], f"share-{j}")[0] - start,
                weights[t, j] * (points(of_token[0], f"share-{j}")[0] - start),
                atol=0.11,
            )
            end += points(of_token[5], f"share-{j}")[0] - start
            np.testing.assert_allclose(points(last, f"share-{j}")[0], end, atol=0.25)
        np.testing.assert_allclose(points(last, "output")[0], end, atol=0.25)
    # The values have lengths of their own on the plane: three entries, obliquely.
    tips = np.array([points(found[0], f"share-{j}")[0] - start for j in range(3)]) * (1, -1)
    flat = value @ np.array([[0, 1], [1, 0], [-0.45, -0.6]])
    np.testing.assert_allclose(tips / tips[0, 1], flat / flat[0, 1], atol=0.01)


def test_a_matrix_product_shows_each_entry_as_the_sum_of_its_pairs() -> None:
    drawing, (query, key, _) = moving("matrix_product"), drawings.projected()
    shown, rows = frames(drawing), iter(drawing.table[1:])
    for entry, (i, j) in enumerate(np.ndindex(3, 3)):
        asked, added = shown[2 * entry : 2 * entry + 2]
        for parts, seen in ((asked, "0"), (added, "1")):
            assert parts["sum"]["opacity"] == parts["ways"]["opacity"] == seen
        names = ("the", "cat", "sat")
        assert asked["whose"]["text"] == f"query of {names[i]} · key of {names[j]}"
        shown_sum = minus(f"{query[i] @ key[j]:.2f}")
        assert asked["act"]["text"] == f"Row {names[i]} meets column {names[j]}"
        whole = f"Row {names[i]} × column {names[j]}, added up: {shown_sum}"
        assert added["act"]["text"] == whole
        for parts, done in ((asked, entry), (added, entry + 1)):  # the others are still empty
            there = [parts[f"entry-{other}"]["opacity"] for other in range(9)]
            assert there == ["1"] * done + ["0"] * (9 - done)
        assert added["sum"]["text"] == f"= {shown_sum}"
        assert next(rows)[-1] == shown_sum
        for k, old in product(range(2), range(2)):
            seen = "1" if old == entry % 2 else "0"
            a, b = added[f"a{old}-{k}"], added[f"b{old}-{k}"]
            assert a["opacity"] == b["opacity"] == seen
            if seen == "1":
                assert number(a["text"]) == query[i, k]
                assert number(b["text"].strip("()")) == key[j, k]
                weight = "400" if query[i, k] * key[j, k] == 0 else "600"  # 0 is pale
                assert a["font-weight"] == b["font-weight"] == weight
                # The pair meets above its column of Q and beside its row of Kᵀ.
                assert asked[f"a{old}-{k}"]["x"] == a["x"] and asked[f"b{old}-{k}"]["y"] == b["y"]
    assert next(rows, None) is None


def test_permuted_rows_keep_their_numbers_until_positions_are_added() -> None:
    drawing, (x, *matrices) = moving("permuted"), drawings.examples.running()[1:]
    orders, rows = list(permutations(range(3))), iter(drawing.table[1:])
    found, first = frames(drawing), []
    for frame, (added, order) in enumerate(product((0, 1), orders)):
        parts = found[frame]
        there = x[list(order)] + added * drawings.SHIFTS
        query, key, value = (there @ matrix for matrix in matrices)
        weights = softmax(query @ key.T / 2**0.5)
        output = weights @ value
        if order == (0, 1, 2):
            first.append({
                name: {at: minus(f"{v:.2f}") for at, v in np.ndenumerate(table)}
                for name, table in (("w", weights), ("o", output))
            })

        def place(name: str, axis: int, parts: drawings.Parts = parts) -> float:
            return float(parts[name]["transform"][len("translate(") : -1].split()[axis])

        changed = own = 0
        for i, j in product(range(3), range(3)):
            a, b = order.index(i), order.index(j)
            assert a < b or place(f"row-{i}", 1) >= place(f"row-{j}", 1)
            assert place(f"weight-{i}-{j}", 0) == place(f"key-{j}", 0)
            for name, expected in (("w", weights[a, b]), ("o", output[a, j])):
                shown, at_first = minus(f"{expected:.2f}"), first[added][name][i, j]
                changed += shown != at_first
                if i != 0:  # only the token that is followed has numbers
                    assert f"{name}-new-{i}-{j}-number" not in parts
                    continue
                now, old = (parts[f"{name}-{when}-0-{j}-number"] for when in ("new", "old"))
                assert (now["text"], old["text"]) == (shown, at_first)
                assert now["font-weight"] == ("700" if shown != at_first else "400")
                own += shown != at_first
        assert (changed > 0) == (added == 1 and order != (0, 1, 2))
        assert f" {changed} of 18 numbers" in drawing.labels[frame]
        if added and order != (0, 1, 2):
            assert parts["title"]["text"] == f"With positions, {own} of 6 numbers of “the” change"
        assert float(parts["frame"]["y"]) == place("row-0", 1)
        for a, token in enumerate(order):
            row = next(rows)
            assert row[2] == ("the", "cat", "sat")[token]
            assert row[3] == ", ".join(f"{w:.2f}" for w in weights[a])


def test_the_way_to_the_output_shows_each_matrix_from_its_step_on() -> None:
    drawing, (query, key, value) = moving("attention_steps"), drawings.projected()
    weights = softmax(query @ key.T / np.sqrt(2))
    since = {"X": 0, "Q": 1, "K": 1, "V": 1, "R": 2, "S": 3, "A": 4, "O": 5}
    for frame, parts in enumerate(frames(drawing)):
        step, chosen = divmod(frame, 4)
        for name, first in since.items():
            assert parts[f"grid-{name}"]["opacity"] == str(int(step >= first))
            colour = "ink" if step >= first else "muted"
            for i in range(3):  # of one token, K and V have all their numbers, the others one row
                shown = parts[f"numbers-{name}-{i}"]
                assert shown["fill"].startswith(f"var(--attn-{colour},")
                assert shown["opacity"] == str(int(chosen in (0, i + 1) or name in "KV"))
            assert parts[f"now-{name}"]["opacity"] == str(int(step == first))
            assert parts[f"row-{name}"]["opacity"] == str(int(chosen > 0 and step >= first))
        # The part of the formula that a step computes is lit, and in the end all of it.
        lit = {place for place in range(9) if parts[f"formula-{place}"]["fill-opacity"] == "1"}
        assert lit == set(((), (4, 5, 8), (4, 5), (6,), (2,), (0, 8), range(9))[step])
    numbers = {
        "R = QKᵀ": query @ key.T,
        "R ÷ √dₖ": query @ key.T / np.sqrt(2),
        "A = softmax": weights,
        "O = AV": weights @ value,
    }
    for named, matrix in numbers.items():
        rows = [row[3] for row in drawing.table if row[0] == named]
        found = [[number(cell) for cell in row.split(", ")] for row in rows]
        np.testing.assert_allclose(found, matrix, atol=0.0051)


def test_mask_explorer_ticks_what_each_mask_lets_through() -> None:
    drawing = moving("mask_explorer")
    kinds = product(drawing.controls[0].options, (2, 4), (0, 2))
    for (kind, n_keys, n), parts, label in zip(kinds, frames(drawing), drawing.labels, strict=True):
        key = np.arange(n_keys)
        expected = {
            "causal, top-left": masks.causal(3, n_keys),
            "causal, bottom-right": masks.causal(3, n_keys, align="bottom-right"),
            "window": masks.window(3, n_keys, n, 0),
            "right padding": np.tile(key < n, (3, 1)),
            "causal, right padding": masks.causal(3, n_keys) & (key < n),
            "causal, left padding": masks.causal(3, n_keys) & (key >= n_keys - n),
        }[kind]
        empty = [str(i) for i in range(3) if not expected[i].any()]
        total = f"{expected.sum()} of {3 * n_keys} pairs take part, {expected.mean():.0%}"
        flagged = f"empty rows: {', '.join(empty) or 'none'}"
        assert parts["total"]["text"] == total and parts["empty"]["text"] == flagged
        assert label.startswith(f"{kind}: ") and f"{total}; {flagged}" in label
        for i, j in np.ndindex(3, 4):
            ticked = parts[f"cell-{i}-{j}"]["opacity"] == "1"
            assert ticked == (j < n_keys and expected[i, j])
            assert parts[f"key-{j}"]["opacity"] == str(int(j < n_keys))
        for i, count in enumerate(expected.sum(axis=1)):
            assert parts[f"count-{i}"]["text"] == str(count or "empty")
    assert len(drawing.table) == 1 + 2 * 2 + 4 * 4  # the size counts in four of the six kinds


def test_forms_explorer_shows_the_weights_of_every_form() -> None:
    drawing, (q, k) = moving("forms_explorer"), drawings.formed()
    later = np.triu(np.full((5, 5), -np.inf), 1)
    distance = np.arange(5)[:, None] - np.arange(5)
    s = q @ k.T / 8**0.5
    lengths = np.linalg.norm(q, axis=1)[:, None] * np.linalg.norm(k, axis=1)
    expected = [(n * s, 0.0) for n in (1, 2, 4, 8, 16)]
    expected += [(8**0.5 * (q @ k.T) / lengths, 0.0)] * 5  # QK-norm undoes the factor
    expected += [(n * np.tanh(s / n), 0.0) for n in (50, 8, 4, 2, 1)]
    expected += [(s - slope * distance, 0.0) for slope in (0, 1 / 8, 1 / 4, 1 / 2, 1)]
    expected += [(np.where(distance < n, s, -np.inf), 0.0) for n in (5, 4, 3, 2, 1)]
    expected += [(s, np.exp(sink)) for sink in (-np.inf, 0, 1, 2, 4)]
    for (scores, sink), parts, row in zip(
        expected, frames(drawing), drawing.table[1:], strict=True
    ):
        e = np.exp(scores + later)
        weights = 100 * np.column_stack([e, np.full(5, sink)]) / (e.sum(1, keepdims=True) + sink)
        for j in range(6):
            assert abs(float(parts[f"bar-{j}"]["height"]) - 0.96 * weights[4, j]) < 0.051
            assert float(row[1 + j]) == pytest.approx(weights[4, j], abs=0.51)
        for i, j in [(i, j) for i, j in np.ndindex(5, 6) if j <= i or j == 5]:
            shown = parts[f"percent-{i}-{j}"]["text"]
            assert (shown == "·") == (weights[i, j] == 0)
            assert abs(float(shown.replace("·", "0")) - weights[i, j]) < 0.51


def test_a_click_on_a_key_of_the_mask_sets_its_size() -> None:
    drawing = moving("mask_explorer")
    kinds, sizes = drawing.controls[0].options, (0, 2)
    for (kind, n_keys, n), parts in zip(
        product(kinds, (2, 4), sizes), frames(drawing), strict=True
    ):
        for j in range(4):
            wanted = {"window": 2 - j, "causal, left padding": n_keys - j}.get(kind, j + 1)
            counts = wanted in sizes and not kind.endswith(("top-left", "bottom-right"))
            size = wanted if counts else n  # what cannot be set stays
            assert parts[f"hit-{j}"]["data-drag"] == f"size:{sizes.index(size)}"


def test_bytes_explorer_tells_which_memory_is_large_enough() -> None:
    drawing = figures.bytes_explorer(
        [10, 20], {"a": [50, 1000], "b": [100, 101]}, limits={"large": 1000, "small": 100}, start=10
    )
    told = [[parts[f"fits-{i}"]["text"] for i in (0, 1)] for parts in frames(drawing)]
    assert told == [["fits small", "fits small"], ["fits large", "fits large"]]
    assert [parts["cross-0"]["opacity"] for parts in frames(drawing)] == ["0", "0"]
    first = frames(moving("bytes_explorer"))[-1]
    assert first["fits-0"]["text"] == "too large" and first["cross-0"]["opacity"] == "1"


def test_number_bits_shows_what_is_out_of_range() -> None:
    for value, parts in zip(drawings.BITS.values(), frames(moving("number_bits")), strict=True):
        for name, most in (("float32", 3.4028235e38), ("float16", 65504.0)):
            inside = parts[f"{name}-here"]["fill"].startswith("var(--attn-ink")
            least = 2.0 ** (-149 if name == "float32" else -24)
            assert inside == (value == 0 or least <= abs(value) <= most)


def test_number_bits_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
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
            told = parts[f"{name}-told"]["text"]
            shown, off = row[1 + 2 * column : 3 + 2 * column]
            if np.isinf(held):
                assert told == f"too large: {shown} (overflow)" and number(shown) == held
            elif held == 0 and value:
                assert (shown, off, told) == ("0", "underflow", "too small: 0 (underflow)")
            else:
                assert number(shown) == pytest.approx(held, rel=1e-8)
                assert told.endswith(f" = {shown}, {'relative error ' * (off != 'exact')}{off}")
                factor, power = told.split(" = ")[0].split(" · 2")
                assert number(factor) * 2.0 ** number(power) == pytest.approx(held, rel=1e-8)
                assert (off == "exact") == (held == value)
                if off != "exact":
                    assert number(off) == pytest.approx(abs(held / value - 1), rel=0.06)


def test_tile_walk_shows_the_states_of_the_keys_read_so_far() -> None:
    drawing = moving("tile_walk")
    tiles = [([0, 1], [0, 1, 2]), ([0, 1], [3]), ([2], [0, 1, 2]), ([2], [3])]
    steps = product(("all keys", "causal"), range(5))  # so many tiles are done
    rows = iter(drawing.table[1:])
    for (kind, n), parts, label in zip(steps, frames(drawing), drawing.labels, strict=True):
        part = masks.causal(3, 4) if kind == "causal" else np.ones((3, 4), dtype=bool)
        seen, here = np.zeros((2, 3, 4), dtype=bool)
        for tile in tiles[:n]:
            seen[np.ix_(*tile)] = True
        queries, keys = tiles[n - 1] if n else ([], [])
        here[np.ix_(queries, keys)] = True
        skips = n > 0 and not (part & here).any()
        # The scores of the tile at work stand there, and no others.
        for i, j in np.ndindex(3, 4):
            score = minus(f"{drawings.WALKED[i, j]:.1f}") if part[i, j] else "−∞"
            held = here[i, j] and not skips
            assert parts[f"score-{i}-{j}"]["text"] == (score if held else "")
        n_held = 0 if skips else here.sum()
        assert parts["note"]["text"] == f"{n_held} of 12 scores held" and f"{n_held} of 12" in label
        assert float(parts["held"]["width"]) == 12 * n_held and ("skipped" in label) == skips
        assert parts["masked"]["opacity"] == str(int(kind == "causal"))
        for i in range(3):
            read = seen[i] & part[i]
            scores, values = drawings.WALKED[i, read], drawings.WALKED_VALUE[read]
            row_max = scores.max(initial=-np.inf)
            e = np.exp(scores - row_max)
            shown = [parts[f"{name}-{i}"]["text"] for name in ("m", "ℓ", "õ", "o")]
            *state, output = shown
            finished = np.array_equal(read, part[i])
            if seen[i].any():
                expected = [row_max, e.sum(), e @ values]
                assert np.allclose([number(text) for text in state], expected, atol=0.0051)
                assert (output != "") == finished
                assert not finished or abs(number(output) - e @ values / e.sum()) < 0.0051
            else:
                assert not any(shown)
            # Where the tile raises the largest score, the old sums are multiplied by a factor.
            old, factor = drawings.WALKED[i, read & ~here[i]].max(initial=-np.inf), ""
            if i in queries and np.isfinite(old) and old < row_max:
                factor = f"{np.exp(old - row_max):.2f}"
            assert parts[f"factor-{i}"]["text"] == (factor and f"old ℓ and õ × {factor}")
            if i in queries:
                row = next(rows)
                assert row[:3] == (kind, str(n), str(i))
                assert row[4:] == (*(("skipped",) * 4 if skips else shown), factor)
    assert next(rows, None) is None


def test_online_row_piles_up_the_sums_and_shrinks_them_where_the_line_rises() -> None:
    drawing, (s, v) = moving("online_row"), (drawings.ARRIVING, drawings.ARRIVING_VALUE)
    kinds = ["0: add", "1: add", "2: rise", "2: add", "3: add", "4: rise", "4: add", "divide"]
    assert list(drawing.controls[0].options) == kinds and drawing.controls[0].start == 5
    in_sums, largest = (1, 2, 2, 3, 4, 4, 5, 5), (0.5, 0.5, 2, 2, 2, 3.5, 3.5, 3.5)
    piles, means, heights = [], [], []
    for n, m, parts, row in zip(in_sums, largest, frames(drawing), drawing.table[1:], strict=True):
        e = np.exp(s[:n] - m)
        assert np.allclose([number(cell) for cell in row[3:]], [m, e.sum(), e @ v[:n],
                           e @ v[:n] / e.sum()], atol=0.0051)
        rises = "rises" in drawing.labels[len(piles)]  # the sums of the line before stand there too
        e_was = np.exp(s[:n] - largest[len(piles) - 1])
        was = [f"{e_was.sum():.2f} → ", f"{e_was @ v[:n]:.2f} → "] if rises else ["", ""]
        assert parts["ell"]["text"] == f"height ℓ = {was[0]}{e.sum():.2f}"
        assert parts["o"]["text"] == minus(f"area õ = {was[1]}{e @ v[:n]:.2f}")
        # From the line hang the gaps down to the scores that have come, all to one scale.
        come = n + rises
        gaps = [float(parts[f"gap-{j}"]["height"]) for j in range(come)]
        unit = (float(frames(drawing)[-1]["gap-1"]["height"])) / (s.max() - s[1])
        assert np.allclose(np.array(gaps) / unit, m - s[:come], atol=0.01)
        piles.append([float(parts[f"pile-{j}"]["height"]) for j in range(5)])
        heights.append([float(parts[f"area-{j}"]["height"]) for j in range(5)])
        means.append(float(parts["mean"]["x1"]))
        assert np.allclose(np.array(piles[-1][:n]) / sum(piles[-1]), e / e.sum(), atol=0.005)
        assert not any(piles[-1][n:])
    assert piles == heights
    # Where the line rises, all bars shrink by the printed factor, and the mean width stays.
    for place, factor in ((2, np.exp(-1.5)), (5, np.exp(-1.5))):
        parts = frames(drawing)[place]
        assert parts["factor"]["text"] == f"× {factor:.2f}" and parts["factor"]["opacity"] == "1"
        assert np.allclose(piles[place], factor * np.array(piles[place - 1]), atol=0.11)
        assert means[place] == means[place - 1] and "rises" in drawing.labels[place]
    exact = f"{softmax(s) @ v:.2f}"
    last = frames(drawing)[-1]
    assert last["told"]["text"] == f"mean value = {exact}" and last["plain"]["text"].endswith(exact)
    assert last["title"]["text"] == f"The mean, {exact}: same as the plain softmax"
    assert len({last[f"area-{j}"]["width"] for j in range(5)}) == 1


def test_memory_levels_count_the_bytes_that_cross_the_last_pipe() -> None:
    drawing, (T, d) = moving("memory_levels"), drawings.TOKENS
    large, small = 2 * T**2 / 1e6, 2 * T * d / 1e6
    thirds = [large / 3] * 3
    crosses = {
        "three kernels": [0, 2 * small, *thirds * 3, small + large / 3, *thirds[1:], small, 0],
        "one kernel": [0, 3 * small, *[0] * 12, small, 0],
    }
    rows, shown = iter(drawing.table[1:]), iter(frames(drawing))
    for way, moved in crosses.items():
        totals = np.cumsum(moved)
        assert np.isclose(totals[-1], 4 * small + (4 * large if way == "three kernels" else 0))
        for place, (here, total) in enumerate(zip(moved, totals, strict=True)):
            row, parts = next(rows), next(shown)
            assert row[:2] == (way, str(place))
            assert abs(float(row[3].removesuffix(" MB")) - here) < 0.51
            assert abs(float(row[4].removesuffix(" MB")) - total) < 0.51
            assert abs(float(row[5].removesuffix(" µs")) - total / 2) < 0.51  # at 2 · 10¹²
            assert (parts["here"]["text"] == "nothing crosses") == (here == 0)
            assert parts["stream"]["opacity"] == str(int(here > 2.5 * small + 1))
            assert row[4] in drawing.labels[place + 16 * (way == "one kernel")]

    # The time for memory, at 2 · 10¹², against that of the products, at the peak of an H200.
    def micro(time: float) -> str:
        return f"{time:.{int(time < 5)}f} µs"

    computing, told = 4e6 * T**2 * d / 989.43e12, re.findall(r">([^<]+)</text>", drawing.svg)
    for place, moved in zip((15, 31), crosses.values(), strict=True):
        times = {"memory": sum(moved) / 2, "computing": computing}
        assert {f"{name} {micro(time)}" for name, time in times.items()} <= set(told)
        later = max(times, key=lambda name: times[name])
        assert f"{later} decides, {micro(times[later])} against " in drawing.labels[place]
    assert f"{1 + large / small:.0f} times less traffic" in told
    full = frames(drawing)[15]
    bars = [float(full[part]["width"]) for part in ("bar-0", "bar-1")]
    assert bars[0] / bars[1] == pytest.approx(1 + large / small, rel=0.01)
    # Equal areas are equal bytes: those of a matrix of T × d, of all scores, and of the cache.
    first, end = frames(drawing)[0], frames(drawing)[15]
    area = float(end["kept-scores"]["width"]) * float(end["kept-scores"]["height"])
    assert float(first["small-Q"]["width"]) ** 2 / area == pytest.approx(small / large, rel=0.01)
    cache = next(
        e for e in ET.fromstring(drawing.svg) if e.get("fill", "").startswith("var(--attn-paper")
    )
    assert float(cache.attrib["width"]) * float(cache.attrib["height"]) / area == pytest.approx(
        8 / large, rel=0.01
    )


def test_cache_filling_marks_what_each_call_computes() -> None:
    drawing = moving("cache_filling")
    shown, rows = iter(frames(drawing)), iter(drawing.table[1:])
    for name, chunks in drawings.WAYS.items():
        ends = np.cumsum(chunks or (1, 1, 1, 1))
        n_seen, totals = 0, np.zeros(2, dtype=int)
        for step in range(5):  # the longest way has four calls
            parts = next(shown)
            here = 0 < step <= len(ends)
            end = int(ends[step - 1]) if here else n_seen
            made = 0 if chunks is None else n_seen  # without a cache, all is made anew
            mask = masks.causal(end - made, end, align="bottom-right")
            for i, j in np.ndindex(4, 4):
                asks = here and made <= i < end
                now = asks and j < end and mask[i - made, j]
                looks = {"now": now, "masked": asks and j < end and not now}
                looks["before"] = not asks and j <= i < n_seen
                for look, on in looks.items():
                    mark = parts.get(f"{look}-{i}-{j}", {"opacity": "0"})  # some can never be
                    assert mark["opacity"] == str(int(on))
            for j in range(4):
                now, before = here and made <= j < end, j < (made if here else n_seen)
                assert parts[f"now-key-{j}"]["opacity"] == str(int(now))
                assert parts[f"before-key-{j}"]["opacity"] == str(int(before))
            counted = (int(mask.sum()), end - made) if here else (0, 0)
            totals += counted
            counts = tuple(map(str, (*counted, *totals)))
            parts_of = ("scores", "made", "scores-so-far", "made-so-far")
            assert tuple(parts[count]["text"] for count in parts_of) == counts
            if here:
                row = next(rows)
                assert row[:2] == (name, str(step)) and row[3:] == counts
            n_seen = end
        assert totals[0] == (4 * 5 * 6 / 6 if chunks is None else 4 * 5 / 2)
    assert next(shown, None) is None and next(rows, None) is None
    assert "step 3: all tokens are there. Nothing is left to do." in drawing.labels[13]


def test_temperature_explorer_shows_the_weights_of_every_temperature() -> None:
    drawing = moving("temperature_explorer")
    for temperature, parts, row in zip(
        (0.5, 1.0, 4.0), frames(drawing), drawing.table[1:], strict=True
    ):
        weights = softmax(np.array([0.0, 2.0, -1.0]) / temperature)
        shown = [f"{weight:.2f}" for weight in weights]
        assert [parts[f"weight-{j}"]["text"] for j in range(3)] == shown
        scores = [number(parts[f"score-{j}"]["text"]) for j in range(3)]
        assert scores == [0.0, round(2 / temperature, 2), round(-1 / temperature, 2)]
        assert row[1:] == (*shown, f"{np.exp(-(weights * np.log(weights)).sum()):.2f}")


def place_on_beam(parts: dict[str, dict[str, str]], name: str) -> float:
    """Return the lean of what a mark points to, which UNIT and MIDDLE of the drawing make of it."""
    x = parts[f"{name}-mark"]["transform"].removeprefix("translate(").split()[0]
    return (float(x) - MIDDLE) / UNIT


def assert_balances(parts: dict[str, dict[str, str]], n_words: int) -> None:
    """The discs, heavy as their areas, balance where the output is: to a pixel or two."""
    discs = [parts[f"disc-{j}"] for j in range(n_words)]
    loads = np.array([float(disc["r"]) ** 2 for disc in discs])
    x = np.array([float(disc["cx"]) for disc in discs])
    output = MIDDLE + UNIT * place_on_beam(parts, "attention")
    assert abs(loads @ x / loads.sum() - output) < 4


def test_words_in_context_stand_where_their_weights_put_them() -> None:
    water, money, bank = words.vectors("water money bank")
    plain, senses = words.vectors("bank of the at").T, words.vectors("shore finance").T
    w_k = senses - plain @ np.linalg.lstsq(plain, senses)[0]
    shown = frames(moving("word_in_context"))
    means = [float(words.vectors(s).mean(0) @ (water - money)) for s in drawings.BANKS]
    for way, parts in enumerate(shown):
        right, further = 0, 0
        for i, (sentence, side) in enumerate(drawings.BANKS.items()):
            x, is_bank = words.vectors(sentence), np.array(sentence.split()) == "bank"
            scores = x @ w_k @ [16.0, 16.0] / np.sqrt(2)
            equal = np.full(len(x), 1 / len(x))
            weights = (is_bank * 1.0, equal, softmax(x @ bank), softmax(scores))[way]
            for j, weight in enumerate(weights):
                assert abs(float(parts[f"bar-{i}-{j}"]["height"]) - sides.TALL * weight) < 0.06
            lean = float(weights @ x @ (water - money))
            for name, place in (("disc", lean), ("ring", means[i])):
                x_there = sides.MIDDLE + sides.UNIT * place
                assert abs(float(parts[f"{name}-{i}"]["cx"]) - x_there) < 0.06
            assert parts[f"lean-{i}"]["text"] == (minus(f"{lean:.2f}") if way else "")
            told = (
                {j for j in range(len(x)) if is_bank[j] or j == weights.argmax()} if way > 1 else ()
            )
            for j, weight in enumerate(weights):
                shown_weight = f"{weight:.2f}" if j in told else ""
                assert parts[f"weight-{i}-{j}"]["text"] == shown_weight
            assert (parts[f"ring-{i}"]["opacity"] == "1") == (way > 1)
            sign = 1 if side == "water" else -1
            right, further = right + (lean * sign > 0), further + (sign * (lean - means[i]) > 0)
        assert f"expected side in {right} of 3" in parts["title"]["text"]
        assert way < 3 or f"further in {further}." in parts["more"]["text"]


def test_first_screen_follows_the_formula_step_by_step() -> None:
    plain, senses = words.vectors("bank of the at").T, words.vectors("shore finance").T
    w_k = senses - plain @ np.linalg.lstsq(plain, senses)[0]
    bank, water, money = words.vectors("bank water money")
    sentences = ("the boat reached the bank of the river", "she paid cash at the bank")
    found = {}
    for s, sentence in enumerate(sentences):
        x = words.vectors(sentence)
        scores = x @ w_k @ [16.0, 16.0]
        found[s] = scores, softmax(scores / np.sqrt(2)), x
    shown = frames(moving("first_screen"))
    for step, s in product(range(4), range(2)):
        parts, (scores, weights, x) = shown[2 * step + s], found[s]
        told = [[""] * len(x), [minus(f"{score.round(1) + 0:.1f}") for score in scores]]
        told += [[f"{100 * weight:.0f}%" for weight in weights]] * 2
        assert [parts[f"number-{j}"]["text"] for j in range(len(x))] == told[step]
        results = {"attention": s, "other": 1 - s}
        for name, one in results.items():
            assert parts[f"{name}-mark"]["opacity"] == str(int(step == 3))
            lean = (water - money) @ (found[one][1] @ found[one][2] if step == 3 else bank)
            assert abs(place_on_beam(parts, name) - lean) < 0.6 / UNIT
        for token, score in zip(sentences[s].split(), scores, strict=True):
            assert abs(score) < 1e-9 or token not in ("bank", "of", "the", "at")
    for s, side in enumerate((1, -1)):  # further to the side of the sentence than equal weights go
        parts = shown[6 + s]
        assert side * place_on_beam(parts, "attention") > 0.05 + side * place_on_beam(
            parts, "equal weights"
        )
        best = sentences[s].split()[int(np.argmax(found[s][1]))]
        title = f"“bank” takes {100 * found[s][1].max():.0f}% from “{best}”: it leans to "
        assert parts["title"]["text"] == title + ("water", "money")[s]
        assert_balances(parts, len(sentences[s].split()))


@pytest.mark.parametrize("loop", range(4))
def test_walk_backward_holds_what_its_loop_says(loop: int) -> None:
    """The walk is made again: a sum is read if it has begun, and written when its block goes."""
    drawing, n = moving("backward_walk"), 3
    shown = frames(drawing)
    keys_outside, causal = loop >= 2, loop % 2 == 1
    order = [(j, i) if keys_outside else (i, j) for i, j in product(range(n), repeat=2)]
    read = written = 0
    begun: set[str] = set()
    held: set[str] = set()

    def hold(blocks: set[str]) -> None:
        nonlocal read, written, held
        for block in held - blocks:
            written += {"query": 1, "key": 2}[block[:-1]]
        for block in blocks - held:
            read += 2 + {"query": 1, "key": 2}[block[:-1]] * (block in begun)
        held, begun_now = blocks, blocks - begun
        begun.update(begun_now)

    for frame, (i, j) in enumerate(order, start=(n**2 + 2) * loop + 1):
        skipped = causal and j > i
        if not skipped:
            hold({f"query{i}", f"key{j}"})
        parts = shown[frame]
        for box in ("query-held", "to-query-held", "key-held", "to-key-held", "tile"):
            assert parts[box]["opacity"] == str(int(not skipped)), (box, frame)
        beside = float(parts["to-query-0-sum"]["y"]), float(parts["to-key-0-sum"]["x"])
        assert float(parts["to-query-held"]["y"]) == beside[0] + 68 * i
        assert float(parts["to-key-held"]["x"]) == beside[1] + 68 * j
        assert ("Skipped" in drawing.labels[frame]) == skipped
        assert parts[f"hit-{i}-{j}"]["data-pick"] == f"tile:{(frame - 1) % (n**2 + 2) + 1}"
        if (frame - 1) % (n**2 + 2) % n == n - 1:
            hold(set())  # the block outside goes, and takes the other with it
    told = f"after the last tile. Blocks moved so far: {read} read, {written} written."
    assert told in drawing.labels[(n**2 + 2) * (loop + 1) - 1]


def test_the_timetable_of_a_ring_counts_as_the_package_does() -> None:
    """A tile has 10 by 10 scores; on the diagonal 55 of them, which the drawing calls a half."""
    drawing = figures.ring_timetable(4)
    shown, rows = frames(drawing), iter(drawing.table[1:])
    for balance, first in (("contiguous", 0), ("zigzag", 4)):
        own = [np.concatenate([np.arange(*span) for span in one]) for one in layout(80, 4, balance)]
        counted = np.array(
            [[np.sum(own[r - s] <= own[r][:, None]) for s in range(4)] for r in range(4)]
        )
        for step, rank in product(range(4), repeat=2):
            diagonals = 2 if step == 0 else 0
            *place, source, chunks, tiles, lasts = next(rows)
            assert place == [balance, str(step), str(rank)]
            assert int(source) == (rank - step) % 4
            assert 100 * float(tiles) + 5 * diagonals == counted[rank, step]
            assert 100 * float(lasts) + 5 * diagonals == counted[:, step].max()
            # The ring shows whose keys have come, the timetable what it has shown so far.
            now, owner = shown[first + step], "₀₁₂₃"[(rank - step) % 4]
            word = f"K{owner}V{owner}" if counted[rank, step] else "waits"
            assert now[f"word-{rank}-{step}"]["text"] == word
            assert now[f"status-{rank}"]["text"] == (
                "waits" if word == "waits" else f"{tiles} tiles"
            )
            assert chunks == ", ".join(now[f"key-{rank}-{place}"]["text"] for place in range(2))
            marks = [f"tile-{rank}-{row}-{j}" for row, j in product(range(2), range(8))]
            fresh = [now[part] for part in marks if now.get(part, {}).get("fill-opacity") == "1"]
            halves = [tile for tile in fresh if "h0" in tile["d"]]
            assert len(fresh) - len(halves) / 2 == float(tiles) and len(halves) == diagonals
        for step in range(4):
            assert shown[first + step]["ring"].get("transform") == f"rotate({90 * step})"
    assert next(rows, None) is None
    assert "time 14, of which the devices used 57%." in drawing.labels[3]
    assert "step 3: devices 0, 1 and 2 wait." in drawing.labels[3]
    assert "time 8, of which the devices used 100%." in drawing.labels[7]


def angle(part: dict[str, str]) -> float:
    """Return the angle by which a part is turned, in degrees."""
    found = re.fullmatch(r"rotate\((-?[\d.]+)\)", part["transform"])
    assert found, part
    return float(found[1])


def test_clock_hands_turn_at_their_speeds_and_have_the_table_as_coordinates() -> None:
    drawing = figures.clock_hands(24, 16, start=8)
    radius, shown = 21.0, frames(drawing)
    for t, (frame, row) in enumerate(zip(shown, drawing.table[1:], strict=True)):
        assert row[0] == str(t) == frame["here"]["text"]
        for c in range(8):
            speed = 10000 ** (-c / 8)
            right, up = np.sin(speed * t), np.cos(speed * t)
            assert angle(frame[f"hand-{c}"]) == pytest.approx(np.degrees(speed * t), abs=0.06)
            # Legs and dots are placed to a tenth: the way right to the tip, the way up, the wave.
            level, tip = re.findall(r"-?[\d.]+", frame[f"sin-{c}"]["d"].removeprefix("M0 "))
            assert [float(tip), -float(level)] == pytest.approx(
                radius * np.array([right, up]), abs=0.06
            )
            assert frame[f"cos-{c}"]["d"] == f"M0 0V{level}"
            assert float(frame[f"dot-{c}"]["cx"]) - float(
                shown[0][f"dot-{c}"]["cx"]
            ) == pytest.approx(radius * right, abs=0.06)
            entries = [frame[f"entry-{2 * c + kind}"]["text"] for kind in (0, 1)]
            assert entries == [minus(f"{right:.2f}"), minus(f"{up:.2f}")]
            assert entries == list(row[1 + 2 * c : 3 + 2 * c])
            # Three positions before stand a thin hand, which turns along, and a dot on the wave.
            assert frame[f"before-{c}"]["opacity"] == "01"[t >= 3]
            before = np.sin(speed * max(t - 3, 0))
            assert float(frame[f"dot-before-{c}"]["cx"]) - float(
                shown[0][f"dot-before-{c}"]["cx"]
            ) == pytest.approx(radius * before, abs=0.06)
        product_ = sum(np.cos(3 * 10000 ** (-c / 8)) for c in range(8))
        assert (f" = {product_:.2f}," in frame["product"]["text"]) == (t >= 3)


def test_a_rotary_score_depends_on_the_offset_alone_and_arrows_turn_with_their_positions() -> None:
    drawing, q, k = moving("rotary_offset"), -1.5j, 1 - 1j
    shown = iter(frames(drawing))
    for u, offset in product(range(6), range(1, 7)):
        frame, t = next(shown), u + offset
        turned = q * np.exp(1j * t), k * np.exp(1j * u)
        score = (turned[0] * turned[1].conjugate()).real
        between = np.degrees(abs(np.angle(turned[0] / turned[1])))
        assert number(frame["score"]["text"].removeprefix("score q·k = ")) == round(score, 2)
        assert number(drawing.table[offset][1]) == round(score, 2)
        assert frame["between"]["text"] == f"angle between them {between:.0f}°"
        for part, place in (("q", t), ("k", u)):
            assert angle(frame[f"{part}-arm"]) == pytest.approx(-np.degrees(place), abs=0.06)
            assert angle(frame[f"{part}-upright"]) == -angle(frame[f"{part}-arm"])
        filled = [i for i in range(6) if frame[f"bar-{i}"]["fill"] != "none"]
        assert filled == [offset - 1]
    assert next(shown, None) is None


def test_the_atlas_draws_each_head_as_lines_and_as_a_small_picture() -> None:
    drawing, n = moving("head_explorer"), 3
    weights = drawings.head_weights_of_two()
    shown, places = frames(drawing), np.ndindex(*weights.shape[:3])
    pairs = [p for p in np.ndindex(n, n) if weights[..., p[0], p[1]].max() >= 0.1]
    for (sentence, layer, head), parts, label in zip(places, shown, drawing.labels, strict=True):
        table = weights[sentence, layer, head]
        told = [parts[f"percent-{one}-0"]["text"] for one in range(2)]
        assert told == [f"{weight:.0%}" for weight in weights[:, layer, head, 1, 0]]
        for place, pair in enumerate(pairs):
            width = int(parts[f"{place:x}"]["stroke-width"])
            assert width == (round(9 * table[pair]) if table[pair] >= 0.1 else 0)
        strongest = ("[CLS]", "a", ("because", "so")[sentence])[table[1].argmax()]
        assert f"a looks at {strongest} {table[1].max():.0%}" in label
        # One step back, the first token, and "a" → the first, most in the first sentence.
        first = weights[0]
        back = np.mean([first[:, :, 1, 0], first[:, :, 2, 1]], axis=0)
        for name, mean in enumerate((back, first[..., 0].mean(-1), first[:, :, 1, 0])):
            best = np.unravel_index(mean.argmax(), mean.shape) == (layer, head)
            assert parts[f"name-{name}"]["stroke-width"] == ("3" if np.all(best) else "1")
    for (layer, head), group in zip(np.ndindex(2, 2), small_pictures(drawing), strict=True):
        assert group.attrib["data-pick"] == f"layer:{layer} head:{head}"
        for path, least in zip(group[1:], (0.2, 0.4), strict=True):
            cells = np.zeros((n, n), dtype=bool)
            for run in re.findall(r"M(\d+) (\d+)v(\d+)", path.attrib["d"]):
                key, begin, count = map(int, run)
                cells[begin : begin + count, key] = True
            assert np.array_equal(cells, weights[0, layer, head] >= least)


def small_pictures(drawing: figures.MovingDrawing) -> list[ET.Element]:
    """Return the groups that are clicked to choose something."""
    groups = ET.fromstring(drawing.svg).iter("{http://www.w3.org/2000/svg}g")
    return [group for group in groups if "data-pick" in group.attrib]


def test_head_weights_show_each_head_and_their_mean() -> None:
    heads = np.array(drawings.TWO_HEADS, dtype=float)
    for query, parts in enumerate(frames(moving("head_weights"))):
        for row, table in enumerate((heads.mean(axis=0), *heads)):
            for key, weight in enumerate(table[query]):
                assert parts[f"weight-{row}-{key}"]["text"] == f"{weight:.2f}"
                assert float(parts[f"arc-{row}-{key}"]["stroke-width"]) == 12 * weight
        assert float(parts["query-0"]["x"]) == 116 + 112 * query


@pytest.mark.parametrize("heads", [drawings.HEADS, [[0, 1, 0], [0, 0, 1]]])
def test_heads_tell_two_letters_apart_that_their_mean_may_not(heads: list[list[float]]) -> None:
    drawing = figures.which_head(drawings.PEOPLE, drawings.LETTERS, heads)
    exact, mean = heads[0][1] == 1, np.mean(heads, axis=0)
    for (pair, step), parts in zip(
        product(drawings.LETTERS, range(4)), frames(drawing), strict=True
    ):
        way = ("", "the mean of both heads", "head 0", "head 1")[step]
        told = {row[0]: row[2:] for row in drawing.table[1:] if row[1] == way}
        outputs = []
        for side, (sender, recipient) in (("there", pair), ("back", pair[::-1])):
            used = np.array(heads) if step > 1 else np.tile(mean, (2, 1))
            values = np.array([[0, 0], drawings.PEOPLE[sender], drawings.PEOPLE[recipient]])
            for slot, found in enumerate(used @ values):
                written = step == 1 or step >= slot + 2
                assert parts[f"frame-{side}-{slot}"]["opacity"] == str(int(written))
                found = found * written
                for place, entry in enumerate(found):
                    bar = parts[f"found-{side}-{slot}-{place}"]
                    high = float(bar["height"]) / 14
                    up = float(bar["y"]) + float(bar["height"]) <= 178 + 32
                    assert (high if up else -high) == pytest.approx(entry, abs=0.01)
                outputs.append([round(float(entry), 2) + 0.0 for entry in found])
                words_there = parts[f"whose-{side}-{slot}"]["text"]
                name = (sender, recipient)[slot] if step > 1 and (exact or slot) else "?"
                assert words_there == (f"{('from', 'to')[slot]} {name}" if written else "")
                if step and written:
                    row = told[f"{sender} to {recipient}"][slot]
                    assert [number(entry) for entry in row.split(", ")] == outputs[-1]
        if step:
            same = outputs[:2] == outputs[2:]
            assert same == (exact and step == 1)
            said = "are the same" if same else "differ"
            assert parts["verdict"]["text"] == f"output: the two envelopes {said}"


def test_pieces_of_matrices_go_to_their_heads_and_come_together_again() -> None:
    shown = frames(moving("heads_diagram"))

    def at(step: int, part: str) -> tuple[float, float]:
        x, y = shown[step][part]["transform"].removeprefix("translate(").rstrip(")").split()
        return float(x), float(y)

    for letter, size in {"Q": 4, "K": 4, "V": 5}.items():
        # Side by side before the split, and then one piece in each head, at the same height.
        for step, gap in ((0, 6 * size), (1, 6 * 13 + 8 + 18)):
            (x, y), *others = (at(step, f"{letter}{head}") for head in range(3))
            assert np.allclose(others, [(x + gap, y), (x + 2 * gap, y)], atol=0.02)
    for step in range(5):
        parts = shown[step]
        assert parts["A0"]["opacity"] == parts["O2"]["opacity"] == str(int(step > 1))
        assert parts["was-Q0"]["opacity"] == str(int(step > 0))
        assert parts["was-O0"]["opacity"] == parts["joined-shape"]["opacity"] == str(int(step > 2))
        assert parts["Y"]["opacity"] == str(int(step > 3))
    x, y = at(3, "O0")
    assert np.allclose([at(3, "O1"), at(4, "O2")], [(x + 30, y), (x + 60, y)], atol=0.02)


def test_looking_back_draws_an_arc_for_each_weight() -> None:
    for query, parts in enumerate(frames(moving("looking_back"))):
        for layer, table in enumerate(drawings.BACK.values()):
            for key, weight in enumerate(table[query]):
                part = f"{layer}-{key}"
                assert parts[f"a{part}"]["opacity"] == str(int(weight > 0))
                assert float(parts[f"a{part}"]["stroke-width"]) == 0.75 + 3 * weight
                assert parts[f"w{part}"]["text"] == (f"{100 * weight:.0f}" if weight else " ")
                role = "query" if key == query else "key" if weight else "muted"
                assert f"--attn-{role}" in parts[f"b{part}"]["stroke"]


def test_chosen_keys_are_dots_and_their_weight_is_told() -> None:
    drawing = moving("chosen_keys")
    for step, parts in enumerate(frames(drawing)):
        for query, keys in enumerate(drawings.CHOSEN[step]):
            for n, key in enumerate(keys):
                assert float(parts[f"d{query}-{n}"]["cx"]) == 42 + 12 * (key + 0.5)
                assert float(parts[f"d{query}-{n}"]["cy"]) == 46 + 12 * (query + 0.5)
        assert parts["share-0"]["text"] == ("0.25", "0.75")[step]
    # Row i has i + 1 equal weights, and two of them are chosen.
    kept = np.mean([2 / (i + 1) for i in range(8, 16)])
    assert [row[2] for row in drawing.table[1:]] == [f"{kept:.2f}"] * 2


def test_recall_explorer_draws_the_mean_similarity_of_each_step_of_pairs() -> None:
    drawing = moving("recall_explorer")
    # 192 pixels stand for a similarity of 1; three steps of pairs share 384 pixels.
    for n, parts, row in zip((2, 4, 6), frames(drawing), drawing.table[1:], strict=True):
        assert parts["pairs"]["text"] == f"{n} pairs written"
        for index, found in enumerate(([1 / n] * n, [i / 5 for i in range(n)])):
            means = [(a + b) / 2 for a, b in zip(found[::2], found[1::2], strict=True)]
            points = [
                tuple(map(float, point.split(",")))
                for point in parts[f"line-{index}"]["points"].split()
            ]
            assert points[: n // 2] == [
                pytest.approx((110 + 128 * step, 226 - 192 * mean), abs=0.06)
                for step, mean in enumerate(means)
            ]
            assert len(points) == 3 and set(points[n // 2 :]) <= {points[n // 2 - 1]}
            end = parts[f"end-{index}"]
            assert (float(end["cx"]), float(end["cy"])) == points[-1]
            shown = [f"{mean:.2f}" for mean in (means[0], means[-1])]
            assert [parts[f"{at}-{index}"]["text"] for at in ("oldest", "newest")] == shown
            assert list(row[1 + 2 * index : 3 + 2 * index]) == shown
