"""What is read from compiled kernels: `attnbook.compiled`."""

from __future__ import annotations

import pytest

pytest.importorskip("triton", reason="triton is for Linux")

import triton
import triton.language as tl

from attnbook.compiled import Loop, code_of, gpu, kind, loops

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


@pytest.mark.parametrize(("architecture", "warps"), [(75, 2), (80, 2), (90, 4)])
def test_a_thread_computes_its_share_of_the_exponentials(architecture: int, warps: int) -> None:
    """The compiler may take several rows in one turn of the loop: a power for each load."""
    width = 512
    arguments = {"source": "float16", "target": "float32", "n_rows": 7, "HALF": False}
    code = code_of(
        sums_of_powers, arguments | {"WIDTH": width}, architecture=architecture, warps=warps
    )
    assert code.threads == 32 * warps
    assert 16 <= code.registers <= 128
    assert code.spilled == 0
    loop = max(code.loops, key=lambda loop: loop.kinds["exponentials"])
    share = width // code.threads
    assert loop.kinds["exponentials"] % share == 0
    assert loop.instructions == sum(loop.kinds.values())
    assert "spills" not in loop.kinds


def test_a_choice_changes_the_code() -> None:
    found = [
        code_of(
            sums_of_powers,
            {"source": "float32", "target": "float32", "n_rows": 7, "HALF": half, "WIDTH": 256},
        )
        for half in (False, True)
    ]
    assert all(code.loops for code in found)
    assert found[0].loops[-1].kinds["factors"] < found[1].loops[-1].kinds["factors"]


def test_errors_of_the_compiler_come_through() -> None:
    arguments = {"source": "float32", "target": "float32", "n_rows": 7, "HALF": False, "WIDTH": 100}
    with pytest.raises(RuntimeError, match=r"(?s)sums_of_powers does not compile for sm_80.*power"):
        code_of(sums_of_powers, arguments, architecture=80)


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


def test_logarithms_are_no_exponentials() -> None:
    assert [kind(name) for name in ("MUFU.EX2", "MUFU.LG2", "STSM.16", "STS")] == [
        "exponentials", "other", "shared memory", "shared memory",
    ]  # fmt: skip


def test_the_interpreter_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.knobs.runtime, "interpret", True)
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET must not be 1"), gpu(80):
        pass
