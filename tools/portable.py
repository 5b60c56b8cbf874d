"""Run what has a stored result at each level of instructions that this CPU has.

    python -m tools.portable [--tenth N] [PYTEST ARGUMENT …]

NumPy, torch and their libraries hold several versions of a function and choose by what the CPU
can do. The last bits of a result hang on that choice, and on how many threads share a sum; a
stored output must not. So the notebooks and the tests of `attnbook` run again with these choices
taken away one after the other, from what the CPU does by itself down to the baseline: each level
with one thread and with three. (Nothing taken away and one thread: that is `make test`, so it is
left out here.) With --tenth, each level is asked of a tenth of the files (`tools.tenth`).

The names of NumPy's levels come from NumPy. A level is left out where it changes nothing, because
no function has a version of its own for it. A level that does not take effect is an error; NumPy,
torch and OpenBLAS are asked. MKL, oneDNN and the C library (glibc) are told, but they do not say
what they use. Where there are no lower levels, the CPU's own is run, and the tool says so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from typing import NamedTuple

from tools import ROOT, tenth

PYTEST = ["pytest", "--nbval", "--nbval-current-env", "-m", "not slow", "-q", "--tb=no"]
# Of what pytest says, these lines and the last one are shown.
TOLD, BUDGET = ("FAILED", "ERROR", "INTERNAL"), "tests/budget.toml"
RUN = ("chapters/*.ipynb", "reference/*.ipynb", "tests/attnbook/test_*.py")

# What the other libraries are told, by the first pattern that one of NumPy's names matches. MKL
# hears MKL_ENABLE_INSTRUCTIONS on Intel's CPUs alone, and MKL_CBWR everywhere.
X86: dict[str, dict[str, str]] = {
    "AVX512|X86_V4": {
        "ATEN_CPU_CAPABILITY": "avx512",
        "OPENBLAS_CORETYPE": "SkylakeX",
        "MKL_ENABLE_INSTRUCTIONS": "AVX512",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
    },
    "AVX2|X86_V3": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "OPENBLAS_CORETYPE": "Haswell",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "MKL_CBWR": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F",
    },
    "": {
        "ATEN_CPU_CAPABILITY": "default",
        "OPENBLAS_CORETYPE": "Nehalem",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
        "MKL_CBWR": "COMPATIBLE",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA",
    },
}
SWITCHES = {"NPY_DISABLE_CPU_FEATURES", *(name for names in X86.values() for name in names)}
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

# What a process finds: asked in one of its own, for the choice is made when NumPy is imported.
PROBE = """
import json, numpy, torch
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__
from numpy.lib.introspect import opt_func_info
chosen = {f: {t: v["current"] for t, v in kinds.items()} for f, kinds in opt_func_info().items()}
print()
print(json.dumps({
    "on": [name for name in __cpu_dispatch__ if __cpu_features__[name]],
    "chosen": json.dumps(chosen, sort_keys=True),
    "torch": torch.backends.cpu.get_cpu_capability(),
}))
"""


class Level(NamedTuple):
    """Some of the CPU's instructions: the name of the highest, and what switches the rest off."""

    name: str
    variables: dict[str, str]


class Seen(NamedTuple):
    """What NumPy, torch and OpenBLAS say that they use."""

    on: list[str]
    chosen: str
    torch: str
    blas: str = ""


def levels(found: list[str], machine: str) -> list[Level]:
    """Return the levels, the highest first, from NumPy's names in ascending order.

    The highest is the CPU as it is, with nothing switched off or chosen for it.

    Example:
        >>> [level.name for level in levels(["X86_V3", "X86_V4"], "x86_64")]
        ['X86_V4', 'X86_V3', 'baseline']
    """
    steps: list[Level] = []
    for kept in range(len(found), -1, -1):
        on, off = found[:kept], found[kept:]
        variables: dict[str, str] = {}
        if off:
            variables = {"NPY_DISABLE_CPU_FEATURES": " ".join(off)}
            if machine.lower() in ("x86_64", "amd64"):
                variables |= next(v for step, v in X86.items() if re.search(step, " ".join(on)))
        steps.append(Level(on[-1] if on else "baseline", variables))
    return steps


def environment(level: Level, threads: int) -> dict[str, str]:
    """Return this process's environment with the level and the threads in place of its own."""
    kept = {name: value for name, value in os.environ.items() if name not in SWITCHES}
    return kept | level.variables | dict.fromkeys(THREADS, str(threads))


def seen(level: Level) -> Seen:
    """Return what a new process finds at this level."""
    verbose = environment(level, 1) | {"OPENBLAS_VERBOSE": "2"}  # it then names its kernels
    done = subprocess.run(
        [sys.executable, "-c", PROBE], env=verbose, capture_output=True, text=True, check=True
    )
    core = re.search(r"(?m)^Core: (\w+)", done.stdout + done.stderr)
    return Seen(**json.loads(done.stdout.splitlines()[-1]), blas=core[1] if core else "")


def problem(level: Level, found: Seen) -> str | None:
    """Return why the level did not take effect, or None where it did."""
    off = level.variables.get("NPY_DISABLE_CPU_FEATURES", "").split()
    if still := [name for name in off if name in found.on]:
        return f"NumPy still uses {' '.join(still)}"
    for variable, came in (("ATEN_CPU_CAPABILITY", found.torch), ("OPENBLAS_CORETYPE", found.blas)):
        asked = level.variables.get(variable)
        if asked and came and asked.lower() != came.lower():
            return f"{variable}={asked} was asked for, {came} is used"
    return None


def asked(level: str, threads: int, due: int | None) -> list[str]:
    """Return the files to run at a level with so many threads: all, or those of a tenth."""
    files = [str(path.relative_to(ROOT)) for pattern in RUN for path in sorted(ROOT.glob(pattern))]
    return [name for name in files if due in (None, tenth.of(f"{level} {threads} {name}"))]


def main(arguments: list[str]) -> int:
    """Run the levels, print pytest's summary of each, and return 1 if any is red."""
    parser = argparse.ArgumentParser(description="Run what is stored as other CPUs would.")
    parser.add_argument("--tenth", type=int, choices=tenth.TENTHS, help="of the files, this tenth")
    options, arguments = parser.parse_known_args(arguments)
    native = seen(Level("native", {}))
    before, red = None, False
    for level in levels(native.on, platform.machine()):
        found = seen(level)
        if why := problem(level, found):
            print(f"{level.name} did not take effect: {why}", file=sys.stderr)
            return 1
        if before and found._replace(on=[]) == before._replace(on=[]):
            print(f"{level.name}: every function is that of the level above; left out", flush=True)
            continue
        before = found
        for threads in (1, 3) if level.variables else (3,):
            about = f"torch {found.torch}, OpenBLAS {found.blas or 'not seen'}"
            print(f"{level.name}, {threads} thread(s), {about}:", flush=True)
            files = asked(level.name, threads, options.tenth)
            if not files:
                continue
            command = [sys.executable, "-m", *PYTEST, *arguments, *files]
            done = subprocess.run(
                command, cwd=ROOT, env=environment(level, threads), capture_output=True, text=True
            )
            said = (done.stdout + done.stderr).splitlines()
            failed = [line for line in said if line.startswith(TOLD) or BUDGET in line]
            print("\n".join([*failed, *said[-1:]]), flush=True)
            red = red or done.returncode != 0
    return 1 if red else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
