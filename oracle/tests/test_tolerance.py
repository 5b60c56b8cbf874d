"""The tolerances of attncheck refuse what they are there to refuse."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tolerance import assert_close, epsilon

TRUTH = np.array([1.0, -2.0, 3.0])
SPOILT = np.array([1.0, np.nan, 3.0])
HIGH, LOW, NAN, ONE = (np.array([x]) for x in (np.inf, -np.inf, np.nan, 1.0))
FLOAT64: dict[str, Any] = {"dtype": "float64", "size": 1}
FLOAT16: dict[str, Any] = {"dtype": "float16", "peer": TRUTH}


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


@pytest.mark.parametrize(
    ("got", "truth", "how", "said"),
    [
        (SPOILT, TRUTH, FLOAT64 | {"size": np.inf}, r"entry \(1,\): expected .*nan"),
        (TRUTH, SPOILT, FLOAT64 | {"size": np.inf}, r"entry \(1,\): expected nan"),
        (HIGH, LOW, FLOAT64 | {"size": np.inf}, "expected -inf, got inf"),
        (HIGH, ONE, FLOAT64, "expected 1, got inf"),
        (ONE, NAN, FLOAT16 | {"peer": NAN}, "expected nan, got 1"),
        (TRUTH, TRUTH, FLOAT16 | {"peer": TRUTH * np.nan}, "measures nothing"),
        (TRUTH[:1], TRUTH, FLOAT64, "expected shape"),
        (TRUTH, TRUTH, {"dtype": "float64"}, "size of the problem"),
        (TRUTH, TRUTH, {"dtype": "float16"}, "against plain attention"),
        (TRUTH + np.array([0, 0.5, np.nan]), TRUTH, FLOAT64,
         r"entry \(1,\): expected -2, got -1.5; the error 0.5"),
    ],
)
def test_what_is_refused(got: Any, truth: Any, how: dict[str, Any], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        assert_close(got, truth, **how)


def test_nan_and_infinity_are_right_where_they_should_be() -> None:
    assert_close(SPOILT, SPOILT, **FLOAT64)
    assert_close(HIGH, HIGH, **FLOAT64)
    assert_close(NAN, NAN, **FLOAT16 | {"peer": NAN})


def test_the_table_of_epsilons() -> None:
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        assert epsilon(dtype) == float(ml_dtypes.finfo(dtype).eps)
