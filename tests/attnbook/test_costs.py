"""The counter counts what a formula says."""

from __future__ import annotations

import torch

from attnbook import costs
from attnlib.torch_dense import scaled_dot_product_attention


def test_operations_of_attention_are_those_of_its_two_products() -> None:
    query, key, value = (torch.empty(3, n, d, device="meta") for n, d in ((5, 7), (11, 7), (11, 2)))
    found = costs.operations(scaled_dot_product_attention, query, key, value, is_causal=True)
    assert found == 2 * 3 * 5 * 11 * (7 + 2)
