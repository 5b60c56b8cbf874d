"""The modules of other people's models: theirs, in float64, and not listened to any more."""

from __future__ import annotations

import pytest
import torch

from attnbook import models


@pytest.mark.parametrize("family", models.SETTINGS)
def test_modules_can_be_asked_again(family: str) -> None:
    given = models.attention_modules(family, n_tokens=7)
    assert len(given) == 2
    for module, arguments in given:
        assert type(module).__name__.lower().startswith(family.replace("_", ""))
        assert all(weight.dtype == torch.float64 for weight in module.parameters())
        first, again = (module(**arguments)[0] for _ in range(2))
        assert first.dtype == torch.float64 and first.shape == (2, 7, 48)
        assert torch.equal(first, again) and first.isfinite().all()


def test_later_tokens_are_hidden_by_the_library_itself() -> None:
    module, arguments = models.attention_modules("llama", n_tokens=5)[0]
    before = module(**arguments)[0]
    arguments["hidden_states"][:, 3:] = 0
    after = module(**arguments)[0]
    assert torch.allclose(before[:, :3], after[:, :3]) and not torch.allclose(before, after)


def test_the_seed_draws_weights_and_tokens() -> None:
    (one, a), (two, b), (_, c) = (
        models.attention_modules("qwen3", seed=seed)[0] for seed in (1, 1, 2)
    )
    assert torch.equal(a["hidden_states"], b["hidden_states"])
    assert all(map(torch.equal, one.parameters(), two.parameters()))
    assert not torch.equal(a["hidden_states"], c["hidden_states"])


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("llama", "– | rotary | – | – | –"),
        ("qwen3", "– | rotary, QK-norm | – | – | –"),
        ("gpt_oss", "groups of 8 | rotary | – | 128 (18/36) | sinks"),
        ("gemma2", "groups of 2 | rotary | cap 50 | 4096 (13/26) | –"),
        ("deepseek_v3", "latent | rotary | – | – | –"),
        ("bloom", "– | – | ALiBi | – | –"),
        ("qwen3_next", "groups of 8 | rotary, QK-norm | – | – | linear (36/48)"),
    ],
)
def test_habits(family: str, expected: str) -> None:
    found = models.habits(family)
    assert tuple(found) == models.PLACES and " | ".join(found.values()) == expected


def test_a_table_has_a_column_for_each_place(capsys: pytest.CaptureFixture[str]) -> None:
    models.table({"a": {"one": "–", "two": "cap 50"}, "longer": {"one": "sinks", "two": "–"}})
    assert capsys.readouterr().out == (
        "        one    two\na       –      cap 50\nlonger  sinks  –\n"
    )
