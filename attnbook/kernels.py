"""The kernels that chapter 14 writes, as the pages below it import them.

A test holds them to be those of the chapter, character by character.
"""

# mypy: ignore-errors

import triton
import triton.language as tl
from triton.language import constexpr


@triton.jit
def place(first, rows, width, R: constexpr, C: constexpr):
    i, c = first + tl.arange(0, R)[:, None], tl.arange(0, C)[None, :]
    return i.to(tl.int64) * width + c, (i < rows) & (c < width)


@triton.jit
def read(source, first, rows, width, R: constexpr, C: constexpr):
    offset, there = place(first, rows, width, R, C)
    return tl.load(source + offset, mask=there, other=0.0)


@triton.jit
def write(target, block, first, rows, width, R: constexpr, C: constexpr):
    offset, there = place(first, rows, width, R, C)
    tl.store(target + offset, block, mask=there)


@triton.jit
def tile_scores(q, k, first, start, n_k, scale, CAUSAL: constexpr):
    i = first + tl.arange(0, q.shape[0])[:, None]
    j = start + tl.arange(0, k.shape[0])[None, :]
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if CAUSAL:
        scores = tl.where(j <= i, scores, -float("inf"))
    return tl.where(j < n_k, scores, -float("inf"))


@triton.jit
def update(m, ell, o, scores, v):
    m_new = tl.maximum(m, tl.max(scores, axis=1))  # finite: all see key 0
    rescale, weights = tl.exp2(m - m_new), tl.exp2(scores - m_new[:, None])
    ell = rescale * ell + tl.sum(weights, axis=1)
    added = tl.dot(weights.to(v.dtype), v, input_precision="ieee")
    return m_new, ell, rescale[:, None] * o + added


@triton.jit
def fused(Q, K, V, OUT, LSE, n_q, n_k, d_k, d_v, scale, CAUSAL: constexpr,
    B_Q: constexpr, B_K: constexpr, C_K: constexpr, C_V: constexpr):
    first = tl.program_id(0) * B_Q
    m = tl.full([B_Q], -float("inf"), tl.float32)
    ell, o = tl.zeros([B_Q], tl.float32), tl.zeros([B_Q, C_V], tl.float32)
    q = read(Q, first, n_q, d_k, B_Q, C_K)
    end = tl.minimum(first + B_Q, n_k) if CAUSAL else n_k
    for start in range(0, end, B_K):
        k = read(K, start, n_k, d_k, B_K, C_K)
        s = tile_scores(q, k, first, start, n_k, scale, CAUSAL)
        m, ell, o = update(m, ell, o, s, read(V, start, n_k, d_v, B_K, C_V))
    lse = (m + tl.log2(ell)) * 0.6931471805599453  # log 2
    write(OUT, o / ell[:, None], first, n_q, d_v, B_Q, C_V)
    write(LSE, lse[:, None], first, n_q, 1, B_Q, 1)
