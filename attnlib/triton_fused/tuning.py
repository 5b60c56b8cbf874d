"""Which blocks a kernel of `triton_fused` takes: what fits the chip, and what is fastest there."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import triton

from attnlib.triton_fused._backward import keys_backward, query_backward
from attnlib.triton_fused._forward import forward
from attnlib.triton_fused._mask_backward import Shared, mask_backward
from attnlib.triton_fused._tiles import Choices

INTERPRETED: bool = triton.knobs.runtime.interpret


class Blocks(NamedTuple):
    """One configuration of a kernel."""

    queries: int
    keys: int
    warps: int
    stages: int  # tiles on their way at a time


# From the largest to the smallest, which always fits. Four warps share 64 rows of the program's own
# block when the products run on the matrix units; eight warps share 128.
QUERY_BLOCKS = [
    Blocks(128, 128, 8, 3),
    Blocks(128, 128, 8, 2),
    Blocks(128, 64, 8, 3),
    Blocks(128, 64, 8, 2),
    Blocks(128, 64, 4, 2),
    Blocks(64, 64, 4, 2),
    Blocks(64, 64, 4, 3),
    Blocks(64, 32, 4, 2),
    Blocks(32, 32, 2, 1),
    Blocks(32, 32, 8, 1),
    Blocks(16, 16, 1, 1),
    Blocks(16, 16, 4, 1),
]
KEY_BLOCKS = [
    Blocks(64, 128, 8, 2),
    Blocks(32, 128, 8, 2),
    Blocks(64, 64, 4, 2),
    Blocks(32, 64, 4, 3),
    Blocks(32, 64, 4, 2),
    Blocks(32, 32, 2, 1),
    Blocks(32, 32, 8, 1),
    Blocks(16, 16, 1, 1),
    Blocks(16, 16, 4, 1),
]
MASK_BLOCKS = [b for b in QUERY_BLOCKS if b.keys <= 64 and b.stages <= 2]


SHORTEST_TUNED = 512
# Features of a key and a value: of more than these, a warp cannot hold dK and dV at the same time.
WIDEST_SUMS = 256
# KiB of shared memory that one program may have, by architecture; what is not here has 64 or more.
SHARED = {80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 120: 99}
# Products of half precision run on the matrix units from here on, and on GPUs of other makers: for
# older ones of NVIDIA's Triton has none.
MATRIX_UNITS = 80


def architecture() -> int:
    """Return the number of the GPU's architecture; 0 where there is no GPU of NVIDIA's."""
    if INTERPRETED:
        return 0
    arch = triton.runtime.driver.active.get_current_target().arch
    return arch if isinstance(arch, int) else 0


class Case(NamedTuple):
    """What the tuner tells calls apart by, beside what is compiled in."""

    length_q: int  # in powers of two, like the next three
    length_k: int
    heads: int  # of all batches
    span: int  # keys that a query sees, where the band has two bounds; or 0
    mask_bytes: int  # of a number
    keeps: int  # 1: what the rounding of the output loses is stored
    architecture: int


class Kernel:
    """A kernel with its configurations; Triton times them, and remembers the fastest.

    Each of its programs owns a block of queries, of keys, or of both.

    It times them anew for everything that changes the code, and for each `Case`. Under the
    interpreter there is nothing to time.
    """

    def __init__(self, function: Any, blocks: list[Blocks], owns: str) -> None:
        self.function, self.blocks, self.owns = function, blocks, owns
        compiled_in = [
            name
            for name, parameter in inspect.signature(function.fn).parameters.items()
            if "constexpr" in str(parameter.annotation) and name not in ("BLOCK_Q", "BLOCK_K")
        ]
        self.key = [*compiled_in, "case"]
        self.tuned = triton.autotune(
            [self.config(b) for b in blocks],
            key=self.key,
            prune_configs_by={"early_config_prune": self._prune},
        )(function)

    @staticmethod
    def config(blocks: Blocks) -> triton.Config:
        """Return the configuration as Triton has it."""
        sizes = {"BLOCK_Q": blocks.queries, "BLOCK_K": blocks.keys}
        return triton.Config(sizes, num_warps=blocks.warps, num_stages=blocks.stages)

    def fitting(self, choices: Choices, arch: int, mask_bytes: int = 0) -> list[Blocks]:
        """Return the configurations that have room on this architecture.

        Small ones are left out where there are larger: the tuner would lose its time with them.
        """
        found = [b for b in self.blocks if self._fits(b, choices, arch, mask_bytes)]
        large = [b for b in found if b.queries * b.keys >= 64 * 32]
        return large or found or self.blocks[-1:]

    def _fits(self, blocks: Blocks, choices: Choices, arch: int, mask_bytes: int) -> bool:
        """Return whether a program has room on the chip.

        Shared memory holds its own block and the tiles on their way, of a mask too. Registers, 255
        for a thread, hold the sums, two tiles of scores and what a mask adds to them; addresses
        take some 60 of them, and before sm_90, whose matrix units read shared memory, the factors
        of the products some 30 more. On the matrix units a warp takes 16 rows of the program's own
        block, so that more warps than rows / 16 would compute the same scores twice. Other products
        are made of single multiplications, whose factors lie in registers too, which small blocks
        alone can afford; there more threads share a block.

        The forward without a mask may spill what some registers too few cost on sm_90: 136 bytes a
        thread with (128, 64), 4, 2 and 128 features, and it is the fastest on an H200. Two of its
        programs have room side by side, so that one can compute powers while the other has the
        matrix units.
        """
        E, E_V = choices.BLOCK_E, choices.BLOCK_V
        size = choices.DTYPE.primitive_bitwidth // 8
        n_scores = blocks.queries * blocks.keys
        if self.owns == "keys":
            rows, others = blocks.keys, blocks.queries
            own, sums = rows * (E + E_V), rows * (max(E, E_V) if E + E_V > WIDEST_SUMS else E + E_V)
        else:
            rows, others = blocks.queries, blocks.keys
            # The backward has dO beside Q.
            own, sums = rows * (E if self.function is forward else E + E_V), rows * max(E, E_V)
            if self.owns == "queries and keys":  # sums are a tile; factors stay in registers
                sums += n_scores
        in_a_tile = others * (E + E_V)  # of those on their way
        on_matrix_units = size == 2 and (arch >= MATRIX_UNITS or arch == 0)
        if on_matrix_units != (rows >= 16 * blocks.warps):
            return False
        if not on_matrix_units and 4 * (own + in_a_tile) > 64 * 1024:
            return False
        shared = size * own + blocks.stages * (size * in_a_tile + mask_bytes * n_scores)
        a_thread = (sums + (3 if mask_bytes else 2) * n_scores) // (32 * blocks.warps)
        spills = self.function is forward and not mask_bytes
        registers = (256 if spills else 192) if arch >= 90 else 160
        return shared <= SHARED.get(arch, 64) * 1024 and a_thread <= registers

    def _prune(self, configs: object, named: object, **arguments: Any) -> list[triton.Config]:
        case = arguments["case"]
        found = self.fitting(arguments["CHOICES"], case.architecture, case.mask_bytes)
        return [self.config(b) for b in found]

    def chosen(self, choices: Choices, case: Case) -> Blocks | None:
        """Return the blocks to take without timing, if any.

        To compile and time them all takes seconds, which short lengths never give back.
        """
        longest = max(case.length_q, case.length_k)
        if INTERPRETED:
            size = 16 if longest <= 64 else 64
            return Blocks(size, size, 4, 1)
        if longest < SHORTEST_TUNED:
            found = self.fitting(choices, case.architecture, case.mask_bytes)
            return next((b for b in found if b.queries * b.keys <= 64 * 64), found[0])
        return None

    def __call__(self, heads: int, **arguments: Any) -> None:
        """Start one program for each block that it owns of each head."""
        sizes, shared = arguments["sizes"], arguments.get("SHARED", Shared(*[False] * 4))

        def grid(given: dict[str, Any]) -> tuple[int]:
            programs = heads
            if "queries" in self.owns and not shared.queries:
                programs *= -(-sizes.n_queries // given["BLOCK_Q"])
            if "keys" in self.owns and not shared.keys:
                programs *= -(-sizes.n_keys // given["BLOCK_K"])
            return (programs,)

        blocks = self.chosen(arguments["CHOICES"], arguments["case"])
        if blocks is None:
            self.tuned[grid](**arguments, enable_fp_fusion=True)
        else:
            options = self.config(blocks).all_kwargs()
            self.function[grid](**arguments, **options, enable_fp_fusion=True)


FORWARD = Kernel(forward, QUERY_BLOCKS, "queries")
QUERY_BACKWARD = Kernel(query_backward, QUERY_BLOCKS, "queries")
KEYS_BACKWARD = Kernel(keys_backward, KEY_BLOCKS, "keys")
MASK_BACKWARD = Kernel(mask_backward, MASK_BLOCKS, "queries and keys")
