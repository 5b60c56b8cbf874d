"""What is read from compiled kernels: `attnbook.compiled`."""

from __future__ import annotations

import subprocess

import pytest

pytest.importorskip("triton", reason="triton is for Linux")

import triton
import triton.language as tl

from attnbook.compiled import Loop, code_of, gpu, loops

UNIT = tl.constexpr(1.5)


@triton.jit
def powers(x):
    return tl.exp2(x * UNIT)


@triton.jit
def sums_of_powers(source, target, n_rows, HALF: tl.constexpr, WIDTH: tl.constexpr):
    columns = tl.arange(0, WIDTH)
    total = tl.zeros([WIDTH], tl.float32)
    for row in range(n_rows):
        x = tl.load(source + row * WIDTH + columns).to(tl.float32)
        total += powers(x * 0.5 if HALF else x)
    tl.store(target + columns, total)


def test_a_thread_computes_its_share_as_the_arguments_choose() -> None:
    """The compiler may take several rows in one turn of the loop: a power for each load."""
    arguments = {"source": "float16", "target": "float32", "n_rows": 7, "HALF": True, "WIDTH": 512}
    code = code_of(sums_of_powers, arguments, architecture=75, warps=2)
    assert code.threads == 32 * 2
    assert 16 <= code.registers <= 128
    assert code.spilled == 0
    assert code.loops
    for instructions, kinds in code.loops:
        assert instructions == sum(kinds.values())
        assert kinds["exponentials"] == 512 // code.threads * kinds["global memory"]
        assert kinds["factors"] == 2 * kinds["exponentials"]
        assert "spills" not in kinds


def test_a_process_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess([], 1, "", "the width must be a power of two")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(RuntimeError, match=r"sums_of_powers does not compile for sm_80: .*power"):
        code_of(sums_of_powers, {}, architecture=80)


ASSEMBLY = """
        /*0000*/                   MOV R1, R2 ;                  /* 0x00000a00ff017b82 */
                                                                 /* 0x000e700000000800 */
        /*0010*/                   FADD.FTZ R1, R2, R3 ;         /* 0x00000a00ff017b82 */
        /*0020*/              @!P0 MUFU.EX2 R4, R1 ;             /* 0x00000a00ff017b82 */
        /*0030*/              @UP1 STL.64 [R1+0x8], R4 ;         /* 0x00000a00ff017b82 */
        /*0040*/               @P0 BRA 0x10 ;                    /* 0x00000a00ff017b82 */
        /*0050*/                   IADD3 R1, R1, 0x1, RZ ;       /* 0x00000a00ff017b82 */
        /*0060*/              @!P1 BRA `(.L_x) 0x0 ;             /* 0x00000a00ff017b82 */
        /*0070*/                   FADD R1, R2, R3 ;             /* 0x00000a00ff017b82 */
        /*0080*/               @P0 BRA 0x70 ;                    /* 0x00000a00ff017b82 */
        /*0090*/                   BRA 0x90 ;                    /* 0x00000a00ff017b82 */
"""


def test_loops_are_the_innermost_ones_that_compute() -> None:
    kinds = {"sums": 1, "exponentials": 1, "spills": 1, "other": 1}
    assert loops(ASSEMBLY) == [Loop(4, kinds)]


def test_the_gpu_is_there_only_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
    driver = triton.runtime.driver
    before = dict(vars(driver))
    with gpu(80):
        assert driver.active.get_current_target().arch == 80
    assert vars(driver) == before


def test_the_interpreter_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.knobs.runtime, "interpret", True)
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET must not be 1"), gpu(80):
        pass
