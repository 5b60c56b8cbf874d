"""The functions of chapter 16 compute in `attnbook.ring_steps` what they compute there."""

from __future__ import annotations

import numpy as np
import torch
from implementations import array, tensor
from inputs import drawn
from ring_ranks import by_steps
from tolerance import assert_close, forward_size, lse_size

from attnbook.ranks import run
from attnlib import numpy_dense


def test_the_functions_of_the_module_find_each_other() -> None:
    """The chapter has other imports. Each of three ranks has two others beside it."""
    n_ranks, n_tokens = 3, 42
    query, key, value = drawn((n_tokens, 8), (n_tokens, 8), (n_tokens, 5), dtype="float32")
    kv = np.concatenate([key, value], axis=-1)
    found = run(by_steps, n_ranks, tensor(query), tensor(kv), limit=120.0)
    exact = [x.astype("float64") for x in (query, key, value)]
    right = numpy_dense.scaled_dot_product_attention_with_lse(*exact, is_causal=True)
    sizes = forward_size(query, key, value, is_causal=True), lse_size(query, key, is_causal=True)
    order = np.ravel([[0, 5], [1, 4], [2, 3]])  # of the six chunks
    for i, (truth, size) in enumerate(zip(right, sizes, strict=True)):
        ours = np.empty_like(truth, dtype="float32").reshape(6, 7, *truth.shape[1:])
        ours[order] = array(torch.cat([results[i] for results in found]))
        assert_close(ours.reshape(truth.shape), truth, dtype="float32", size=size)
    for *_, sent in found:
        assert sent == [kv.nbytes // n_ranks] * (n_ranks - 1)
