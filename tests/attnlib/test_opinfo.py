"""PyTorch's own samples for scaled_dot_product_attention, through every rung on tensors.

Half of the samples drop weights. For a seed, torch's MATH backend drops those weights that
`functional.dropout` drops of a tensor of their shape. A rung that drops at all must drop the same
ones, so that what is dropped becomes part of the truth, and nothing is left to chance.
"""

from __future__ import annotations

from typing import Any

import plain_torch
import pytest
import torch
from hypothesis import settings
from numpy.typing import NDArray
from rungs import WITH_GRADIENTS, Rung, array, on
from tolerance import HALF, assert_close, forward_size, gradient_sizes
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

Array = NDArray[Any]


def attention_of_torch() -> Any:
    """Return the entry in torch's list. Its import would leave hypothesis with torch's profile."""
    ours = settings.get_current_profile_name()
    from torch.testing._internal.common_methods_invocations import op_db

    settings.load_profile(ours)
    [found] = (op for op in op_db if op.name == "nn.functional.scaled_dot_product_attention")
    return found


OP = attention_of_torch()
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
NAMES = ("query", "key", "value", "attn_mask")
SEED = 11


def samples(rung: Rung, dtype: torch.dtype, layout: str) -> list[tuple[dict[str, Any], Any]]:
    """Return the tensors of each sample by name, and its other options."""
    torch.manual_seed(SEED)
    found = []
    for sample in OP.sample_inputs(rung.device, dtype, requires_grad=True):
        sample = sample.noncontiguous() if layout == "noncontiguous" else sample
        options = dict(sample.kwargs)
        tensors = dict(zip(NAMES, (sample.input, *sample.args), strict=False))
        if "attn_mask" in options:
            tensors["attn_mask"] = options.pop("attn_mask")
        found.append((tensors, options))
    return found


def differentiated(
    function: Any, tensors: dict[str, torch.Tensor], upstream: torch.Tensor, options: dict[str, Any]
) -> dict[str, torch.Tensor]:
    torch.manual_seed(SEED)
    output = function(**tensors, **options)
    found = torch.autograd.grad(output, tuple(tensors.values()), upstream)
    return {"output": output, **dict(zip(tensors, found, strict=True))}


def test_torch_has_samples_in_our_dtypes() -> None:
    assert OP.supported_dtypes("cpu") == set(DTYPES)


@on(WITH_GRADIENTS, dtypes=DTYPES)
@pytest.mark.parametrize("layout", ["contiguous", "noncontiguous"])
def test_the_samples_of_torch(rung: Rung, dtype: torch.dtype, layout: str) -> None:
    held = {"all": 0, "causal": 0, "dropped": 0, "masked": 0}
    for tensors, options in samples(rung, dtype, layout):
        options = {name: option for name, option in options.items() if option}
        dropout_p = options.get("dropout_p", 0.0)
        if dropout_p and not rung.drops:
            with pytest.raises(ValueError, match="dropout_p must be"):
                rung.function()(**tensors, **options)
            continue
        if "attn_mask" in tensors and not rung.has_mask_gradients:
            with pytest.raises(ValueError, match="no gradient for attn_mask"):
                rung.function()(**tensors, **options)
            continue
        hold(rung, tensors, options)
        held["all"] += 1
        held["causal"] += "is_causal" in options
        held["dropped"] += "dropout_p" in options
        held["masked"] += "attn_mask" in tensors
    dropping = {"all": 25, "causal": 12, "dropped": 12, "masked": 1}
    without = {"all": 13, "causal": 6, "dropped": 0, "masked": 1}
    unmasked = {"all": 12, "causal": 6, "dropped": 0, "masked": 0}
    fewer = without if rung.has_mask_gradients else unmasked
    assert held == (dropping if rung.drops else fewer)


def hold(rung: Rung, tensors: dict[str, torch.Tensor], options: dict[str, Any]) -> None:
    """Hold output and gradients against the truth, and torch's MATH backend beside them."""
    dtype = str(tensors["query"].dtype).removeprefix("torch.")
    batch = torch.broadcast_shapes(*(tensors[name].shape[:-2] for name in NAMES[:3]))
    n_queries, n_keys = tensors["query"].shape[-2], tensors["key"].shape[-2]
    upstream = torch.randn((*batch, n_queries, tensors["value"].shape[-1]), device=rung.device)
    upstream = upstream.to(tensors["query"].dtype)

    ours = differentiated(rung.function(), tensors, upstream, options)
    with sdpa_kernel(SDPBackend.MATH):
        theirs = differentiated(functional.scaled_dot_product_attention, tensors, upstream, options)

    dropout_p = options.get("dropout_p", 0.0)
    computing = torch.float32 if dtype in HALF else tensors["query"].dtype
    torch.manual_seed(SEED)
    ones = torch.ones((*batch, n_queries, n_keys), dtype=computing, device=rung.device)
    noise = functional.dropout(ones, dropout_p).cpu()
    assert set(noise.unique().tolist()) == {1 / (1 - dropout_p), *([0.0] if dropout_p else [])}
    arrays = {name: array(tensor) for name, tensor in tensors.items()}
    given = {name: tensor.detach().cpu() for name, tensor in tensors.items()}

    def formula(wide: bool) -> dict[str, Array]:
        cast = {n: (t.double() if wide else t.clone()).requires_grad_() for n, t in given.items()}
        above = upstream.cpu().to(cast["query"].dtype)
        rest = {"is_causal": options.get("is_causal", False), "noise": noise.to(above.dtype)}
        found = differentiated(lambda **o: plain_torch.attention(**o)[0], cast, above, rest)
        return {name: array(tensor) for name, tensor in found.items()}

    truth, peers = formula(wide=True), formula(wide=False)
    # Dropout with p = 1/2 doubles the weights that it keeps.
    above, mask = array(upstream) / (1 - dropout_p), arrays.get("attn_mask")
    qkv = arrays["query"], arrays["key"], arrays["value"]
    sizes = {
        "output": forward_size(*qkv, mask) / (1 - dropout_p),
        **gradient_sizes(*qkv, above, mask),
    }
    for name, true in truth.items():
        bounds = {
            "dtype": dtype,
            "size": sizes[name],
            "peer": peers[name],
            "times": 2 + (name != "output"),
        }
        assert ours[name].dtype == tensors["query"].dtype
        assert_close(array(ours[name]), true, **bounds)
        assert_close(array(theirs[name]), true, **bounds)
