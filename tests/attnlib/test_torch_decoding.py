"""What `torch_decoding` promises beyond the contract of all rungs: see test_cases.

What must be the same bit for bit runs on one thread: two may cut a product in other places.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import plain_torch
import pytest
import torch
from mistakes import hold, scores, softmax
from rungs import array
from tolerance import HALF, assert_close, forward_size
from torch import Tensor

from attnlib import numpy_tokenwise, torch_dense
from attnlib.positions import rotary, sinusoidal
from attnlib.torch_decoding import KVCache, attend, merge
from attnlib.torch_layers import MultiHeadSelfAttention, merge_heads, split_heads

B, H, H_KV, T, E, E_V = 3, 6, 2, 67, 5, 7
CHUNKS = {"one by one": [1] * T, "29 + 1 + 1 + 20 + 16": [29, 1, 1, 20, 16], "at once": [T]}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def normal(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (1.5 * torch.randn(*shape, dtype=torch.float64, generator=generator)).to(dtype)


def tokens(
    batch: int = B, n_tokens: int = T, n_heads: int = H, dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    """Return query, key and value of tokens."""
    shapes = (n_heads, E), (H_KV, E), (H_KV, E_V)
    return [
        normal(batch, heads, n_tokens, d, dtype=dtype, seed=seed)
        for seed, (heads, d) in enumerate(shapes)
    ]


def empty(
    batch: int = B, capacity: int = T, dtype: torch.dtype = torch.float32, **more: Any
) -> KVCache:
    """Return a cache for such tokens, in which everything that is read unwritten is NaN."""
    cache = KVCache(batch, H_KV, capacity, E, E_V, dtype=dtype, **more)
    cache.key.fill_(math.nan)
    cache.value.fill_(math.nan)
    return cache


def in_chunks(
    sizes: Sequence[int], new: Sequence[Tensor], cache: KVCache, **options: Any
) -> Tensor:
    """Return the output of tokens that come a few at a time."""
    parts = zip(*(x.split(list(sizes), 2) for x in new), strict=True)
    return torch.cat([attend(*part, cache, **options) for part in parts], 2)


# -- the same numbers as one pass over all tokens --------------------------------------------------


@functools.cache
def one_pass(dtype: str, window: tuple[int, int] | None) -> tuple[Any, float, Any]:
    """Return the output of all tokens at once, how far one may be off, and plain torch's."""
    new = tokens(dtype=getattr(torch, dtype))
    exact = [array(x).astype(np.float64) for x in new]
    attend = numpy_tokenwise.scaled_dot_product_attention
    truth = attend(*exact, is_causal=True, window=window, enable_gqa=True)
    mask = torch.ones(T, T, dtype=torch.bool).tril().triu(-window[0] if window else -T)
    peer, _ = plain_torch.attention(*new, mask, enable_gqa=True)
    return truth, forward_size(*exact), array(peer)


@pytest.mark.parametrize("dtype", ["float32", "float64", *HALF])
@pytest.mark.parametrize("window", [None, (4, 0)], ids=str)
@pytest.mark.parametrize("block_size_k", [None, 8])
@pytest.mark.parametrize("sizes", CHUNKS.values(), ids=CHUNKS)
def test_any_chunks_give_what_one_pass_gives(
    sizes: list[int], block_size_k: int | None, window: tuple[int, int] | None, dtype: str
) -> None:
    kind = getattr(torch, dtype)
    cache = empty(dtype=kind)
    output = in_chunks(sizes, tokens(dtype=kind), cache, window=window, block_size_k=block_size_k)
    assert cache.lengths == (T,) * B and output.dtype == kind
    truth, size, peer = one_pass(dtype, window)
    assert_close(array(output), truth, dtype=dtype, size=size, peer=peer)


@pytest.mark.parametrize("scale", [0.0, -0.3, 1.7, 1e-30, 1e60])
def test_the_scale_is_that_of_the_other_forms(scale: float) -> None:
    new = tokens(1, 4, dtype=torch.float64)
    output = in_chunks([2, 1, 1], new, empty(1, dtype=torch.float64), scale=scale)
    attend = torch_dense.scaled_dot_product_attention
    wanted = attend(*new, is_causal=True, enable_gqa=True, scale=scale)
    torch.testing.assert_close(output, wanted, rtol=1e-12, atol=1e-12)


def test_a_scale_that_float32_does_not_hold_is_no_infinity() -> None:
    new = [torch.full((1, 1, 1, 1), number) for number in (1e-30, 1e-30, 3.0)]
    cache = KVCache(1, 1, 2, 1)
    assert attend(*new, cache, scale=1e60).item() == attend(*new, cache, scale=1e60).item() == 3.0


# -- rows of unequal lengths -----------------------------------------------------------------------


def test_each_row_goes_on_where_it_ended() -> None:
    new, (first, second) = tokens(), ([5, 0, 11], [3, 4, 1])
    full = torch_dense.scaled_dot_product_attention(*new, is_causal=True, enable_gqa=True)
    cache, starts = empty(), [0] * B
    for counts in (first, second):
        padded = [torch.full((B, x.shape[1], max(counts), x.shape[3]), math.nan) for x in new]
        for row, (start, count) in enumerate(zip(starts, counts, strict=True)):
            for own, x in zip(padded, new, strict=True):
                own[row, :, :count] = x[row, :, start : start + count]
        output = attend(*padded, cache, counts=counts)
        for row, (start, count) in enumerate(zip(starts, counts, strict=True)):
            torch.testing.assert_close(output[row, :, :count], full[row, :, start : start + count])
            assert not output[row, :, count:].any()
        starts = [start + count for start, count in zip(starts, counts, strict=True)]
        assert cache.lengths == tuple(starts)


@pytest.mark.parametrize("block_size_k", [None, 2])
@pytest.mark.parametrize(
    "counts", [[0, 0, 0], [2, 2, 2], (0, 1, 3), torch.tensor([3, 1, 2])], ids=str
)
def test_counts_say_how_many_tokens_count(counts: Any, block_size_k: int | None) -> None:
    new, cache, appended = tokens(n_tokens=3), empty(), empty()
    output = attend(*new, cache, counts=counts, block_size_k=block_size_k)
    appended.append(*new[1:], counts=counts)
    assert cache.lengths == appended.lengths == tuple(int(n) for n in counts)
    assert same(cache, appended)
    for row, count in enumerate(cache.lengths):
        alone = [x[row : row + 1, :, :count] for x in new]
        wanted = torch_dense.scaled_dot_product_attention(*alone, is_causal=True, enable_gqa=True)
        torch.testing.assert_close(output[row : row + 1, :, :count], wanted)
        assert not output[row, :, count:].any()


@pytest.mark.parametrize("block_size_k", [None, 2])
def test_no_new_tokens_give_no_output(block_size_k: int | None) -> None:
    cache = empty()
    output = attend(*tokens(n_tokens=0), cache, block_size_k=block_size_k)
    assert output.shape == (B, H, 0, E_V) and cache.lengths == (0,) * B


# -- the same bit for bit --------------------------------------------------------------------------


def bits(x: Tensor) -> bytes:
    return array(x.contiguous()).tobytes()


def same(one: KVCache, other: KVCache) -> bool:
    """Return whether two caches hold the same tokens, bit for bit."""
    return one.lengths == other.lengths and all(
        torch.equal(x[row, :, :n], y[row, :, :n])
        for x, y in ((one.key, other.key), (one.value, other.value))
        for row, n in enumerate(one.lengths)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("block_size_k", [None, 8])
@pytest.mark.parametrize("sizes", CHUNKS.values(), ids=CHUNKS)
def test_neither_the_capacity_nor_what_stands_in_unused_slots_nor_a_second_run_changes_a_bit(
    sizes: list[int], block_size_k: int | None, dtype: torch.dtype
) -> None:
    new, found = tokens(dtype=dtype), set()
    for capacity in (T, T, 100, 512):
        for unused in (0.0, math.nan):
            cache = empty(capacity=capacity, dtype=dtype)
            cache.key.fill_(unused)
            cache.value.fill_(unused)
            found.add(bits(in_chunks(sizes, new, cache, block_size_k=block_size_k)))
    assert len(found) == 1


@pytest.mark.parametrize("block_size_k", [None, 8])
def test_tokens_that_were_taken_back_were_never_there(block_size_k: int | None) -> None:
    new, guessed = tokens(), [x + 1 for x in tokens(n_tokens=4)]
    plain, cache = empty(), empty(capacity=T + 4)
    for first in range(0, 40, 5):
        part = [x[:, :, first : first + 5] for x in new]
        wanted = attend(*part, plain, block_size_k=block_size_k)
        lengths = cache.lengths
        attend(*guessed, cache, block_size_k=block_size_k)
        cache.truncate(lengths)
        assert bits(attend(*part, cache, block_size_k=block_size_k)) == bits(wanted)
    assert same(cache, plain)


def test_each_row_takes_back_tokens_of_its_own() -> None:
    new = tokens()
    cache, plain = empty(), empty()
    cache.append(*(x[:, :, :9] for x in new[1:]))
    cache.truncate([9, 2, 0])
    plain.append(*(x[:, :, :9] for x in new[1:]), counts=[9, 2, 0])
    assert same(cache, plain)
    part = [x[:, :, 9:11] for x in new]
    assert bits(attend(*part, cache)) == bits(attend(*part, plain))
    assert cache.lengths == (11, 4, 2)


@pytest.mark.parametrize(
    "rows", [[2, 0], (1, 1, 1, 0), torch.tensor([0, 2]), np.array([1])], ids=str
)
def test_beams_go_on_as_if_they_had_been_alone(rows: Any) -> None:
    new, chosen = tokens(), [int(row) for row in rows]
    cache = empty()
    cache.append(*(x[:, :, :7] for x in new[1:]), counts=[7, 3, 5])
    beams, alone = cache.select(rows), empty(len(chosen))
    alone.append(
        *(x[chosen, :, :7] for x in new[1:]), counts=[cache.lengths[row] for row in chosen]
    )
    assert same(beams, alone)
    assert (beams.capacity, beams.key.dtype) == (cache.capacity, cache.key.dtype)
    part = [x[chosen, :, 7:9] for x in new]
    before = bits(cache.key), bits(cache.value), cache.lengths
    assert bits(attend(*part, beams)) == bits(attend(*part, alone))
    assert (bits(cache.key), bits(cache.value), cache.lengths) == before, "a beam is no copy"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("block_size_k", [None, 8])
@pytest.mark.parametrize("n_heads", [2, 6])
@pytest.mark.parametrize("n_tokens", [1, 2, 5, 16, 33, T])
def test_a_row_in_a_batch_has_the_bits_of_a_row_alone(
    n_tokens: int, n_heads: int, block_size_k: int | None, dtype: torch.dtype
) -> None:
    # With features in fours: the bits of other products depend on where in memory they begin.
    new = [normal(5, heads, n_tokens, 16, dtype=dtype, seed=heads) for heads in (n_heads, 2, 2)]
    part = [x[:, :, -1:] for x in new]
    for lengths in ([n_tokens] * 5, [n_tokens, 0, 1, n_tokens, n_tokens - 1]):
        cache = KVCache(5, 2, 2 * T, 16, dtype=dtype)
        cache.append(*new[1:], counts=lengths)
        alone = [cache.select([row]) for row in range(5)]
        together = attend(*part, cache, block_size_k=block_size_k)
        for row, own in enumerate(alone):
            one = (x[row : row + 1] for x in part)
            output = attend(*one, own, block_size_k=block_size_k)
            assert bits(output[0]) == bits(together[row])


# -- the cache -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("d_v", [None, 7])
def test_its_size_in_bytes_is_that_of_the_formula(d_v: int | None, dtype: torch.dtype) -> None:
    cache = KVCache(3, 2, 11, 5, d_v, dtype=dtype)
    width = {torch.float16: 2, torch.float32: 4, torch.float64: 8}[dtype]
    assert cache.n_bytes == 3 * 2 * 11 * (5 + (d_v or 5)) * width
    assert cache.key.shape == (3, 2, 11, 5) and cache.value.shape == (3, 2, 11, d_v or 5)
    assert (cache.lengths, cache.capacity) == ((0, 0, 0), 11)


def test_memory_is_set_aside_once() -> None:
    cache = empty()
    places = cache.key.data_ptr(), cache.value.data_ptr()
    in_chunks([29, 1, 1, 20, 16], tokens(), cache)
    cache.truncate([3, 3, 3])
    assert (cache.key.data_ptr(), cache.value.data_ptr()) == places


def test_keys_before_a_window_are_not_read() -> None:
    new, cache, plain = tokens(), empty(), empty()
    for each in (cache, plain):
        each.append(*(x[:, :, :20] for x in new[1:]))
    cache.key[:, :, :15], cache.value[:, :, :15] = math.nan, math.nan
    for size in (1, 2):
        part = [x[:, :, 20 : 20 + size] for x in new]
        found = [bits(attend(*part, each, window=(5, 0))) for each in (cache, plain)]
        assert found[0] == found[1]
        for each in (cache, plain):
            each.truncate([20] * B)


def test_nan_in_what_is_seen_comes_out() -> None:
    new, cache = tokens(), empty()
    new[2][1, 0, 3, 2] = math.nan
    output = in_chunks([1] * T, new, cache)
    wrong = torch.isnan(output)
    assert wrong[1, : H // H_KV, 3:, 2].all() and wrong.sum() == H // H_KV * (T - 3)


def test_one_dtype_serves_under_autocast() -> None:
    new, cache = tokens(n_tokens=3), empty(dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = attend(*new, cache)
    plain = attend(*(x.bfloat16() for x in new), empty(dtype=torch.bfloat16))
    assert output.dtype == torch.bfloat16 and bits(output) == bits(plain)


def test_shapes_can_be_had_without_numbers() -> None:
    new, cache = tokens(), KVCache(B, H_KV, T, E, E_V, device="meta")
    output = in_chunks([29, 1, 37], [x.to("meta") for x in new], cache)
    assert (output.shape, output.device.type) == ((B, H, T, E_V), "meta")


def test_gradients_are_not_needed_where_none_are_recorded() -> None:
    new, cache = [x.requires_grad_() for x in tokens(n_tokens=2)], empty()
    with torch.no_grad():
        assert not attend(*new, cache).requires_grad
    assert not cache.key.requires_grad


# -- what is refused -------------------------------------------------------------------------------


def bad(error: type[Exception], said: str, **wrong: Any) -> Any:
    """A call that is right but for these arguments."""
    return pytest.param(wrong, error, said, id="-".join(map(str, wrong)) + "-" + said[:30])


QUERY, KEY, VALUE = tokens(n_tokens=4)
REFUSED = [
    bad(TypeError, "key must be a torch.Tensor; got list", key=[1.0]),
    bad(TypeError, "value must be a torch.Tensor; got numpy.ndarray", value=VALUE.numpy()),
    bad(TypeError, "key must have the dtype of the cache, float32; got float64", key=KEY.double()),
    bad(TypeError, "value must have the dtype of the cache, float32; got bfloat16",
        value=VALUE.bfloat16()),
    bad(ValueError, "key must be on the device of the cache, cpu; got meta", key=KEY.to("meta")),
    bad(ValueError, r"key must have shape \(3, 2, 4, 5\); got \(2, 2, 4, 5\)", key=KEY[:2]),
    bad(ValueError, r"key must have shape \(3, 2, 4, 5\); got \(3, 1, 4, 5\)", key=KEY[:, :1]),
    bad(ValueError, r"key must have shape \(3, 2, 4, 5\); got \(3, 2, 4, 4\)", key=KEY[..., :4]),
    bad(ValueError, r"key must have shape \(3, 2, 0, 5\); got \(4,\)", key=KEY[0, 0, :, 0]),
    bad(ValueError, r"value must have shape \(3, 2, 4, 7\); got \(3, 2, 3, 7\)",
        value=VALUE[:, :, :3]),
    bad(RuntimeError, "key must not require gradients, because a cache keeps none",
        key=KEY.clone().requires_grad_()),
    bad(RuntimeError, "value must not require gradients", value=VALUE.clone().requires_grad_()),
    bad(TypeError, "counts must be a sequence of integers; got 3", counts=3),
    bad(TypeError, r"counts\[1\] must be an integer; got 1.5", counts=[1, 1.5, 1]),
    bad(ValueError, r"counts must hold one integer for each of the 3 rows; got \[1, 1\]",
        counts=[1, 1]),
    bad(ValueError, r"counts\[2\] must be at most 4; got 5", counts=[1, 2, 5]),
    bad(ValueError, r"counts\[0\] must be at least 0; got -1", counts=[-1, 2, 3]),
    bad(ValueError, r"at most capacity = 8 tokens; got 5 \+ 4 in row 1", counts=[0, 4, 0]),
]  # fmt: skip
REFUSED_BY_ATTEND = [
    bad(TypeError, "query must be a torch.Tensor; got NoneType", query=None),
    bad(TypeError, "query must have the dtype of the cache, float32; got float16",
        query=QUERY.half()),
    bad(ValueError, "query must be on the device of the cache", query=QUERY.to("meta")),
    bad(ValueError, r"query must have shape \(3, 6, 4, 5\); got \(3, 6, 3, 5\)",
        query=QUERY[:, :, :3]),
    bad(ValueError, r"query must have shape \(3, 2, 4, 5\); got \(6, 4, 5\)", query=QUERY[0]),
    bad(ValueError, "query must have a multiple of 2 heads; got 5", query=QUERY[:, :5]),
    bad(ValueError, "query must have a multiple of 2 heads; got 0", query=QUERY[:, :0]),
    bad(RuntimeError, "query must not require gradients", query=QUERY.clone().requires_grad_()),
    bad(TypeError, "cache must be a KVCache; got NoneType", cache=None),
    bad(TypeError, "scale must be None or a real number; got str", scale="1"),
    bad(ValueError, "scale must be finite; got nan", scale=math.nan),
    bad(TypeError, r"window must be None or a pair \(left, right\); got 3", window=3),
    bad(ValueError, "window's left bound must be at least 0; got -1", window=(-1, 0)),
    bad(TypeError, "block_size_k must be an integer; got 2.0", block_size_k=2.0),
    bad(ValueError, "block_size_k must be at least 1; got 0", block_size_k=0),
]  # fmt: skip


@pytest.mark.parametrize("function", ["append", "attend"])
@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [*REFUSED, *REFUSED_BY_ATTEND],
)
def test_a_call_that_fails_changes_nothing(
    wrong: dict[str, Any], error: type[Exception], said: str, function: str
) -> None:
    if function == "append" and not {*wrong} <= {"key", "value", "counts"}:
        function = "attend"  # append has no such argument
    cache = empty(capacity=8)
    cache.append(KEY, VALUE, counts=[2, 4, 1])
    cache.append(KEY, VALUE, counts=[0, 1, 0])
    before = bits(cache.key), bits(cache.value), cache.lengths
    right = {"key": KEY, "value": VALUE, "counts": [1, 1, 1]}
    with pytest.raises(error, match=said):
        if function == "append":
            cache.append(**right | wrong)
        else:
            attend(**{"query": QUERY, "cache": cache} | right | wrong)
    assert (bits(cache.key), bits(cache.value), cache.lengths) == before


def test_a_failure_on_the_way_leaves_the_tokens_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache, plain = empty(capacity=8), empty(capacity=8)
    for each in (cache, plain):
        each.append(KEY, VALUE)

    def full(*_: Any, **__: Any) -> Any:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(torch, "softmax", full)
        with pytest.raises(MemoryError):
            attend(*(x[:, :, :1] for x in (QUERY, KEY, VALUE)), cache)
    assert same(cache, plain)


@pytest.mark.parametrize(
    ("lengths", "error", "said"),
    [
        ([1, 2, 5], ValueError, r"lengths\[2\] must be at most 4; got 5"),
        ([1, -1, 3], ValueError, r"lengths\[1\] must be at least 0; got -1"),
        ([1, 2], ValueError, "one integer for each of the 3 rows"),
        (2, TypeError, "lengths must be a sequence of integers; got 2"),
        (torch.tensor(2), TypeError, "lengths must be a sequence of integers"),
        (None, TypeError, "lengths must be a sequence of integers; got None"),
        ([1, True, 2], TypeError, r"lengths\[1\] must be an integer; got True"),
    ],
    ids=str,
)
def test_truncate_never_lengthens(lengths: Any, error: type[Exception], said: str) -> None:
    cache = empty()
    cache.append(KEY, VALUE)
    with pytest.raises(error, match=said):
        cache.truncate(lengths)
    assert cache.lengths == (4, 4, 4)


@pytest.mark.parametrize(
    ("rows", "error", "said"),
    [
        ([3], ValueError, r"rows\[0\] must be at most 2; got 3"),
        ([-1], ValueError, r"rows\[0\] must be at least 0; got -1"),
        ([], ValueError, "batch must be at least 1; got 0"),
        (1, TypeError, "rows must be a sequence of integers; got 1"),
    ],
    ids=str,
)
def test_select_takes_rows_that_there_are(rows: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        empty().select(rows)


@pytest.mark.parametrize(
    ("wrong", "error", "said"),
    [
        *(({name: 0}, ValueError, f"{name} must be at least 1; got 0")
          for name in ("batch", "n_kv_heads", "capacity", "d_k", "d_v")),
        ({"capacity": 2.5}, TypeError, "capacity must be an integer; got 2.5"),
        ({"dtype": torch.int32}, TypeError, "dtype must be one of .*; got torch.int32"),
        ({"dtype": "float32"}, TypeError, "dtype must be a torch.dtype; got 'float32'"),
    ],
    ids=str,
)  # fmt: skip
def test_a_cache_needs_sizes_and_a_floating_dtype(
    wrong: dict[str, Any], error: type[Exception], said: str
) -> None:
    sizes = {"batch": 1, "n_kv_heads": 1, "capacity": 1, "d_k": 1, "d_v": 1}
    with pytest.raises(error, match=said):
        KVCache(**sizes | wrong)


# -- a layer that goes on --------------------------------------------------------------------------

D_MODEL, D_HEAD = 24, 4
KINDS = [None, "sinusoidal", "learned", "rotary"]


def layer(positions: Any = None, **more: Any) -> MultiHeadSelfAttention:
    torch.manual_seed(3)
    settings = {"n_kv_heads": 2, "is_causal": True, "max_seq_len": T, "bias": True} | more
    return MultiHeadSelfAttention(D_MODEL, 6, positions=positions, **settings).double()


def memory(batch: int = B, capacity: int = T) -> KVCache:
    return KVCache(batch, 2, capacity, D_HEAD, dtype=torch.float64)


@pytest.fixture
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.mark.usefixtures("without_gradients")
@pytest.mark.parametrize("sizes", CHUNKS.values(), ids=CHUNKS)
@pytest.mark.parametrize("positions", KINDS)
def test_a_layer_gives_in_chunks_what_it_gives_at_once(
    positions: str | None, sizes: list[int]
) -> None:
    one, X, cache = layer(positions), normal(B, T, D_MODEL), memory()
    output = torch.cat([one(x, cache=cache) for x in X.split(sizes, 1)], 1)
    torch.testing.assert_close(output, one(X), rtol=1e-12, atol=1e-12)
    assert cache.lengths == (T,) * B


@pytest.mark.usefixtures("without_gradients")
@pytest.mark.parametrize("positions", KINDS)
def test_positions_of_a_layer_go_on_for_each_row(positions: str | None) -> None:
    one, X, cache = layer(positions), normal(B, T, D_MODEL), memory()
    full, starts = one(X), [0, 0, 0]
    for counts in ([60, 2, 0], [7, 1, 30], [0, 64, 3]):
        padded = torch.full((B, max(counts), D_MODEL), math.nan).double()
        for row, (start, count) in enumerate(zip(starts, counts, strict=True)):
            padded[row, :count] = X[row, start : start + count]
        output = one(padded, cache=cache, lengths=counts)
        for row, (start, count) in enumerate(zip(starts, counts, strict=True)):
            wanted = full[row, start : start + count]
            torch.testing.assert_close(output[row, :count], wanted, rtol=1e-12, atol=1e-12)
        starts = [start + count for start, count in zip(starts, counts, strict=True)]
        assert cache.lengths == tuple(starts)


@pytest.mark.usefixtures("without_gradients")
@pytest.mark.parametrize(
    ("more", "error", "said"),
    [
        ({"cache": [1]}, TypeError, "cache must be a torch_decoding.KVCache; got list"),
        ({"cache": memory(2)}, ValueError, r"X must be \(B, T, d_model\) with B = 2"),
        ({"X": normal(5, D_MODEL)}, ValueError, r"X must be \(B, T, d_model\) with B = 3"),
        ({"attn_mask": torch.ones(5, 5).bool()}, ValueError, "attn_mask must be None beside"),
        ({"lengths": [1, 2]}, ValueError, "lengths must hold one integer for each of the 3 rows"),
        ({"lengths": [1, 6, 2]}, ValueError, r"lengths\[1\] must be at most 5; got 6"),
        ({"X": normal(B, T, D_MODEL)}, ValueError,
         f"X must continue a sequence to at most max_seq_len = {T} tokens; got 4 \\+ {T} in row 0"),
        ({"X": normal(B, 5, D_MODEL).float()}, TypeError, "X must have the dtype of the weights"),
        ({"cache": KVCache(B, 2, 9, D_HEAD)}, TypeError, "key must have the dtype of the cache"),
        ({"cache": KVCache(B, 6, 9, D_HEAD, dtype=torch.float64)}, ValueError,
         "key must have shape"),
        ({"cache": memory(capacity=4)}, ValueError, "at most capacity = 4 tokens; got 0"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)  # fmt: skip
def test_a_layer_refuses_what_does_not_continue_its_cache(
    more: dict[str, Any], error: type[Exception], said: str
) -> None:
    cache, X = memory(), normal(B, 5, D_MODEL)
    one = layer("rotary")
    one(normal(B, 4, D_MODEL), cache=cache)
    before = bits(cache.key), bits(cache.value), cache.lengths
    with pytest.raises(error, match=said):
        one(**{"X": X, "cache": cache} | more)
    assert (bits(cache.key), bits(cache.value), cache.lengths) == before


def test_a_layer_that_sees_the_future_takes_no_cache() -> None:
    with pytest.raises(ValueError, match="layer with is_causal=True; got False"):
        layer(is_causal=False)(normal(B, 5, D_MODEL), cache=memory())


def test_a_layer_says_that_a_cache_keeps_no_gradients() -> None:
    with pytest.raises(RuntimeError, match=r"query must not|key must not .*torch.no_grad\(\)"):
        layer()(normal(B, 5, D_MODEL), cache=memory())


# -- the usual mistakes, which tests/mistakes.txt makes on purpose ---------------------------------


def seen(new: Sequence[Tensor], rows: Callable[[int], Sequence[int]], group: bool = True) -> Any:
    """Return the output of the last tokens, of which query i sees the keys rows(i)."""
    query, key, value = (array(x) for x in new)
    pairs = [(h // (H // H_KV) if group else h % H_KV) for h in range(H)]
    key, value = key[:, pairs], value[:, pairs]
    mask = np.full((query.shape[2], key.shape[2]), -np.inf)
    for i in range(len(mask)):
        mask[i, [j for j in rows(i) if j < mask.shape[1]]] = 0
    return softmax(scores(query, key) + mask) @ value


def continued(n_tokens: int, n_new: int, **options: Any) -> tuple[Any, list[Tensor]]:
    """Return the output of the last few tokens, and their queries beside all keys and values."""
    new = tokens(n_tokens=n_tokens, dtype=torch.float64)
    cache, first = empty(dtype=torch.float64), n_tokens - n_new
    cache.append(*(x[:, :, :first] for x in new[1:]))
    output = attend(*(x[:, :, first:] for x in new), cache, **options)
    return array(output), [new[0][:, :, first:], *new[1:]]


def test_new_tokens_stand_at_the_last_keys() -> None:
    got, new = continued(9, 4)
    wrong = [
        ("the causal mask is aligned at the top left", seen(new, lambda i: range(i + 1))),
        ("new tokens see those after them", seen(new, lambda _: range(9))),
        ("a new token does not see itself", seen(new, lambda i: range(i + 5))),
    ]
    hold("attend", got, seen(new, lambda i: range(i + 6)), wrong)


def test_a_window_keeps_what_the_first_new_token_needs() -> None:
    got, new = continued(9, 4, window=(2, 0))
    wrong = [
        ("keys go that the first new tokens need",
         seen(new, lambda i: range(max(i + 3, 6), i + 6))),
        ("a window has no beginning", seen(new, lambda i: range(i + 6))),
    ]  # fmt: skip
    hold("attend", got, seen(new, lambda i: range(i + 3, i + 6)), wrong)


@pytest.mark.parametrize("n_new", [1, 4])
def test_new_tokens_share_key_heads_with_their_neighbours(n_new: int) -> None:
    got, new = continued(9, n_new)

    def rows(i: int) -> range:
        return range(i + 10 - n_new)

    wrong = [("key heads are dealt out by tile: h % H_kv", seen(new, rows, group=False))]
    hold("attend", got, seen(new, rows), wrong)


def test_taking_tokens_back() -> None:
    new = tokens(n_tokens=9, dtype=torch.float64)
    query, key, value = (x[:, :, 8:] for x in new)
    cache = empty(capacity=12, dtype=torch.float64)
    cache.append(*(x[:, :, :8] for x in new[1:]))
    cache.truncate([8, 5, 2])
    got = array(attend(query, key, value, cache))

    def after(lengths: list[int]) -> Any:
        outputs = []
        for row, length in enumerate(lengths):
            kept = [*range(length), 8]
            own = [query[row : row + 1], *(x[row : row + 1, :, kept] for x in new[1:])]
            outputs.append(seen(own, lambda _, n=length: range(n + 1)))  # type: ignore[misc]
        return np.concatenate(outputs)

    wrong = [
        ("the length is not rolled back", after([8, 8, 8])),
        ("all rows are rolled back alike", after([2, 2, 2])),
        ("one token too many is rolled back", after([7, 4, 1])),
    ]
    hold("truncate", got, after([8, 5, 2]), wrong)


def test_padding_of_new_tokens_is_not_read() -> None:
    new = tokens(n_tokens=3, dtype=torch.float64)
    cache = empty(dtype=torch.float64)
    attend(*new, cache, counts=[3, 1, 2])
    query, key, value = (x[:, :, :1] - 1 for x in new)
    got = array(attend(query, key, value, cache))

    def seeing(counts: list[int]) -> Any:
        outputs = []
        for row, count in enumerate(counts):
            own = [torch.cat([x[row : row + 1, :, :count], y[row : row + 1]], 2)
                   for x, y in ((new[1], key), (new[2], value))]  # fmt: skip
            outputs.append(seen([query[row : row + 1], *own], lambda _: range(9)))
        return np.concatenate(outputs)

    wrong = [("padding is read", seeing([3, 3, 3])), ("a row lacks a token", seeing([2, 0, 1]))]
    hold("attend", got, seeing([3, 1, 2]), wrong)


@pytest.mark.usefixtures("without_gradients")
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
def test_each_row_has_positions_of_its_own(positions: str) -> None:
    one, X = layer(positions), normal(B, 12, D_MODEL)
    lengths = [2, 9, 4]

    def after(starts: list[int]) -> Any:
        """Return the output of one more token, which is taken to stand at these places."""
        cache = memory()
        one(X[:, :9], cache=cache, lengths=lengths)
        if one.positions == "learned":
            given = torch.stack([one.learned[n] for n in starts])[:, None]  # type: ignore[index]
        elif one.positions == "sinusoidal":
            given = torch.stack([sinusoidal(1, D_MODEL, like=X, start=n) for n in starts])
        token = X[:, 9:10]
        if one.positions == "rotary":
            new = [split_heads(W(token), n) for W, n in ((one.W_Q, 6), (one.W_K, 2), (one.W_V, 2))]
            places = torch.tensor(starts)[:, None]
            new[:2] = [rotary(x, places) for x in new[:2]]
        else:
            token = token + given
            new = [split_heads(W(token), n) for W, n in ((one.W_Q, 6), (one.W_K, 2), (one.W_V, 2))]
        return array(one.W_O(merge_heads(attend(*new, cache))))

    cache = memory()
    one(X[:, :9], cache=cache, lengths=lengths)
    got = array(one(X[:, 9:10], cache=cache))
    wrong = [
        ("all rows have the positions of the first", after([2, 2, 2])),
        ("positions begin anew in every call", after([0, 0, 0])),
        ("the position is that of the token before", after([1, 8, 3])),
    ]
    hold("the layer", got, after(lengths), wrong)


def test_pieces_weigh_what_their_keys_weigh() -> None:
    query, key, value = normal(1, 4, 5), normal(1, 7, 5, seed=2), normal(1, 7, 6, seed=3)
    outputs, lses = in_pieces([3, 5], key, value, query)
    got = array(merge(outputs, lses)[0])
    s = scores(array(query), array(key))
    parts = np.stack([array(x) for x in outputs])
    sums = np.stack([np.exp(s[..., a:b]).sum(-1) for a, b in ((0, 3), (3, 5), (5, 7))])

    def weighted(weights: Any) -> Any:
        return (parts * (weights / weights.sum(0))[..., None]).sum(0)

    wrong = [
        ("all pieces weigh the same", weighted(np.ones_like(sums))),
        ("log-sum-exps are taken in base 2", weighted(2 ** np.log(sums))),
        ("the last piece is left out", weighted(sums * np.array([1, 1, 0])[:, None, None])),
    ]
    hold("merge", got, softmax(s) @ array(value), wrong)


# -- merge -----------------------------------------------------------------------------------------


def in_pieces(cuts: list[int], key: Tensor, value: Tensor, query: Tensor) -> list[list[Tensor]]:
    """Return outputs and log-sum-exps of the keys between these cuts."""
    attend = torch_dense.scaled_dot_product_attention_with_lse
    ends = [0, *cuts, key.shape[-2]]
    found = [
        attend(query, key[..., a:b, :], value[..., a:b, :]) for a, b in itertools.pairwise(ends)
    ]
    return [list(parts) for parts in zip(*found, strict=True)]


@pytest.mark.parametrize("cuts", [[], [3], [1, 2, 6], [0, 4, 7], [2, 2]], ids=str)
def test_merged_pieces_are_attention_over_all_keys(cuts: list[int]) -> None:
    query, key, value = normal(2, 3, 5, 4), normal(2, 3, 7, 4, seed=2), normal(2, 3, 7, 6, seed=3)
    outputs, lses = in_pieces(cuts, key, value, query)
    output, lse = merge(outputs, lses)
    wanted = torch_dense.scaled_dot_product_attention_with_lse(query, key, value)
    torch.testing.assert_close((output, lse), wanted, rtol=1e-13, atol=1e-13)


def test_a_piece_that_saw_nothing_changes_no_bit() -> None:
    output, lse = normal(3, 4), normal(3, seed=2)
    nothing = torch.zeros(3, 4).double(), torch.full((3,), -math.inf).double()
    for order in ([0, 1], [1, 0]):
        parts = [(output, lse), nothing]
        merged = merge(*zip(*(parts[i] for i in order), strict=True))
        assert torch.equal(merged[0], output)
        assert torch.equal(merged[1], lse)


def test_pieces_that_all_saw_nothing_give_nothing() -> None:
    outputs, lses = torch.zeros(2, 3, 4), torch.full((2, 3), -math.inf)
    output, lse = merge(outputs.requires_grad_().unbind(), lses.requires_grad_().unbind())
    assert torch.equal(output, torch.zeros(3, 4))
    assert torch.equal(lse, torch.full((3,), -math.inf))
    gradients = torch.autograd.grad((output, lse), (outputs, lses), (output + 1, torch.ones(3)))
    assert all(torch.equal(g, torch.zeros_like(g)) for g in gradients)


def test_merge_has_gradients_of_both_results() -> None:
    outputs, lses = normal(3, 2, 4), normal(3, 2, seed=2)
    lses[1, 0] = 30.0  # outweighs the others

    def merged(outputs: Tensor, lses: Tensor) -> tuple[Tensor, Tensor]:
        return merge(outputs.unbind(), lses.unbind())

    assert torch.autograd.gradcheck(merged, (outputs.requires_grad_(), lses.requires_grad_()))


def test_merge_takes_lses_of_any_size() -> None:
    outputs = [torch.tensor([[6.0]]), torch.tensor([[2.0]])]
    for lse in (-3e38, -1e4, 1e4, 3e38):
        output, _ = merge(outputs, [torch.tensor([lse])] * 2)
        assert output.item() == 4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_merge_rounds_half_precision_once(dtype: torch.dtype) -> None:
    outputs, lses = normal(3, 5, 4, dtype=dtype), normal(3, 5, dtype=torch.float32)
    output, lse = merge(outputs.unbind(), lses.unbind())
    wide, same = merge(outputs.float().unbind(), lses.unbind())
    assert (output.dtype, lse.dtype) == (dtype, torch.float32)
    assert torch.equal(output, wide.to(dtype))
    assert torch.equal(lse, same)


@pytest.mark.parametrize(
    ("outputs", "lses", "error", "said"),
    [
        ([], [], ValueError, "got 0 outputs and 0 lses"),
        ([torch.zeros(1, 2)], [], ValueError, "one tensor for each piece; got 1 outputs and 0"),
        ([[0.0]], [torch.zeros(1)], TypeError, r"outputs\[0\] must be a torch.Tensor; got list"),
        ([torch.zeros(1, 2)], [0.0], TypeError, r"lses\[0\] must be a torch.Tensor; got float"),
        ([torch.zeros(1, 2)], [torch.zeros(2)], ValueError, r"lses\[0\] \(2,\)"),
        ([torch.tensor(1.0)], [torch.tensor(1.0)], ValueError, r"outputs\[0\] \(\)"),
        (
            [torch.zeros(1, 2), torch.zeros(1, 3)],
            [torch.zeros(1)] * 2,
            ValueError,
            r"each output \(1, 2\) .* got outputs\[1\] \(1, 3\)",
        ),
        (
            [torch.zeros(1, 2), torch.zeros(1, 2).double()],
            [torch.zeros(1)] * 2,
            TypeError,
            r"share one dtype; got outputs\[0\] float32, outputs\[1\] float64",
        ),
        (
            [torch.zeros(1, 2).half()],
            [torch.zeros(1).half()],
            TypeError,
            r"lses\[0\] must be torch.float32 on cpu, as the outputs ask; got torch.float16 on cpu",
        ),
        (
            [torch.zeros(1, 2)],
            [torch.zeros(1, device="meta")],
            TypeError,
            "on cpu, as the outputs ask; got torch.float32 on meta",
        ),
    ],
)
def test_merge_refuses_what_does_not_fit(
    outputs: Any, lses: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        merge(outputs, lses)
