"""Alignment and windows in the rungs that take them, and what the door does for NumPy's rungs."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import numpy as np
import pytest
from inputs import drawn
from rungs import RUNGS, Rung, every_rung, every_rung_with_gradients, on

from attnlib import numpy_blockwise
from attnlib._checks import Band
from attnlib.numpy_blockwise import SoftmaxState

E, E_V = 3, 2
NUMPY = [rung for rung in RUNGS if not rung.on_tensors]
every_numpy_rung = on(NUMPY)
WINDOWS = [None, (0, 0), (2, 1), (None, 1), (3, None), (None, None), (20, 20)]
LENGTHS = [(5, 7), (7, 5), (1, 11), (11, 1), (0, 3), (3, 0)]


def seen(
    n_queries: int, n_keys: int, align: str, window: Any, is_causal: bool
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return the mask that the keywords stand for, one pair at a time."""
    shift = n_keys - n_queries if align == "bottom-right" else 0
    left, right = window or (None, None)
    mask = np.zeros((n_queries, n_keys), dtype=bool)
    for i, j in np.ndindex(mask.shape):
        place = i + shift
        mask[i, j] = (
            (left is None or j >= place - left)
            and (right is None or j <= place + right)
            and not (is_causal and j > place)
        )
    return mask


@every_rung
@pytest.mark.parametrize(
    ("align", "is_causal"), list(itertools.product(("top-left", "bottom-right"), (0, 1)))
)
def test_alignment_and_window_are_a_mask_that_is_never_made(
    rung: Rung, align: str, is_causal: int
) -> None:
    for (n_queries, n_keys), window in itertools.product(LENGTHS, WINDOWS):
        arrays = drawn((2, n_queries, E), (2, n_keys, E), (2, n_keys, E_V))
        mask = seen(n_queries, n_keys, align, window, bool(is_causal))
        options = {"is_causal": bool(is_causal), "causal_align": align, "window": window}
        for one, other in zip(
            rung.with_lse(*arrays, **options), rung.with_lse(*arrays, mask), strict=True
        ):
            np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-13)


@every_rung
def test_a_window_holds_beside_a_mask_and_with_groups(rung: Rung) -> None:
    arrays = drawn((6, 5, E), (2, 7, E), (2, 7, E_V))
    kept = np.random.default_rng(3).random((6, 1, 7)) < 0.6
    window = {"window": (2, 0), "causal_align": "bottom-right"}
    both = kept & seen(5, 7, "bottom-right", (2, 0), False)
    found = rung(*arrays, kept, enable_gqa=True, **window)
    np.testing.assert_allclose(found, rung(*arrays, both, enable_gqa=True), rtol=1e-14)


def test_tiles_outside_of_the_window_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    tiles = []
    update = SoftmaxState.update

    def counted(self: SoftmaxState, *given: Any) -> SoftmaxState:
        tiles.append(given)
        return update(self, *given)

    monkeypatch.setattr(SoftmaxState, "update", counted)
    arrays = drawn((40, E), (40, E), (40, E_V))
    attend = numpy_blockwise.scaled_dot_product_attention
    attend(*arrays, window=(4, 0), block_size=4)
    assert len(tiles) == 10 + 9  # the tile on the diagonal, and the one before it
    tiles.clear()
    attend(*arrays, is_causal=True, block_size=4)
    assert len(tiles) == 10 * 11 / 2


def test_a_band_says_where_keys_begin_and_end() -> None:
    band = Band(first=2, left=1, right=0)
    assert band.span(slice(0, 3), 9) == (1, 5)
    assert band.span(slice(8, 9), 9) == (9, 9)
    assert Band(first=-3, right=0).span(slice(0, 2), 9) == (0, 0)
    assert Band().span(slice(4, 5), 9) == (0, 9)
    assert band.holds(slice(1, 2), slice(2, 4))
    assert not band.holds(slice(1, 2), slice(2, 5))
    assert not band.holds(slice(1, 2), slice(1, 4))


@every_rung
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"causal_align": "left"}, ValueError, "causal_align must be 'top-left' or 'bottom-right'"),
        ({"causal_align": 1}, ValueError, "got 1"),
        ({"window": 3}, TypeError, r"window must be None or a pair \(left, right\); got 3"),
        ({"window": (1, 2, 3)}, TypeError, r"got \(1, 2, 3\)"),
        ({"window": (-1, 0)}, ValueError, "window's left bound must be at least 0; got -1"),
        ({"window": (0, 1.5)}, TypeError, "window's right bound must be an integer; got 1.5"),
        ({"blocks": 3}, TypeError, "unexpected keyword argument 'blocks'"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    rung: Rung, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        rung(*drawn((5, E), (7, E), (7, E_V)), **options)


@every_numpy_rung
def test_the_mean_of_the_largest_number_is_itself(rung: Rung) -> None:
    for dtype in ("float16", "float32", "float64"):
        largest = np.finfo(dtype).max
        query, key = (x.astype(dtype) for x in drawn((3, E), (7, E)))
        value = np.full((7, 1), -largest)
        assert np.isfinite(rung(query, key, value)).all()
        np.testing.assert_allclose(rung(query, key, value), -largest, rtol=1e-3)


@every_rung_with_gradients
def test_gradients_under_a_window_are_those_under_its_mask(rung: Rung) -> None:
    arrays = drawn((2, 5, E), (2, 11, E), (2, 11, E_V), (2, 5, E_V))
    for align in ("top-left", "bottom-right"):
        found = rung.gradients(*arrays, causal_align=align, window=(2, 1))
        truth = rung.gradients(*arrays, seen(5, 11, align, (2, 1), False))
        for name, gradient in truth.items():
            np.testing.assert_allclose(found[name], gradient, rtol=1e-13, atol=1e-14)
    # What lies outside of every window is not read.
    key, value = arrays[1].copy(), arrays[2].copy()
    key[:, 7:] = value[:, 7:] = np.nan
    found = rung.gradients(arrays[0], key, value, arrays[3], window=(2, 1))
    assert all(np.isfinite(gradient).all() for gradient in found.values())


def attention_weights(rung: Rung, *arrays: Any, **options: Any) -> Any:
    return rung.take(rung.function("attention_weights")(*map(rung.give, arrays), **options))


DENSE = on(rung for rung in RUNGS if rung.name.endswith("_dense"))


@DENSE
def test_weights_of_grouped_heads(rung: Rung) -> None:
    query, key = drawn((2, 6, 5, E), (2, 2, 7, E))
    options: dict[str, Any] = {"is_causal": True, "causal_align": "bottom-right"}
    found = attention_weights(rung, query, key, enable_gqa=True, **options)
    for h in range(6):
        alone = attention_weights(rung, query[:, h], key[:, h // 3], **options)
        np.testing.assert_allclose(found[:, h], alone, rtol=1e-14)
    np.testing.assert_allclose(found.sum(axis=-1), 1)
    assert not found[..., seen(5, 7, "bottom-right", None, True) == 0].any()


@DENSE
def test_self_attention_of_grouped_heads(rung: Rung) -> None:
    def self_attention(*arrays: Any, **options: Any) -> Any:
        return rung.take(rung.function("self_attention")(*map(rung.give, arrays), **options))

    X, W_Q, W_K, W_V = drawn((4, 1, 5, 6), (6, 6, E), (2, 6, E), (2, 6, E_V))
    options: dict[str, Any] = {"window": (2, 0)}
    found = self_attention(X, W_Q, W_K, W_V, enable_gqa=True, **options)
    assert found.shape == (4, 6, 5, E_V)
    for h in range(6):
        matrices = W_Q[h], W_K[h // 3], W_V[h // 3]
        alone = self_attention(X[:, 0], *matrices, **options)
        np.testing.assert_allclose(found[:, h], alone, rtol=1e-13)
    with pytest.raises(ValueError, match="heads"):
        self_attention(X, W_Q, W_K, W_V)
    with pytest.raises(ValueError, match=r"W_K \(d_model, d\); got X .*, W_K \(6,\)"):
        self_attention(X, W_Q, W_K[0, :, 0], W_V)


@every_numpy_rung
def test_arguments_are_described_once_in_each_docstring(rung: Rung) -> None:
    function = rung.function() if not rung.blocks else rung.function().func  # type: ignore[attr-defined]
    said = inspect.getdoc(function) or ""
    assert said.startswith("Return ")
    for section in ("Args:", "Shapes:", "Raises:", "Source:", "Example:"):
        assert said.count(f"\n{section}\n") == 1
    for name in ("query", "attn_mask", "scale", "causal_align", "window"):
        assert f"\n    {name}" in said
    assert said.index("Example:") > said.index("Raises:")
