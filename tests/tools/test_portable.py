"""The levels of `tools.portable`: what each switches off, and how one that does not is told.

That this machine can be asked is shown by `make slow` and `make tenth`, which run the tool.
"""

from __future__ import annotations

import pytest

from tools import portable, tenth
from tools.portable import Level, Seen

NOW = ["X86_V3", "X86_V4", "AVX512_ICL"]
OLDER = ["SSE42", "FMA3", "AVX2", "AVX512F"]


def test_each_level_switches_off_all_above_it() -> None:
    top, *lower = portable.levels(NOW, "x86_64")
    assert top == Level("AVX512_ICL", {})
    assert [level.name for level in lower] == ["X86_V4", "X86_V3", "baseline"]
    off = [level.variables["NPY_DISABLE_CPU_FEATURES"] for level in lower]
    assert off == ["AVX512_ICL", "X86_V4 AVX512_ICL", "X86_V3 X86_V4 AVX512_ICL"]
    assert portable.levels(["ASIMDHP", "SVE"], "aarch64")[1:] == [
        Level("ASIMDHP", {"NPY_DISABLE_CPU_FEATURES": "SVE"}),
        Level("baseline", {"NPY_DISABLE_CPU_FEATURES": "ASIMDHP SVE"}),
    ]
    assert portable.levels([], "arm64") == [Level("baseline", {})]


@pytest.mark.parametrize(
    ("features", "machine", "torch"),
    [
        (NOW, "x86_64", ["avx512", "avx2", "default"]),
        (OLDER, "AMD64", ["avx2", "default", "default", "default"]),
    ],
)
def test_torch_follows_numpy(features: list[str], machine: str, torch: list[str]) -> None:
    _, *lower = portable.levels(features, machine)
    assert [level.variables["ATEN_CPU_CAPABILITY"] for level in lower] == torch


def test_a_level_that_does_not_take_effect_is_told() -> None:
    level = portable.levels(NOW, "x86_64")[2]
    good = Seen(["X86_V3"], "", "AVX2", "Haswell")
    assert portable.problem(level, good) is None
    assert portable.problem(level, good._replace(blas="")) is None  # another library than OpenBLAS
    assert "still uses X86_V4" in str(portable.problem(level, good._replace(on=NOW[:2])))
    assert "=avx2 was asked" in str(portable.problem(level, good._replace(torch="AVX512")))
    assert "=Haswell was asked" in str(portable.problem(level, good._replace(blas="Zen")))


def test_ten_tenths_are_all_files_and_no_file_twice() -> None:
    every = portable.asked("baseline", 3, due=None)
    assert {"chapters/03_scaling.ipynb", "tests/attnbook/test_words.py"} < set(every)
    tenths = [name for n in tenth.TENTHS for name in portable.asked("baseline", 3, n)]
    assert sorted(tenths) == sorted(every)
    assert portable.asked("baseline", 3, 0) != portable.asked("baseline", 1, 0)
