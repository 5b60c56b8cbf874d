"""Every frame of every moving figure against numbers that the tests compute themselves."""

from __future__ import annotations

from collections.abc import Callable
from html import escape

import drawings
import numpy as np
import pytest
from drawings import MOVING, frames, moving, number
from mistakes import softmax

from attnbook import examples, experiments, figures, words
from attnbook.figures.drawing import colour
from attnbook.figures.moving import changes, one_line
from attnlib import masks
from attnlib.torch_ring import work


@pytest.mark.parametrize("name", MOVING)
def test_a_moving_drawing_tells_briefly_what_a_move_has_changed(name: str) -> None:
    drawing = moving(name)
    told = [label.split("\n")[0] for label in drawing.labels]
    assert all(10 < len(words) <= 160 for words in told)
    sizes = [len(control.options) for control in drawing.controls]
    by_control = np.array(told, dtype=object).reshape(sizes)
    slider = [control.kind for control in drawing.controls].index("slider")
    for along in np.moveaxis(by_control, slider, -1).reshape(-1, sizes[slider]):
        assert len(set(along)) == sizes[slider]
    start = tuple(control.start for control in drawing.controls)
    first = int(np.ravel_multi_index(start, sizes))
    assert drawing.alt == one_line(drawing.labels[first])
    assert f'aria-label="{escape(drawing.alt)}"' in drawing.svg
    assert all(label.count("\n") <= 1 for label in drawing.labels)


def test_what_changes_is_found_in_the_finished_frames() -> None:
    frame = '<g data-part="a" opacity="{}"><text data-part="b">{}</text><path d="M0"/></g>'
    found = changes([frame.format(*values) for values in ((0, "x&lt;"), (1, ""), (0, "x"))])
    assert found == {"a": {"opacity": "010"}, "b": {"text": ["x<", "", "x"]}}
    with pytest.raises(ValueError, match="the same elements with the same attributes"):
        changes([frame, frame.replace("<path", "<line")])
    with pytest.raises(ValueError, match="must have a data-part; got M0"):
        changes([frame, frame.replace("M0", "M1")])


def large_forms() -> figures.MovingDrawing:
    draw = np.random.default_rng(18).standard_normal
    return figures.forms_explorer(2 * draw((8, 16)), draw((8, 16)))


@pytest.mark.parametrize(
    "draw",
    [
        figures.backward_walk,
        lambda: figures.cache_filling(7, {"all": None, "one": [1] * 7, "two": [4, 1, 1, 1]}),
        large_forms,
        figures.mask_explorer,
        lambda: figures.tile_walk(np.zeros((5, 5)), np.zeros(5)),
    ],
)
def test_a_figure_of_many_parts_stays_small(draw: Callable[[], figures.Drawing]) -> None:
    assert len(draw()._repr_html_().encode()) < 60_000


def test_tables_of_two_figures_on_one_page_have_two_names() -> None:
    stepper, context = moving("attention_stepper"), moving("word_in_context")
    assert 'aria-label="All values of the figure"' in stepper._repr_html_()
    assert 'aria-label="All values of the word in its sentences"' in context._repr_html_()


def test_stepper_shows_each_number_from_the_step_that_computes_it() -> None:
    drawing, tokens = moving("attention_stepper"), examples.running().tokens
    query, key, value = drawings.projected()
    raw_scores = query @ key.T
    weights = softmax(raw_scores / np.sqrt(2))
    output = weights @ value
    since = {"raw": 1, "score": 2, "exp": 3, "weight": 4, "share": 5}
    for frame, parts in enumerate(frames(drawing)):
        t, step = divmod(frame, 7)
        for j in range(3):
            for name, first in since.items():
                assert (parts[f"{name}-{j}"]["text"] == "…") == (step < first), (name, frame)
            if step == 6:
                assert parts[f"weight-{j}"]["text"] == f"{weights[t, j]:.3f}"
                assert parts[f"raw-{j}"]["text"] == minus(f"{raw_scores[t, j]:.2f}")
        if step == 6:
            entries = minus(", ".join(f"{entry:.2f}" for entry in output[t]))
            assert parts["output"]["text"] == f"o = ({entries})"
            assert entries in drawing.labels[frame] and tokens[t] in drawing.labels[frame]
    assert frame == 3 * 7 - 1
    assert [row[5] for row in drawing.table[1:]] == [f"{weight:.3f}" for weight in weights.flat]


def minus(shown: str) -> str:
    """Return numbers with a true minus, and none before zero."""
    return shown.replace("-0.00", "0.00").replace("-", "−")


def test_scaling_explorer_shows_the_weights_and_the_means_of_each_rule() -> None:
    drawing = moving("scaling_explorer")
    assert len(drawing.table[0]) == 10 and drawing.table[0][0] == "dₖ"
    raw_scores = experiments.growing_scores(drawings.SIZES, seed=5)
    for d_k, raw, parts, row in zip(
        drawings.SIZES, raw_scores, frames(drawing), drawing.table[1:], strict=True
    ):
        expected = [str(d_k)]
        for column, mean in enumerate(experiments.scaling_rules(d_k, n_draws=50).values()):
            weights = softmax(raw / (1, d_k**0.5, d_k)[column])
            bars = [float(parts[f"bar-{column}-{j}"]["height"]) for j in range(8)]
            assert np.allclose(bars, 140 * weights, atol=0.051)
            means = [f"{x:.2f}" for x in (mean.score_std, mean.largest, mean.entropy)]
            names = ("std", "largest", "entropy")
            assert [parts[f"{name}-{column}"]["text"] for name in names] == means
            expected += means
        assert row == tuple(expected)


def test_head_explorer_shows_the_weights_of_a_token_in_a_layer_and_head() -> None:
    weights = np.random.default_rng(0).dirichlet(np.full(3, 0.3), size=(2, 4, 3))
    assert (weights < 0.05).any() and (weights > 0.9).any()
    drawing = figures.head_explorer(["a", "bb", "c"], weights, start=(1, 1, 3))
    places = list(np.ndindex(3, 2, 4))
    assert drawing.alt == drawing.labels[places.index((1, 1, 3))]
    for (token, layer, head), parts, label in zip(
        places, frames(drawing), drawing.labels, strict=True
    ):
        assert label.startswith(f"{['a', 'bb', 'c'][token]}, layer {layer}, head")
        middle = float(parts["mark"]["y"]) + 12
        for key, weight in enumerate(weights[layer, head, token]):
            line, shown, seen = parts[f"l{key}"], parts[f"w{key}"]["text"], weight >= 0.05
            assert float(line["y1"]) == middle
            assert shown == (f"{100 * weight:.0f}" if seen else " ")
            assert int(line["stroke-width"]) == (max(round(8 * weight), 1) if seen else 0)
    assert [row[0] for row in drawing.table[1:]] == [f"{n}.{m}" for n in (0, 1) for m in range(4)]


def test_looking_back_shows_the_weights_of_a_token_in_each_layer() -> None:
    for query, parts in enumerate(frames(moving("looking_back"))):
        assert parts["note"]["text"] == f"guess: {['', 'a', 'b'][query]}"
        for layer, weights in enumerate(drawings.BACK.values()):
            for key, weight in enumerate(weights[query]):
                share = f"{100 * weight:.0f}" if weight else " "
                assert parts[f"w{layer}-{key}"]["text"] == share
                assert parts[f"a{layer}-{key}"]["opacity"] == str(int(weight > 0))
                thick = float(parts[f"a{layer}-{key}"]["stroke-width"])
                assert thick == pytest.approx(0.75 + 3 * weight, abs=0.01)


def towards(degrees: float) -> np.ndarray:
    """Return the direction of an angle."""
    return np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])


def tip(arrow: dict[str, str], centre: tuple[float, float]) -> np.ndarray:
    """Return where the head of an arrow ends, from the centre of the plane."""
    x, y = map(float, arrow["points"].split(" ")[0].split(","))
    return np.array([x - centre[0], centre[1] - y])


def test_turned_query_shows_scores_weights_and_the_answer() -> None:
    drawing = moving("turned_query")
    for frame, parts in enumerate(frames(drawing)):
        query = np.sqrt(2) * towards(15 * frame)
        scores = drawings.DRINK_KEYS @ query
        weights = softmax(scores)
        answer = weights @ drawings.PRICES
        for j in range(3):
            assert abs(number(parts[f"score-{j}"]["text"]) - scores[j]) < 0.0051
            assert parts[f"weight-{j}"]["text"] == f"{weights[j]:.2f}"
            assert abs(float(parts[f"bar-{j}"]["width"]) - 62 * weights[j]) < 0.051
        assert parts["answer"]["text"] == f"price {answer:.2f}"
        assert drawing.labels[frame].startswith(f"Query at {15 * frame}°: price {answer:.2f};")
        assert drawing.table[frame + 1][0] == f"{15 * frame}°"
        # The query lies on a circle, the answer between the lowest price, at 60, and the highest.
        pointed = tip(parts["query-tip"], (104, 136))
        assert np.allclose(pointed, 72 * towards(15 * frame), atol=0.06)
        assert abs(float(parts["answer"]["x"]) - (60 + 320 * (answer - 2) / 2)) < 0.06
    assert frame == 23 and drawing.controls[0].start == 0


def test_turned_pair_multiplies_entry_by_entry_and_by_the_angle() -> None:
    drawing = moving("turned_pair")
    angles = range(0, 360, 30)
    turned = [(a, b) for a in angles for b in angles]
    for (a, b), parts, label in zip(turned, frames(drawing), drawing.labels, strict=True):
        product = 2 * towards(a) @ (1.5 * towards(b))
        shown = parts["product"]["text"].removeprefix("q·k = ")
        assert abs(number(shown) - product) < 0.0051 and f"q·k = {shown}." in label
        between = f"{np.degrees(np.arccos(np.clip(product / 3, -1, 1))):.0f}°"
        assert parts["title"]["text"].endswith(f"θ = {between}")
        assert parts["by-angle"]["text"] == f"2 · 1.5 · cos {between}"
        shadow = parts["shadow-length"]["text"].removeprefix("shadow of k: ")
        assert abs(number(shadow) - product / 2) < 0.0051
        wide = float(parts["bar"]["width"])
        assert abs(wide - 160 * abs(product) / 3) < 0.051
        assert wide == 0 or parts["bar"]["fill"] == colour("blue" if product > 0 else "orange")
    assert [row[0] for row in drawing.table[1:]] == [f"{a}°" for a in range(0, 181, 30)]
    assert drawing.table[4][1:] == ("0.00", "0.00")


def test_rotary_offset_keeps_the_score_when_both_move() -> None:
    drawing = moving("rotary_offset")
    # One radian a position: the query, at −90°, and the key, at −45°, turn anticlockwise.
    scores = {offset: 1.5 * 2**0.5 * np.cos(offset - np.pi / 4) for offset in range(1, 7)}
    places = [(u, offset) for u in range(6) for offset in scores]
    for (u, offset), parts, label in zip(places, frames(drawing), drawing.labels, strict=True):
        shown = minus(f"{scores[offset]:.2f}")
        assert label == f"cat at {u}, sat at {u + offset}: offset {offset}, score {shown}."
        assert parts["score"]["text"] == f"score q·k = {shown}"
        query = 80 * towards(np.degrees(u + offset) - 90)
        key = 80 * 2**0.5 / 1.5 * towards(np.degrees(u) - 45)
        for name, position, vector in (("q", u + offset, query), ("k", u, key)):
            assert np.allclose(tip(parts[f"{name}-tip"], (104, 186)), vector, atol=0.1)
            assert float(parts[f"{name}-word"]["x"]) == 16 + 34 * (position + 0.5)
        between = np.degrees(np.arccos(np.cos(offset - np.pi / 4)))
        assert parts["between"]["text"] == f"angle between them {between:.0f}°"
        assert [o for o in scores if parts[f"bar-{o - 1}"]["fill"] != "none"] == [offset]
    assert [row[0] for row in drawing.table] == ["offset", *"123456"]
    assert drawing.controls[1].options == tuple("123456")
    first = figures.rotary_offset([1, 0], [0, 1], ("q", "k"))
    assert [control.start for control in first.controls] == [0, 0]


def test_temperature_explorer_shows_the_weights_of_every_temperature() -> None:
    drawing = moving("temperature_explorer")
    assert drawing.controls[0].options == ("1/2", "1", "4")
    for frame, temperature in enumerate((0.5, 1.0, 4.0)):
        parts = frames(drawing)[frame]
        scores = np.array([0.0, 2.0, -1.0]) / temperature
        weights = softmax(scores)
        keys = f"{np.exp(-(weights * np.log(weights)).sum()):.2f}"
        shown = [parts[f"weight-{j}"]["text"] for j in range(3)]
        assert shown == [f"{weight:.2f}" for weight in weights]
        for j in range(3):
            assert abs(float(parts[f"bar-{j}"]["height"]) - 144 * weights[j]) < 0.051
            assert number(parts[f"score-{j}"]["text"]) == round(scores[j], 2)
        assert parts["keys"]["text"] == f"effective number of keys {keys}"
        assert drawing.labels[frame].endswith(f"effective number of keys {keys}.")
        name = drawing.controls[0].options[frame]
        assert drawing.table[frame + 1] == (name, *shown, keys)


def test_temperature_explorer_counts_one_key_for_the_lowest_temperature() -> None:
    drawing = figures.temperature_explorer([3.0, 1.0], ["p", "q"], powers=(-6, 0, 12))
    assert [row[-1] for row in drawing.table[1:]] == ["1.00", "1.44", "2.00"]


def place(marker: dict[str, str]) -> tuple[float, float]:
    """Return where a marker is moved to."""
    x, y = marker["transform"].removeprefix("translate(").removesuffix(")").split()
    return float(x), float(y)


def test_bytes_explorer_moves_a_marker_along_each_curve() -> None:
    drawing = moving("bytes_explorer")
    shown = frames(drawing)
    assert [parts["tokens"]["text"] for parts in shown] == [
        f"{n:,} tokens" for n in drawings.LENGTHS
    ]
    assert [parts["bytes-0"]["text"] for parts in shown] == ["1.0 MB", "4.0 MB", "64 MB"]
    assert drawing.labels[0] == "1,000 tokens: square 1.0 MB, straight 999 kB."
    assert [row[0] for row in drawing.table] == ["tokens", "1,000", "2,000", "8,000"]
    square, straight = (np.array([place(parts[f"marker-{i}"]) for parts in shown]) for i in (0, 1))
    here = [float(parts["here"]["x1"]) for parts in shown]
    assert here == square[:, 0].tolist() == straight[:, 0].tolist()
    # Axes are logarithmic: eight times the length is three doublings, a square twice as steep.
    assert here[2] - here[0] == pytest.approx(3 * (here[1] - here[0]), abs=0.05)
    rises = [points[0, 1] - points[2, 1] for points in (square, straight)]
    assert rises[0] == pytest.approx(2 * rises[1], abs=0.05)


def test_roofline_explorer_moves_each_marker_along_the_roof() -> None:
    drawing = moving("roofline_explorer")
    shown = frames(drawing)
    assert [parts["block"]["text"] for parts in shown] == [
        f"blocks of {n} queries" for n in (16, 64, 128)
    ]
    assert [parts["told-1"]["text"] for parts in shown] == [
        "1 a byte, roof 4, memory",
        "4 a byte, roof 16, memory",
        "100 a byte, roof 40, products",
    ]
    assert [row[0] for row in drawing.table] == ["block", "16", "64", "128"]
    slow, fast = ([place(parts[f"marker-{i}"]) for parts in shown] for i in (0, 1))
    # Left of the balance, 10, the roof rises like the intensity; right of it, it is flat.
    (x_1, y_1), (x_4, y_4), (x_100, y_100) = fast
    (x_2, y_2), _, (x_3, y_3) = slow
    assert x_2 - x_1 == pytest.approx(x_4 - x_2, abs=0.05)  # logarithmic
    assert y_1 - y_2 == pytest.approx(y_2 - y_4, abs=0.05)
    assert x_1 < x_2 < x_3 < x_4 < x_100 and y_1 > y_2 > y_3 > y_4 > y_100


def test_mask_explorer_ticks_what_each_mask_lets_through() -> None:
    drawing = moving("mask_explorer")
    cases = [(keys, n) for keys in (2, 4) for n in (0, 2)]
    kinds = [(kind, *case) for kind in drawing.controls[0].options for case in cases]
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
        size = {str(n), "any"}
        [row] = [r for r in drawing.table if r[:2] == (kind, str(n_keys)) and r[2] in size]
        assert f"{row[6]} pairs take part, {row[7]}" == total
        for i, j in np.ndindex(3, 4):
            ticked = parts[f"cell-{i}-{j}"]["opacity"] == "1"
            assert ticked == (j < n_keys and expected[i, j])
            assert parts[f"key-{j}"]["opacity"] == str(int(j < n_keys))
        for i, count in enumerate(expected.sum(axis=1)):
            assert parts[f"count-{i}"]["text"] == str(count or "empty")
    assert len(drawing.table) == 1 + 2 * 2 + 4 * 4  # the size counts in four of the six kinds
    started = figures.mask_explorer(3, (2, 4), (0, 2), start=("window", 4, 2))
    assert started.alt.startswith("window: i − 2 ≤ j ≤ i; 4 keys")


def test_forms_explorer_shows_the_weights_of_every_form() -> None:
    drawing, (q, k) = moving("forms_explorer"), drawings.formed()
    later = np.triu(np.full((5, 5), -np.inf), 1)
    distance = np.arange(5)[:, None] - np.arange(5)
    s = q @ k.T / 8**0.5
    lengths = np.linalg.norm(q, axis=1)[:, None] * np.linalg.norm(k, axis=1)
    normed = 8**0.5 * (q @ k.T) / lengths
    slopes = {"0": 0.0, "1/8": 0.125, "1/4": 0.25, "1/2": 0.5, "1": 1.0}
    sinks = {"−∞": 0.0, "0": 1.0, "1": np.e, "2": np.e**2, "4": np.e**4}
    expected = [(f"queries × {n}", n * s, 0.0) for n in (1, 2, 4, 8, 16)]
    expected += [(f"queries × {n}, then QK-norm", normed, 0.0) for n in (1, 2, 4, 8, 16)]
    expected += [(f"soft cap, limit {n}", n * np.tanh(s / n), 0.0) for n in (50, 8, 4, 2, 1)]
    expected += [(f"ALiBi, slope {m}", s - x * distance, 0.0) for m, x in slopes.items()]
    expected += [
        (f"window of {n} key{'s' * (n > 1)}", np.where(distance < n, s, -np.inf), 0.0)
        for n in (5, 4, 3, 2, 1)
    ]
    expected += [(f"sink, s = {name}", s, power) for name, power in sinks.items()]
    for (title, scores, sink), parts, label, row in zip(
        expected, frames(drawing), drawing.labels, drawing.table[1:], strict=True
    ):
        e = np.exp(scores + later)
        weights = np.column_stack([e, np.full(5, sink)]) / (e.sum(1, keepdims=True) + sink)
        assert parts["title"]["text"] == row[0] == title
        assert label.startswith(f"{title}. Query 4 in percent: key 0 ")
        for j in range(6):
            assert abs(float(parts[f"bar-{j}"]["height"]) - 96 * weights[4, j]) < 0.051
            assert float(row[1 + j]) == pytest.approx(100 * weights[4, j], abs=0.51)
        for i, j in np.ndindex(5, 6):
            if j <= i or j == 5:
                shown = parts[f"percent-{i}-{j}"]["text"]
                assert (shown == "·") == (weights[i, j] == 0)
                assert abs(float(shown.replace("·", "0")) - 100 * weights[i, j]) < 0.51


def test_number_bits_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    drawing = moving("number_bits")
    kinds = {"float32": torch.int32, "bfloat16": torch.int16, "float16": torch.int16}
    for value, parts, label, row in zip(
        drawings.BITS.values(), frames(drawing), drawing.labels, drawing.table[1:], strict=True
    ):
        for column, (name, kind) in enumerate(kinds.items()):
            tensor = torch.tensor(value, dtype=torch.float64).to(getattr(torch, name))
            held, size = tensor.item(), 8 * tensor.element_size()
            word = f"{tensor.view(kind).item() % 2**size:0{size}b}"
            for place, bit in enumerate(word):
                assert parts[f"{name}-{place}"]["text"] == bit, (name, value)
                assert parts[f"{name}-{place}-box"]["opacity"] == bit
            told = parts[f"{name}-told"]["text"]
            shown, off = row[1 + 2 * column : 3 + 2 * column]
            assert f"{name} {shown}, " in label
            if np.isinf(held):
                assert off == "overflow" and told == f"too large: {shown} (overflow)"
                assert number(shown) == held
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
    steps = [(kind, n) for kind in ("all keys", "causal") for n in range(5)]  # n tiles are done
    rows = iter(drawing.table[1:])
    for (kind, n), parts, label in zip(steps, frames(drawing), drawing.labels, strict=True):
        part = masks.causal(3, 4) if kind == "causal" else np.ones((3, 4), dtype=bool)
        skipped = [not part[np.ix_(*tile)].any() for tile in tiles]
        seen, here = np.zeros((2, 3, 4), dtype=bool)
        for tile in tiles[:n]:
            seen[np.ix_(*tile)] = True
        queries, keys = tiles[n - 1] if n else ([], [])
        here[np.ix_(queries, keys)] = True
        assert float(parts["here"]["width"]) == 36 * len(keys)
        for tile in range(4):
            name = f"{tile // 2}-{tile % 2}"
            done, passed = tile < n - 1 and not skipped[tile], tile < n and skipped[tile]
            assert parts[f"done-{name}"]["opacity"] == str(int(done))
            assert parts[f"skip-{name}"]["opacity"] == str(int(passed))
        # The scores of the tile at work stand there, and no others.
        skips = n > 0 and skipped[n - 1]
        for i, j in np.ndindex(3, 4):
            score = minus(f"{drawings.WALKED[i, j]:.1f}") if part[i, j] else "−∞"
            held = here[i, j] and not skips
            assert parts[f"score-{i}-{j}"]["text"] == (score if held else "")
        if n:
            assert ("Skipped" if skips else f"Scores held: {here.sum()}") in label
        for i in range(3):
            read = seen[i] & part[i]
            scores, values = drawings.WALKED[i, read], drawings.WALKED_VALUE[read]
            row_max = scores.max(initial=-np.inf)
            e = np.exp(scores - row_max)
            shown = [parts[f"{name}-{i}"]["text"] for name in ("m", "ℓ", "õ", "o")]
            state, output = [number(text) for text in shown[:3]], shown[3]
            assert np.allclose(state, [row_max, e.sum(), e @ values], atol=0.0051)
            finished = np.array_equal(read, part[i])
            assert (output != "…") == finished
            assert not finished or abs(number(output) - e @ values / e.sum()) < 0.0051
            if i in queries:
                row = next(rows)
                assert row[:3] == (kind, str(n), str(i)) and row[3].startswith("key")
                assert row[4:] == (("skipped",) * 4 if skips else tuple(shown))
    assert next(rows, None) is None and drawing.controls[1].start == 4


def test_cache_filling_marks_what_each_call_computes() -> None:
    drawing = moving("cache_filling")
    shown, rows = iter(frames(drawing)), iter(drawing.table[1:])
    for name, chunks in drawings.WAYS.items():
        ends = np.cumsum(chunks or (1, 1, 1, 1))
        n_seen = total_scores = total_keys = 0
        for step in range(5):  # the longest way has four calls
            parts = next(shown)
            here = 0 < step <= len(ends)
            end = int(ends[step - 1]) if here else n_seen
            made = 0 if chunks is None else n_seen  # without a cache, all is made anew
            mask = masks.causal(end - made, end, align="bottom-right")
            for i, j in np.ndindex(4, 4):
                asks = here and made <= i < end
                now = asks and j < end and mask[i - made, j]
                assert parts[f"now-{i}-{j}"]["opacity"] == str(int(now))
                masked = asks and j < end and not now
                assert parts[f"masked-{i}-{j}"]["opacity"] == str(int(masked))
                before = not asks and j <= i < n_seen
                assert parts[f"before-{i}-{j}"]["opacity"] == str(int(before))
            for j in range(4):
                now, before = here and made <= j < end, j < (made if here else n_seen)
                assert parts[f"now-key-{j}"]["opacity"] == str(int(now))
                assert parts[f"before-key-{j}"]["opacity"] == str(int(before))
            scores, keys = (int(mask.sum()), end - made) if here else (0, 0)
            total_scores, total_keys = total_scores + scores, total_keys + keys
            counts = tuple(map(str, (scores, keys, total_scores, total_keys)))
            names = ("scores", "made", "scores-so-far", "made-so-far")
            assert tuple(parts[count]["text"] for count in names) == counts
            if here:
                row = next(rows)
                assert row[:2] == (name, str(step)) and row[3:] == counts
            n_seen = end
        assert total_scores == (4 * 5 * 6 / 6 if chunks is None else 4 * 5 / 2)
    assert next(shown, None) is None and next(rows, None) is None
    assert "step 3: all tokens are there. Nothing is left to do." in drawing.labels[13]


def test_word_in_context_shows_the_weights_and_the_cosines_of_its_output() -> None:
    drawing = moving("word_in_context")
    bank, probes = words.vectors("bank")[0], words.vectors(drawings.PROBES)
    cases = [(text, scale) for text in ("bank", *drawings.BANKS) for scale in (0, 384**-0.5, 1, 4)]
    for (sentence, scale), parts, label in zip(cases, frames(drawing), drawing.labels, strict=True):
        tokens, x = sentence.split(), words.vectors(sentence)
        weights = softmax(scale * x @ bank)
        output = weights @ x
        cosines = probes @ output / np.sqrt(output @ output)
        for row in range(6):
            token, weight = (tokens[row], weights[row]) if row < len(tokens) else ("", 0)
            assert parts[f"token-{row}"]["text"] == token
            assert parts[f"weight-{row}"]["text"] == (f"{weight:.2f}" if token else "")
            assert abs(float(parts[f"weight-bar-{row}"]["width"]) - 90 * weight) < 0.051
        near = [parts[f"cosine-{row}"]["text"] for row in range(3)]
        assert near == [f"{cosine:.2f}" for cosine in cosines]
        told = ", ".join(
            f"{probe} {cosine}" for probe, cosine in zip(drawings.PROBES, near, strict=True)
        )
        assert f"cosine with {told}." in label
        assert ("alone" if sentence == "bank" else f"“bank” in “{sentence}”") in label
    assert len(drawing.table) == 1 + 16


def test_word_in_context_draws_a_negative_cosine_to_the_left() -> None:
    drawing = figures.word_in_context("bank", ["the bank"], ["he", "rat"])
    found = words.vectors("he rat") @ words.vectors("bank")[0]
    for row, cosine in enumerate(found):
        bar = frames(drawing)[0][f"cosine-bar-{row}"]
        assert abs(float(bar["width"]) - abs(100 * cosine)) < 0.051
        assert abs(float(bar["x"]) - 296 - min(0, 100 * cosine)) < 0.051


def test_which_head_shows_one_heads_weights_and_what_all_heads_give() -> None:
    drawing = moving("which_head")
    cases = [(rows, head) for rows in drawings.LETTERS.values() for head in (0, 1, None)]
    for (rows, head), parts in zip(cases, frames(drawing), strict=True):
        row = np.mean(drawings.HEADS, axis=0) if head is None else np.array(drawings.HEADS[head])
        for j, weight in enumerate(row):
            assert parts[f"weight-{j}"]["text"] == f"{weight:.2f}"
        for place in (0, 1):
            taken = row if head is None else np.array(drawings.HEADS[place])
            for index, value in enumerate(taken @ np.array(rows, dtype=float)):
                square = parts[f"found-{place}-{index}"]
                side = 24 * abs(value) ** 0.5
                assert float(square["width"]) == pytest.approx(side, abs=0.01)
                assert (square["fill"] != "none") == (round(value, 2) > 0)
            framed = parts[f"frame-{place}"]["opacity"] == "1"
            assert framed == (head in (None, place))


def test_handout_links_hold_each_printed_step_against_the_step_before_and_against_x() -> None:
    drawing, handout = moving("handout_links"), examples.published_identity()
    raw_scores, root = handout.X @ handout.X.T, np.sqrt(3)
    first = handout.first_row_weights[None]
    links = [
        (handout.raw_scores, None, 2),
        (handout.raw_scores, raw_scores, 2),
        (handout.scores, handout.raw_scores / root, 2),
        (handout.scores, raw_scores / root, 2),
        (first, softmax(handout.scores)[:1], 3),
        (first, softmax(raw_scores / root)[:1], 3),
    ]
    found = []
    for (printed, computed, digits), parts, label in zip(
        links, frames(drawing), drawing.labels, strict=True
    ):
        n_marked = 0
        for i, j in np.ndindex(5, 5):
            above = f"{printed[i, j]:.{digits}f}" if i < len(printed) else ""
            below = f"{computed[i, j]:.{digits}f}" if above and computed is not None else ""
            assert parts[f"printed-{i}-{j}"]["text"] == above
            assert parts[f"computed-{i}-{j}"]["text"] == below
            differs = below != "" and above != below
            assert parts[f"frame-{i}-{j}"]["opacity"] == str(int(differs))
            n_marked += differs
        found.append(n_marked)
        result = parts["result"]["text"]
        said = "nothing" if computed is None else f"{n_marked} of {printed.size}"
        assert result in label and result.startswith(said)
        assert result.endswith("printed sum 0.983") == (len(printed) == 1)
    assert found == [0, 15, 0, 15, 5, 5]
    assert len(drawing.table) == 1 + 3 * 25 + 2 * 5
    assert sum(row[-1] == "yes" for row in drawing.table) == sum(found)
    assert "row 1, column 3: printed 1.48, computed 1.27; row 1, column 4" in drawing.labels[1]


@pytest.mark.parametrize("loop", range(4))
def test_walk_backward_holds_what_its_loop_says(loop: int) -> None:
    """The walk is made again: a sum is read if it has begun, and written when its block goes."""
    drawing, n = moving("backward_walk"), 3
    shown = frames(drawing)
    keys_outside, causal = loop >= 2, loop % 2 == 1
    order = [(i, j) for i in range(n) for j in range(n)]
    if keys_outside:
        order.sort(key=lambda tile: tile[::-1])
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
        for side, place in (("query", i), ("key", j)):
            for block in range(n):
                for box in (f"{side}-{block}-held", f"to-{side}-{block}-held"):
                    thick = shown[frame][box]["opacity"] == "1"
                    assert thick == (block == place and not skipped), (box, frame)
        assert ("Skipped" in drawing.labels[frame]) == skipped
        assert shown[frame][f"tile-{i}-{j}"]["opacity"] == str(int(not skipped))
        if (frame - 1) % (n**2 + 2) % n == n - 1:
            hold(set())  # the block outside goes, and takes the other with it
    told = f"after the last tile. Blocks moved so far: {read} read, {written} written."
    assert told in drawing.labels[(n**2 + 2) * (loop + 1) - 1]
    if not causal:
        assert read + written == (4 * n**2 + 3 * n if keys_outside else 6 * n**2 + n)


def test_the_timetable_of_a_ring_counts_as_the_package_does() -> None:
    """A tile has 10 by 10 scores; on the diagonal 55 of them, which the drawing calls a half."""
    drawing = figures.ring_timetable(4)
    shown, rows = frames(drawing), iter(drawing.table[1:])
    for layout, first in (("contiguous", 0), ("zigzag", 4)):
        counted = np.array(work(80, 4, True, layout))
        for step in range(4):
            diagonals = 2 if step == 0 else 0
            for rank in range(4):
                *place, source, _, tiles, lasts = next(rows)
                assert place == [layout, str(step), str(rank)]
                assert int(source) == (rank - step) % 4
                assert 100 * float(tiles) + 5 * diagonals == counted[rank, step]
                assert 100 * float(lasts) + 5 * diagonals == counted[:, step].max()
                word = str(rank) if counted[rank, step] else "waits"
                assert shown[first + step][f"word-{rank}-{step}"]["text"] == word
    assert next(rows, None) is None
    assert [shown[frame]["device-7-0"]["text"] for frame in (2, 3, 7)] == ["", "3", "0"]
    assert "time 14, of which the devices used 57%." in drawing.labels[3]
    assert "Nothing to do: device 0, 1, 2." in drawing.labels[3]
    assert "time 8, of which the devices used 100%." in drawing.labels[7]
