"""The tolerances of attnlib.conformance refuse what they are there to refuse."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tolerance import assert_close, epsilon

TRUTH = np.array([1.0, -2.0, 3.0])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_bound_is_epsilon_times_the_size(dtype: str) -> None:
    step = epsilon(dtype)
    assert_close(TRUTH + 9 * step, TRUTH, dtype=dtype, size=10)
    with pytest.raises(AssertionError, match="above the bound"):
        assert_close(TRUTH + 12 * step, TRUTH, dtype=dtype, size=10)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_may_be_twice_as_wrong_as_torch(dtype: str) -> None:
    peer = TRUTH + 0.5
    assert_close(TRUTH + 1, TRUTH, dtype=dtype, peer=peer)
    with pytest.raises(AssertionError, match="above the bound"):
        assert_close(TRUTH + 1 + 3 * epsilon(dtype), TRUTH, dtype=dtype, peer=peer)


def test_nan_is_refused_however_wide_the_bound() -> None:
    spoilt = np.array([1.0, np.nan, 3.0])
    for got, truth in ((spoilt, TRUTH), (TRUTH, spoilt)):
        with pytest.raises(AssertionError, match=r"entry \(1,\): expected .*nan"):
            assert_close(got, truth, dtype="float64", size=np.inf)
    assert_close(spoilt, spoilt, dtype="float64", size=1)


def test_infinities_must_agree() -> None:
    high, low = np.array([np.inf]), np.array([-np.inf])
    with pytest.raises(AssertionError, match="expected -inf, got inf"):
        assert_close(high, low, dtype="float64", size=np.inf)
    with pytest.raises(AssertionError, match="expected 1, got inf"):
        assert_close(high, np.array([1.0]), dtype="float64", size=1)


def test_a_peer_that_overflowed_measures_nothing() -> None:
    with pytest.raises(AssertionError, match="measures nothing"):
        assert_close(TRUTH, TRUTH, dtype="float16", peer=TRUTH * np.nan)


def test_shapes_must_agree() -> None:
    with pytest.raises(AssertionError, match="expected shape"):
        assert_close(TRUTH[:1], TRUTH, dtype="float64", size=1)


def test_where_nothing_is_finite_there_is_nothing_to_measure() -> None:
    nan = np.array([np.nan])
    assert_close(nan, nan, dtype="float16", peer=nan)
    with pytest.raises(AssertionError, match="expected nan, got 1"):
        assert_close(np.array([1.0]), nan, dtype="float16", peer=nan)


def test_what_measures_must_be_there() -> None:
    with pytest.raises(AssertionError, match="size of the problem"):
        assert_close(TRUTH, TRUTH, dtype="float64")
    with pytest.raises(AssertionError, match="against plain attention"):
        assert_close(TRUTH, TRUTH, dtype="float16")


def test_the_first_wrong_entry_is_named() -> None:
    got = np.array([[1.0, 2.0], [3.5, np.nan]])
    with pytest.raises(AssertionError, match=r"entry \(1, 0\): expected 3, got 3.5; the error 0.5"):
        assert_close(got, np.array([[1.0, 2.0], [3.0, 4.0]]), dtype="float64", size=1)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_table_of_epsilons(dtype: str) -> None:
    assert epsilon(dtype) == np.finfo(dtype).eps
    assert epsilon("bfloat16") == float(ml_dtypes.finfo("bfloat16").eps)
