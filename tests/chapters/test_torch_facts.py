"""What chapters 7 and 10 and the page of questions say of PyTorch, and no cell of them shows."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

SDPA = torch.nn.functional.scaled_dot_product_attention
CAUSAL = torch.ones(5, 5).tril().bool()
NO_KEY = torch.zeros(5, 5).bool()


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.manual_seed(0))


@pytest.mark.parametrize(("call", "is_taken"), [
    ({}, True), ({"is_causal": True}, True), ({"attn_mask": CAUSAL}, True),
    ({"attn_mask": CAUSAL, "is_causal": True}, True),
    ({"attn_mask": torch.zeros(5, 5, requires_grad=True)}, False), ({"dropout_p": 0.1}, False),
])
def test_which_calls_the_fused_kernel_of_a_cpu_takes(call: dict[str, Any], is_taken: bool) -> None:
    whole = draw(2, 3, 5, 4)
    narrow = whole[..., :3]  # values of another width than the keys
    for x, value, expected in [
        (whole, whole, is_taken), (whole[0], whole[0], False), (whole, narrow, False),
    ]:
        with warnings.catch_warnings(), sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            warnings.simplefilter("ignore")  # they say why it is not taken
            try:
                taken = SDPA(x, x, value, **call) is not None
            except RuntimeError:
                taken = False
        assert taken == expected


def test_a_mask_and_is_causal_are_both_applied_by_the_fused_kernel_and_refused_by_the_plain_form(
) -> None:
    x, mixed = draw(2, 3, 5, 4), draw(5, 5) > 0
    mixed[:, 0] = True
    together = SDPA(x, x, x, mixed, is_causal=True)
    torch.testing.assert_close(together, SDPA(x, x, x, mixed & CAUSAL))
    assert not torch.allclose(together, SDPA(x, x, x, mixed), atol=1e-2)
    with sdpa_kernel(SDPBackend.MATH), pytest.raises(RuntimeError):
        SDPA(x, x, x, mixed, is_causal=True)


def test_is_causal_puts_the_first_query_at_the_first_key() -> None:
    x = draw(2, 3, 5, 4)
    torch.testing.assert_close(SDPA(x[..., 4:, :], x, x, is_causal=True), x[..., :1, :])
    torch.testing.assert_close(
        SDPA(x[..., 4:, :], x, x), SDPA(x, x, x, is_causal=True)[..., 4:, :]
    )


def test_an_empty_row_is_zero_in_the_function_and_nan_in_the_layer() -> None:
    x = draw(2, 5, 4)
    assert not SDPA(x, x, x, NO_KEY).any()
    layer = nn.MultiheadAttention(4, 2, batch_first=True)
    nn.init.normal_(layer.out_proj.bias)
    assert layer(x, x, x, attn_mask=~NO_KEY)[0].isnan().all()
    bare = layer(x, x, x, attn_mask=~NO_KEY, need_weights=False)[0]  # zeros, and then the bias
    torch.testing.assert_close(bare, layer.out_proj.bias.expand(2, 5, 4))
    with torch.no_grad():  # another path
        assert layer.eval()(x, x, x, attn_mask=~NO_KEY, need_weights=False)[0].isnan().all()
        odd = nn.MultiheadAttention(6, 3, batch_first=True).eval()  # not taken by this path
        wide = draw(2, 5, 6)
        assert not odd(wide, wide, wide, attn_mask=~NO_KEY, need_weights=False)[0].isnan().any()


def test_habits_of_the_layer() -> None:
    theirs, x = nn.MultiheadAttention(12, 3, batch_first=True), draw(2, 5, 12)
    expected, weights = theirs(x, x, x)
    each = theirs(x, x, x, average_attn_weights=False)[1]
    torch.testing.assert_close(weights, each.mean(dim=1))
    masked = theirs(x, x, x, attn_mask=~CAUSAL)[1]  # True removes
    assert not masked[:, ~CAUSAL].any()
    unlike = nn.MultiheadAttention(12, 3)  # without batch_first=True: no error
    unlike.load_state_dict(theirs.state_dict())
    assert (unlike(x, x, x)[0] - expected).abs().max() > 0.1


def test_dropout_keeps_the_sum_of_a_row_in_the_mean_and_stops_after_eval() -> None:
    x, ones = draw(200, 3, 7, 4), torch.ones(200, 3, 7, 1)
    sums = SDPA(x, x, ones, dropout_p=0.5)
    assert not torch.allclose(sums, torch.ones(1)) and abs(sums.mean() - 1) < 0.1
    layer, y = nn.MultiheadAttention(12, 3, dropout=0.5).eval(), draw(5, 2, 12)
    torch.testing.assert_close(layer(y, y, y)[1].sum(dim=-1), torch.ones(2, 5))


def test_windows_and_the_log_sum_exp_are_as_the_newer_questions_say() -> None:
    from torch.nn.attention.flex_attention import AuxRequest
    from transformers.masking_utils import sliding_window_overlay

    sees = sliding_window_overlay(4)
    assert [bool(sees(0, 0, 8, key)) for key in (4, 5, 8)] == [False, True, True]
    assert AuxRequest(lse=True).lse
