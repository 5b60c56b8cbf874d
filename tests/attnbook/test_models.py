"""The modules of other people's models: theirs, in float64, and not listened to any more."""

from __future__ import annotations

import pytest
import torch

from attnbook import models


@pytest.mark.parametrize("family", models.SETTINGS | models.INDEXED)
def test_modules_can_be_asked_again(family: str) -> None:
    given = models.attention_modules(family, n_tokens=7)
    assert len(given) == 2
    for module, arguments in given:
        assert type(module).__name__.lower().startswith(family.replace("_", ""))
        assert all(weight.dtype == torch.float64 for weight in module.parameters())
        first, again = (module(**arguments)[0] for _ in range(2))
        assert first.dtype == torch.float64 and first.shape == (2, 7, 48)
        assert torch.equal(first, again) and first.isfinite().all()


def test_a_seed_decides_every_number() -> None:
    # The library draws some weights itself, such as those of the MLP before the second layer.
    torch.manual_seed(1)
    _, (_, one) = models.attention_modules("deepseek_v32", n_tokens=7, seed=2)
    torch.manual_seed(3)
    before = torch.get_rng_state()
    _, (_, other) = models.attention_modules("deepseek_v32", n_tokens=7, seed=2)
    assert torch.equal(one["hidden_states"], other["hidden_states"])
    assert torch.equal(before, torch.get_rng_state())  # and the caller's numbers stay the caller's


def test_later_tokens_are_hidden_by_the_library_itself() -> None:
    module, arguments = models.attention_modules("llama", n_tokens=5)[0]
    before = module(**arguments)[0]
    arguments["hidden_states"][:, 3:] = 0
    after = module(**arguments)[0]
    assert torch.allclose(before[:, :3], after[:, :3]) and not torch.allclose(before, after)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("BLOOM 176B", "ALiBi"),
        ("OLMo 2 7B", "rotary, QK-norm"),
        ("DeepSeek-V3", "latent of 512, rotary"),
        ("SmolLM3 3B", "16/4 heads; rotary (27/36)"),
        ("gpt-oss-120b", "64/8 heads, rotary, sinks; window 128 (18/36)"),
        ("Qwen3-Next 80B", "linear (36/48); 16/2 heads, rotary, QK-norm, gate (12/48)"),
        ("DeepSeek-V3.2-Exp", "latent of 512, rotary, best 2048"),
        (
            "Gemma 4 E2B",
            "8/1 heads, rotary, QK-norm, scale 1; window 512 (28/35); shared KV (20/35); "
            "V-norm (15/35)",
        ),
    ],
)
def test_changes_are_read_off_the_modules(name: str, expected: str) -> None:
    model = {one.model: one for one in models.released()}[name]
    assert models.changes(model) == expected
    # The atlas builds no modules: its words are stored.
    words = {"ALiBi", "QK-norm", "V-norm", "gate", "scale 1", "sinks"}
    assert {word for word in words if word in expected} == words & set(model.words)


def test_chapter_18_lists_twelve() -> None:
    assert len(models.released()) == 12
