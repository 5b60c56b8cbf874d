"""What `torch_decoding` promises beyond the contract of all forms: see test_cases.

There its `merge` is asked too. What must be the same bit for bit runs on one thread: two may cut a
product in other places.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from implementations import array
from torch import Tensor

from attnlib import torch_dense
from attnlib.torch_decoding import KVCache, attend, merge, scaled_dot_product_attention
from attnlib.torch_layers import MultiHeadSelfAttention

B, H, H_KV, T, E, E_V = 3, 6, 2, 67, 5, 7
CHUNKS = [29, 1, 1, 20, 16]


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
    batch: int = B, capacity: int = T, dtype: torch.dtype = torch.float32, unused: float = math.nan
) -> KVCache:
    """Return a cache for such tokens, in which everything that is read unwritten is NaN."""
    cache = KVCache(batch, H_KV, capacity, E, E_V, dtype=dtype)
    cache.key.fill_(unused)
    cache.value.fill_(unused)
    return cache


def part(new: Sequence[Tensor], start: int, stop: int) -> list[Tensor]:
    """Return the tokens from start to stop - 1."""
    return [x[:, :, start:stop] for x in new]


def in_chunks(
    sizes: Sequence[int], new: Sequence[Tensor], cache: KVCache, **options: Any
) -> Tensor:
    """Return the output of tokens that come a few at a time."""
    parts = zip(*(x.split(list(sizes), 2) for x in new), strict=True)
    return torch.cat([attend(*chunk, cache, **options) for chunk in parts], 2)


def at_once(new: Sequence[Tensor], **options: Any) -> Tensor:
    """Return the output of one pass over all tokens, by the dense form."""
    return torch_dense.scaled_dot_product_attention(
        *new, is_causal=True, enable_gqa=True, **options
    )


# -- the same numbers as one pass over all tokens --------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "close", "window", "block_size_k"),
    [
        (torch.float32, 1e-5, None, None),
        (torch.float32, 1e-5, (4, 0), 8),
        (torch.float64, 1e-13, (4, 0), None),
        (torch.bfloat16, 2**-8, None, 8),
    ],
)
def test_any_chunks_give_what_one_pass_gives(
    dtype: torch.dtype, close: float, window: tuple[int, int] | None, block_size_k: int | None
) -> None:
    """Half precision is rounded once: it differs by the last bit of few numbers."""
    new = tokens(dtype=dtype)
    wanted = at_once([x.double() for x in new], window=window)
    for sizes in ([1] * T, CHUNKS, [0, T]):
        cache = empty(dtype=dtype)
        output = in_chunks(sizes, new, cache, window=window, block_size_k=block_size_k)
        assert cache.lengths == (T,) * B and output.dtype == dtype
        torch.testing.assert_close(output.double(), wanted, rtol=close, atol=close)


def test_the_pieces_are_those_that_are_asked_for() -> None:
    """Their results are equal but for the last bits, in which they are not."""
    new = tokens()
    whole, pieces = (
        scaled_dot_product_attention(*new, enable_gqa=True, block_size_k=n) for n in (None, 3)
    )
    assert not torch.equal(whole, pieces)


@pytest.mark.parametrize("scale", [0.0, -0.3, 1e60])
def test_the_scale_is_that_of_the_other_forms(scale: float) -> None:
    new = tokens(1, 4, dtype=torch.float64)
    output = in_chunks([2, 1, 1], new, empty(1, dtype=torch.float64), scale=scale)
    torch.testing.assert_close(output, at_once(new, scale=scale), rtol=1e-12, atol=1e-12)
    small = [torch.full((1, 1, 1, 1), number) for number in (1e-30, 1e-30, 3.0)]
    cache = KVCache(1, 1, 2, 1)  # float32 does not hold 1e60
    assert [attend(*small, cache, scale=scale).item() for _ in range(2)] == [3.0, 3.0]


@pytest.mark.parametrize("block_size_k", [None, 2])
def test_each_row_goes_on_where_it_ended(block_size_k: int | None) -> None:
    """Padding is not read, gives 0, and is not kept."""
    new, cache, appended = tokens(), empty(), empty()
    full, starts = at_once(new), [0] * B
    for counts in ([5, 0, 11], (3, 4, 1), torch.tensor([2, 2, 2]), [0, 0, 0]):
        counted = [int(count) for count in counts]
        rows = list(zip(starts, counted, strict=True))
        padded = [torch.full((B, x.shape[1], max(counted) + 1, x.shape[3]), math.nan) for x in new]
        for row, (start, count) in enumerate(rows):
            for own, x in zip(padded, new, strict=True):
                own[row, :, :count] = x[row, :, start : start + count]
        output = attend(*padded, cache, counts=counts, block_size_k=block_size_k)
        appended.append(*padded[1:], counts=counts)
        for row, (start, count) in enumerate(rows):
            torch.testing.assert_close(output[row, :, :count], full[row, :, start : start + count])
            assert not output[row, :, count:].any()
        starts = [start + count for start, count in rows]
        assert cache.lengths == tuple(starts) and same(cache, appended)


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


def test_tokens_that_were_taken_back_were_never_there() -> None:
    new, guessed = tokens(), [x + 1 for x in tokens(n_tokens=4)]
    plain, cache = empty(), empty(capacity=T + 4)
    for first in range(0, 40, 5):
        wanted = attend(*part(new, first, first + 5), plain)
        lengths = cache.lengths
        attend(*guessed, cache)
        cache.truncate(lengths)
        assert bits(attend(*part(new, first, first + 5), cache)) == bits(wanted)
    assert same(cache, plain)


def test_each_row_is_rolled_back_to_its_own_length() -> None:
    new, cache, wanted = tokens(), empty(), empty()
    cache.append(*part(new[1:], 0, 7))
    cache.truncate([5, 2, 0])
    wanted.append(*part(new[1:], 0, 7), counts=[5, 2, 0])
    assert same(cache, wanted)


def test_beams_go_on_as_if_they_had_been_alone() -> None:
    new, chosen, cache = tokens(), [1, 1, 0], empty()
    cache.append(*part(new[1:], 0, 7), counts=[7, 3, 5])
    beams, alone = cache.select(chosen), empty(len(chosen))
    alone.append(*(x[chosen, :, :7] for x in new[1:]), counts=[3, 3, 7])
    before = bits(cache.key), bits(cache.value), cache.lengths
    new_ones = [x[chosen, :, 7:9] for x in new]
    assert bits(attend(*new_ones, beams)) == bits(attend(*new_ones, alone)) and same(beams, alone)
    assert (bits(cache.key), bits(cache.value), cache.lengths) == before, "a beam is no copy"


# -- the cache -------------------------------------------------------------------------------------


def test_memory_is_set_aside_once() -> None:
    cache = KVCache(3, 2, 11, 5, 7, dtype=torch.float16)
    assert cache.n_bytes == 3 * 2 * 11 * (5 + 7) * 2
    cache = empty()
    places = cache.key.data_ptr(), cache.value.data_ptr()
    in_chunks(CHUNKS, tokens(), cache)
    cache.truncate([3, 3, 3])
    assert (cache.key.data_ptr(), cache.value.data_ptr()) == places


def test_keys_before_a_window_are_not_read() -> None:
    new, cache, plain = tokens(), empty(), empty()
    for each in (cache, plain):
        each.append(*part(new[1:], 0, 20))
    cache.key[:, :, :15], cache.value[:, :, :15] = math.nan, math.nan
    for size in (1, 2):
        both = [attend(*part(new, 20, 20 + size), each, window=(5, 0)) for each in (cache, plain)]
        assert bits(both[0]) == bits(both[1])
        for each in (cache, plain):
            each.truncate([20] * B)


def test_nan_in_what_is_seen_comes_out() -> None:
    new, cache = tokens(n_tokens=4), empty()
    new[1][1, 0, 2, 2] = math.nan
    wrong = torch.isnan(in_chunks([1] * 4, new, cache)).all(-1)
    assert wrong[1, : H // H_KV, 2:].all() and wrong.sum() == H // H_KV * 2


def test_gradients_are_not_needed_where_none_are_recorded() -> None:
    new, cache = [x.requires_grad_() for x in tokens(n_tokens=2)], empty()
    with torch.no_grad():
        assert not attend(*new, cache).requires_grad
    assert not cache.key.requires_grad


def test_one_dtype_serves_under_autocast() -> None:
    new, cache = tokens(n_tokens=3), empty(dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = attend(*new, cache)
    plain = attend(*(x.bfloat16() for x in new), empty(dtype=torch.bfloat16))
    assert output.dtype == torch.bfloat16 and bits(output) == bits(plain)


def test_shapes_can_be_had_without_numbers() -> None:
    new, cache = tokens(), KVCache(B, H_KV, T, E, E_V, device="meta")
    output = in_chunks(CHUNKS, [x.to("meta") for x in new], cache)
    assert (output.shape, output.device.type) == ((B, H, T, E_V), "meta")


# -- what is refused -------------------------------------------------------------------------------


def bad(error: type[Exception], said: str, **wrong: Any) -> Any:
    """A call that is right but for these arguments."""
    return pytest.param(wrong, error, said, id="-".join(map(str, wrong)) + "-" + said[:30])


QUERY, KEY, VALUE = tokens(n_tokens=4)
REFUSED = [
    bad(TypeError, "key must be a torch.Tensor; got list", key=[1.0]),
    bad(TypeError, "key must have the dtype of the cache, float32; got float64", key=KEY.double()),
    bad(ValueError, "key must be on the device of the cache, cpu; got meta", key=KEY.to("meta")),
    bad(ValueError, r"key must have shape \(3, 2, 4, 5\); got \(3, 2, 4, 4\)", key=KEY[..., :4]),
    bad(ValueError, r"key must have shape \(3, 2, 0, 5\); got \(4,\)", key=KEY[0, 0, :, 0]),
    bad(ValueError, r"value must have shape \(3, 2, 4, 7\); got \(3, 2, 3, 7\)",
        value=VALUE[:, :, :3]),
    bad(RuntimeError, "value must not require gradients, because a cache keeps none",
        value=VALUE.clone().requires_grad_()),
    bad(ValueError, r"counts must hold one integer for each of the 3 rows; got \[1, 1\]",
        counts=[1, 1]),
    bad(ValueError, r"counts\[2\] must be at most 4; got 5", counts=[1, 2, 5]),
    bad(ValueError, r"at most capacity = 8 tokens; got 5 \+ 4 in row 1", counts=[0, 4, 0]),
]
REFUSED_BY_ATTEND = [
    bad(TypeError, "query must be a torch.Tensor; got NoneType", query=None),
    bad(ValueError, r"query must have shape \(3, 6, 4, 5\); got \(3, 6, 3, 5\)",
        query=QUERY[:, :, :3]),
    bad(ValueError, r"query must have shape \(3, 2, 4, 5\); got \(6, 4, 5\)", query=QUERY[0]),
    bad(ValueError, "query must have a multiple of 2 heads; got 5", query=QUERY[:, :5]),
    bad(TypeError, "cache must be a KVCache; got NoneType", cache=None),
    bad(ValueError, "scale must be finite; got nan", scale=math.nan),
    bad(TypeError, r"window must be None or a pair \(left, right\); got 3", window=3),
    bad(TypeError, "block_size_k must be an integer; got 2.0", block_size_k=2.0),
    bad(ValueError, "block_size_k must be at least 1; got 0", block_size_k=0),
]


@pytest.mark.parametrize(("wrong", "error", "said"), [*REFUSED, *REFUSED_BY_ATTEND])
def test_a_call_that_fails_changes_nothing(
    wrong: dict[str, Any], error: type[Exception], said: str
) -> None:
    cache = empty(capacity=8)
    cache.append(KEY, VALUE, counts=[2, 4, 1])
    cache.append(KEY, VALUE, counts=[0, 1, 0])
    before = bits(cache.key), bits(cache.value), cache.lengths
    given = {"key": KEY, "value": VALUE, "counts": [1, 1, 1]} | wrong
    with pytest.raises(error, match=said):
        attend(**{"query": QUERY, "cache": cache} | given)
    if {*wrong} <= {"key", "value", "counts"}:
        with pytest.raises(error, match=said):
            cache.append(**given)
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
            attend(*part((QUERY, KEY, VALUE), 0, 1), cache)
    assert same(cache, plain)


SIZES = {"batch": 1, "n_kv_heads": 1, "capacity": 1, "d_k": 1, "d_v": 1}


@pytest.mark.parametrize(
    ("method", "given", "error", "said"),
    [
        ("truncate", [1, 2, 5], ValueError, r"lengths\[2\] must be at most 4; got 5"),
        ("truncate", torch.tensor(2), TypeError, "lengths must be a sequence of integers"),
        ("truncate", [1, True, 2], TypeError, r"lengths\[1\] must be an integer; got True"),
        ("select", [3], ValueError, r"rows\[0\] must be at most 2; got 3"),
        *((None, {name: 0}, ValueError, f"{name} must be at least 1; got 0") for name in SIZES),
        (None, {"capacity": 2.5}, TypeError, "capacity must be an integer; got 2.5"),
        (None, {"dtype": torch.int32}, TypeError, "dtype must be one of .*; got torch.int32"),
        (None, {"dtype": "float32"}, TypeError, "dtype must be a torch.dtype; got 'float32'"),
    ],
    ids=str,
)
def test_a_cache_refuses(method: str | None, given: Any, error: Any, said: str) -> None:
    cache = empty()
    cache.append(KEY, VALUE)
    with pytest.raises(error, match=said):
        getattr(cache, method)(given) if method else KVCache(**SIZES | given)
    assert cache.lengths == (4, 4, 4)


# -- a layer that goes on --------------------------------------------------------------------------

D_MODEL, D_HEAD = 24, 4
every_kind = pytest.mark.parametrize("positions", [None, "sinusoidal", "learned", "rotary"])


def layer(positions: Any = None, **more: Any) -> MultiHeadSelfAttention:
    torch.manual_seed(3)
    settings = {"n_kv_heads": 2, "is_causal": True, "max_seq_len": T, "bias": True} | more
    return MultiHeadSelfAttention(D_MODEL, 6, positions=positions, **settings).double()


def memory(batch: int = B, capacity: int = T) -> KVCache:
    return KVCache(batch, 2, capacity, D_HEAD, dtype=torch.float64)


@every_kind
@torch.no_grad()
def test_positions_of_a_layer_go_on_for_each_row(positions: str | None) -> None:
    one, X, cache = layer(positions), normal(B, T, D_MODEL), memory()
    full, starts = one(X), [0, 0, 0]
    for counts in ([1, 1, 1], [59, 1, 0], [7, 1, 30], [0, 64, 3]):
        rows = list(zip(starts, counts, strict=True))
        padded = torch.full((B, max(counts), D_MODEL), math.nan).double()
        for row, (start, count) in enumerate(rows):
            padded[row, :count] = X[row, start : start + count]
        output = one(padded, cache=cache, lengths=counts)
        for row, (start, count) in enumerate(rows):
            wanted = full[row, start : start + count]
            torch.testing.assert_close(output[row, :count], wanted, rtol=1e-12, atol=1e-12)
        starts = [start + count for start, count in rows]
        assert cache.lengths == tuple(starts)


@pytest.mark.parametrize(
    ("more", "error", "said"),
    [
        ({"cache": [1]}, TypeError, "cache must be a torch_decoding.KVCache; got list"),
        ({"cache": memory(2)}, ValueError, r"X must be \(B, T, d_model\) with B = 2"),
        ({"attn_mask": torch.ones(5, 5).bool()}, ValueError, "attn_mask must be None beside"),
        ({"lengths": [1, 2]}, ValueError, "lengths must hold one integer for each of the 3 rows"),
        ({"X": normal(B, T, D_MODEL)}, ValueError,
         f"X must continue a sequence to at most max_seq_len = {T} tokens; got 4 \\+ {T} in row 0"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
@torch.no_grad()
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


def test_a_layer_that_sees_the_future_or_records_gradients_takes_no_cache() -> None:
    with pytest.raises(ValueError, match="layer with is_causal=True; got False"):
        layer(is_causal=False)(normal(B, 5, D_MODEL), cache=memory())
    with pytest.raises(RuntimeError, match=r"query must not|key must not .*torch.no_grad\(\)"):
        layer()(normal(B, 5, D_MODEL), cache=memory())


# -- merge -----------------------------------------------------------------------------------------


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


def test_merge_rounds_half_precision_once() -> None:
    outputs = normal(3, 5, 4, dtype=torch.bfloat16)
    lses = normal(3, 5, dtype=torch.float32)
    output, lse = merge(outputs.unbind(), lses.unbind())
    wide, same = merge(outputs.float().unbind(), lses.unbind())
    assert (output.dtype, lse.dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(output, wide.bfloat16())
    assert torch.equal(lse, same)


ONE, LSE = torch.zeros(1, 2), torch.zeros(1)


@pytest.mark.parametrize(
    ("outputs", "lses", "error", "said"),
    [
        ([], [], ValueError, "got 0 outputs and 0 lses"),
        ([[0.0]], [LSE], TypeError, r"outputs\[0\] must be a torch.Tensor; got list"),
        ([ONE], [0.0], TypeError, r"lses\[0\] must be a torch.Tensor; got float"),
        ([ONE], [torch.zeros(2)], ValueError, r"lses\[0\] \(2,\)"),
        ([ONE[0, 0]], [LSE[0]], ValueError, r"outputs\[0\] \(\)"),
        ([ONE, torch.zeros(1, 3)], [LSE] * 2, ValueError,
         r"each output \(1, 2\) .* got outputs\[1\] \(1, 3\)"),
        ([ONE, ONE.double()], [LSE] * 2, TypeError,
         r"share one dtype; got outputs\[0\] float32, outputs\[1\] float64"),
        ([ONE.half()], [LSE.half()], TypeError,
         r"lses\[0\] must be torch.float32 on cpu, as the outputs ask; got torch.float16 on cpu"),
        ([ONE], [LSE.to("meta")], TypeError,
         "on cpu, as the outputs ask; got torch.float32 on meta"),
    ],
)
def test_merge_refuses_what_does_not_fit(
    outputs: Any, lses: Any, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        merge(outputs, lses)
