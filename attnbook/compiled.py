"""What Triton's compiler makes of a kernel: its registers, its memory on the chip, its main loops.

None of this needs a GPU, because the compiler asks only for the name of an architecture: 75, 80 and
90 are those of the T4, the A100 and the H100 and H200. `code_of` compiles any kernel, also one of a
notebook that runs under the interpreter; `read` reads a kernel that was compiled within `gpu`.
"""

# mypy: disable-error-code="no-untyped-call, attr-defined, import-not-found, unused-ignore"

from __future__ import annotations

import contextlib
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

# What the instructions of NVIDIA's machines do, by how their names begin; the rest are `other`.
KINDS = {
    "products": ("HGMMA", "HMMA", "IMMA", "DMMA"),
    "exponentials": ("MUFU.EX2",),
    "fused": ("FFMA", "DFMA", "HFMA2"),
    "sums": ("FADD", "DADD", "HADD2"),
    "factors": ("FMUL", "DMUL", "HMUL2"),
    "maxima": ("FMNMX", "DMNMX", "HMNMX2"),
    "comparisons": ("FSETP", "ISETP", "DSETP", "HSETP2"),
    "selections": ("FSEL", "SEL"),
    "conversions": ("F2F", "I2F", "F2I"),
    "exchanges": ("SHFL",),
    "copies": ("LDGSTS",),  # from global to shared memory, past the registers
    "global memory": ("LDG", "STG", "ATOM", "RED"),
    "shared memory": ("LDS", "STS", "STSM", "ATOMS"),
    "spills": ("LDL", "STL"),
}


class Loop(NamedTuple):
    """An innermost loop that computes products or exponentials."""

    instructions: int
    kinds: dict[str, int]  # instructions of a thread by kind


class Code(NamedTuple):
    """A compiled kernel. Its loops are in the order of the code."""

    registers: int  # of a thread
    spilled: int  # bytes of a thread that its registers did not hold
    shared: int  # bytes of a program
    threads: int
    loops: list[Loop]


def kind(instruction: str) -> str:
    """Return the kind of an instruction, by the longest beginning of its name.

    Example:
        >>> kind("FFMA.FTZ"), kind("LDGSTS.E"), kind("LDSM.16"), kind("BRA")
        ('fused', 'copies', 'shared memory', 'other')
    """
    found = [
        (len(b), name) for name, all_ in KINDS.items() for b in all_ if instruction[: len(b)] == b
    ]
    return max(found, default=(0, "other"))[1]


def loops(assembly: str) -> list[Loop]:
    """Return the loops of a kernel in NVIDIA's assembly, as `cuobjdump -sass` prints it.

    A loop is what lies between a branch and the earlier place that it goes back to.
    """
    lines = re.findall(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([^;]+);", assembly, re.M)
    code = [(int(at, 16), instruction) for at, instruction in lines]
    spans = []
    for at, instruction in code:
        to = re.match(r"BRA\S*\s.*?(0x[0-9a-f]+)", instruction)
        if to and int(to[1], 16) < at:
            spans.append((int(to[1], 16), at))
    found = []
    for start, end in spans:
        inner = any(start <= a and b <= end and (a, b) != (start, end) for a, b in spans)
        body = [instruction.split()[0] for at, instruction in code if start <= at <= end]
        kinds = dict(Counter(map(kind, body)))
        if not inner and ("products" in kinds or "exponentials" in kinds):
            found.append(Loop(len(body), kinds))
    return found


@contextlib.contextmanager
def gpu(architecture: int) -> Iterator[None]:
    """Let Triton compile for a GPU that is not here; nothing can be started."""
    import triton
    from triton.backends.compiler import GPUTarget

    class Driver:
        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", architecture, 32)

        def get_current_device(self) -> int:
            return architecture  # Triton keeps what it has compiled by device

        def get_current_stream(self, device: int) -> int:  # pragma: no cover (for a launch only)
            return 0

    if triton.knobs.runtime.interpret:
        raise RuntimeError("the interpreter compiles nothing; TRITON_INTERPRET must not be 1")
    driver = triton.runtime.driver
    before = dict(vars(driver))  # where there is no GPU, to ask for the one in use is an error
    driver.set_active(Driver())
    try:
        yield
    finally:
        vars(driver).update(before)


def read(kernel: Any) -> Code:
    """Return what a kernel is made of, from what its `warmup` returned."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        said = [
            subprocess.run(
                [tool, what, file.name], capture_output=True, text=True, check=True
            ).stdout
            for what in ("-res-usage", "-sass")
        ]
    registers, stack = re.findall(r"REG:(\d+) STACK:(\d+)", said[0])[-1]
    about = kernel.metadata
    threads = 32 * about.num_warps
    return Code(int(registers), int(stack), about.shared, threads, loops(said[1]))


def source_of(kernel: Any) -> str:
    """Return the text of a module that holds a kernel, the functions it calls and its constants."""
    import triton.language as tl

    parts: dict[str, str] = {}

    def collect(function: Any) -> None:
        text = inspect.getsource(function)
        for name in function.__code__.co_names:
            used = function.__globals__.get(name)
            if name in parts or used is None:
                continue
            if isinstance(used, tl.constexpr | int | float):
                parts[name] = f"{name} = tl.constexpr({getattr(used, 'value', used)!r})"
            elif hasattr(used, "fn"):
                collect(used.fn)
        parts[function.__name__] = text

    collect(kernel.fn)
    imports = "import triton\nimport triton.language as tl\nfrom triton.language import constexpr"
    return "\n\n".join([imports, *parts.values()])


def code_of(
    kernel: Callable[..., Any], arguments: Mapping[str, Any], *, architecture: int = 90,
    warps: int = 4,
) -> Code:
    """Return what a kernel is made of, compiled in a process of its own.

    Args:
        kernel: A function under `triton.jit`. It may call others, and use numbers, of its module.
        arguments: The kernel's arguments by name: numbers, and for a tensor its dtype as torch
            writes it, such as "bfloat16". Tensors count as aligned to 16 bytes, and numbers that
            are multiples of 16 as known to be such.
        architecture: What to compile for, as a number: 75, 80, 90.
        warps: Warps of a program, 32 threads each.
    """
    call = {"kernel": kernel.__name__, "arguments": dict(arguments), "architecture": architecture}
    call |= {"num_warps": warps, "num_stages": 2}
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernel_of_a_page.py").write_text(source_of(kernel), "utf-8")
        path = os.pathsep.join([folder, *filter(None, sys.path)])
        done = subprocess.run(
            [sys.executable, "-m", "attnbook.compiled"], input=json.dumps(call), text=True,
            capture_output=True, env=environment | {"PYTHONPATH": path},
        )
    if done.returncode:
        raise RuntimeError(
            f"{kernel.__name__} does not compile for sm_{architecture}: {done.stderr}"
        )
    registers, spilled, shared, threads, found = json.loads(done.stdout)
    return Code(registers, spilled, shared, threads, [Loop(*loop) for loop in found])


def _main() -> None:
    """Compile what `code_of` describes on the standard input, and print what it is made of."""
    import kernel_of_a_page
    import torch

    call = json.load(sys.stdin)
    with gpu(call["architecture"]):
        arguments = {
            name: getattr(torch, x) if isinstance(x, str) else x
            for name, x in call["arguments"].items()
        }
        from triton.runtime.jit import MockTensor

        arguments = {name: MockTensor.wrap_dtype(x) for name, x in arguments.items()}
        options = {name: call[name] for name in ("num_warps", "num_stages")}
        kernel = getattr(kernel_of_a_page, call["kernel"])
        print(json.dumps(read(kernel.warmup(grid=(1,), **arguments, **options))))


if __name__ == "__main__":
    _main()
