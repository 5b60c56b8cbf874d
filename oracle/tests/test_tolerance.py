"""The tolerances of attncheck refuse what they are there to refuse."""

from __future__ import annotations

from contextlib import nullcontext
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


@pytest.mark.parametrize(
    ("got", "truth", "how", "said"),
    [
        (TRUTH + 9 * 2.0**-23, TRUTH, {"dtype": "float32", "size": 10}, ""),
        (TRUTH + 12 * 2.0**-23, TRUTH, {"dtype": "float32", "size": 10}, "above the bound"),
        # Half precision may be twice as wrong as torch is, and a rounding more.
        (TRUTH + 1, TRUTH, FLOAT16 | {"peer": TRUTH + 0.5}, ""),
        (TRUTH + 1.003, TRUTH, FLOAT16 | {"peer": TRUTH + 0.5}, "above the bound"),
        (SPOILT, SPOILT, FLOAT64, ""),
        (HIGH, HIGH, FLOAT64, ""),
        (NAN, NAN, FLOAT16 | {"peer": NAN}, ""),
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
    with pytest.raises(AssertionError, match=said) if said else nullcontext():
        assert_close(got, truth, **how)


def test_the_table_of_epsilons() -> None:
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        assert epsilon(dtype) == float(ml_dtypes.finfo(dtype).eps)
