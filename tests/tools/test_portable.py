"""The pure parts of `make portable`: its levels, their environment, and how it reads pytest."""

from __future__ import annotations

import pytest

from tools import portable
from tools.portable import Level, Outcome, Seen

NOW = ["X86_V3", "X86_V4", "AVX512_ICL"]
BEFORE = ["SSE42", "FMA3", "AVX2", "AVX512F"]


def test_each_level_switches_off_all_above_it() -> None:
    top, wide, narrow, lowest = portable.levels(NOW, "x86_64")
    assert top == Level("AVX512_ICL", {})
    assert wide.name == "X86_V4" and narrow.name == "X86_V3" and lowest.name == "baseline"
    off = [level.variables["NPY_DISABLE_CPU_FEATURES"] for level in (wide, narrow, lowest)]
    assert off == ["AVX512_ICL", "X86_V4 AVX512_ICL", "X86_V3 X86_V4 AVX512_ICL"]
    torch = [level.variables["ATEN_CPU_CAPABILITY"] for level in (wide, narrow, lowest)]
    assert torch == ["avx512", "avx2", "default"]
    assert "FMA" in lowest.variables["GLIBC_TUNABLES"]
    assert "FMA" not in narrow.variables["GLIBC_TUNABLES"]


def test_levels_of_an_older_numpy() -> None:
    steps = portable.levels(BEFORE, "AMD64")
    assert [step.name for step in steps] == [*reversed(BEFORE), "baseline"]
    torch = [step.variables["ATEN_CPU_CAPABILITY"] for step in steps[1:]]
    assert torch == ["avx2", "default", "default", "default"]


def test_elsewhere_numpy_alone_is_asked() -> None:
    assert portable.levels(["ASIMDHP", "SVE"], "aarch64")[1:] == [
        Level("ASIMDHP", {"NPY_DISABLE_CPU_FEATURES": "SVE"}),
        Level("baseline", {"NPY_DISABLE_CPU_FEATURES": "ASIMDHP SVE"}),
    ]
    assert portable.levels([], "arm64") == [Level("baseline", {})]


def test_each_level_runs_with_one_thread_and_with_three() -> None:
    steps = portable.levels(NOW, "x86_64")
    planned = [(level.name, threads) for level, threads in portable.plan(steps)]
    names = ["AVX512_ICL", "X86_V4", "X86_V3", "baseline"]
    assert planned == [(name, threads) for name in names for threads in (1, 3)]


def test_environment_of_a_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("KEPT", "yes")
    top, *_, lowest = portable.levels(NOW, "x86_64")
    native, given = portable.environment(top, 3), portable.environment(lowest, 1)
    assert not portable.SWITCHES & native.keys()
    assert {native[name] for name in portable.THREADS} == {"3"}
    assert lowest.variables.items() <= given.items()
    assert given["KEPT"] == "yes" and given["MKL_NUM_THREADS"] == "1"


def test_a_level_that_does_not_take_effect_is_told() -> None:
    level = portable.levels(NOW, "x86_64")[2]
    good = Seen(["X86_V3"], "", "AVX2", "", "Haswell")
    assert portable.problem(level, good) is None
    assert portable.problem(level, good._replace(blas="")) is None  # another library than OpenBLAS
    assert "still uses X86_V4" in str(portable.problem(level, good._replace(on=NOW[:2])))
    assert "=avx2 was asked for, AVX512 is used" in str(
        portable.problem(level, good._replace(torch="AVX512"))
    )
    assert "=Haswell was asked for, Zen" in str(portable.problem(level, good._replace(blas="Zen")))
    assert portable.problem(Level("native", {}), good) is None


@pytest.mark.parametrize(
    ("said", "counts", "failed"),
    [
        ("..\n640 passed in 78.41s (0:01:18)\n", "640 passed", []),
        ("=== 2 passed, 1 skipped in 0.50s ===\n", "2 passed, 1 skipped", []),
        (
            "FAILED chapters/11.ipynb::Cell 12 - \x1b[91mNotebook\nFAILED tests/a.py::test[b]\n"
            "ERROR tests/c.py\n2 failed, 1 passed, 1 error in 1.00s\n",
            "2 failed, 1 passed, 1 error",
            ["chapters/11.ipynb::Cell 12", "tests/a.py::test[b]", "tests/c.py"],
        ),
        ("INTERNALERROR> MemoryError\n", "pytest did not finish", []),
    ],
)
def test_what_pytest_says(said: str, counts: str, failed: list[str]) -> None:
    assert portable.outcome(said) == Outcome(counts, failed)


def test_this_machine_can_be_named_and_asked() -> None:
    assert portable.cpu()
    native = portable.seen(Level("native", {}))
    assert native.torch and "NumPy" in native.versions
    lowest = portable.levels(native.on, "")[-1]
    assert portable.seen(lowest).on == []
