"""Measure what one rounding to bfloat16 does in each head of a trained model.

The model is that of chapter 19, its text the first 512 tokens of the Apache License, which lies in
`attnbook/data`. A page below chapter 13 quotes the numbers; so that it needs no model, they are
stored: `python -m tools.measure_heads 2026-11-24` writes them anew, with the day, and `--compare`
compares them number by number. For chapter 3 the queries and keys of one sentence are stored
themselves.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnbook import trained
from tools import ROOT
from tools.measured import Table, main, numbers_apart

STORED = ROOT / "attnbook" / "data" / "minilm_heads.csv"
OF_A_SENTENCE = ROOT / "attnbook" / "data" / "minilm_sentence.npz"
N_TOKENS = 512


def _exact(x: Tensor) -> Tensor:
    return x


def _rounded(x: Tensor) -> Tensor:
    return x.bfloat16().double()


def _in_two(x: Tensor) -> Tensor:
    """Return x as two numbers of bfloat16 hold it, in the way of `triton_fused`."""
    return _rounded(x) + _rounded(x - _rounded(x))


def _query_gradient(
    query: Tensor, key: Tensor, value: Tensor, g: Tensor, output: Any = _exact, scores: Any = _exact
) -> Tensor:
    """Return dQ, with D computed from `output(O)` and dQ from `scores(dS)`."""
    scale = query.shape[-1] ** -0.5
    weights = (query @ key.mT * scale).softmax(dim=-1)
    D = (g * output(weights @ value)).sum(dim=-1, keepdim=True)
    return torch.as_tensor(scores(weights * (g @ value.mT - D)) @ key * scale)


def heads(text: str = "") -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return query, key and value of each head, (number of tokens, 32), layer by layer.

    Without a text these are for the first 512 tokens of the licence.
    """
    from transformers import AutoModel, AutoTokenizer

    where = trained.minilm()
    tokenizer = AutoTokenizer.from_pretrained(**where)
    model = AutoModel.from_pretrained(**where).double().eval()
    licence = files("attnbook") / "data" / "LICENSE-Apache-2.0.txt"
    text = text or licence.read_text(encoding="utf-8")
    tokens = tokenizer(text, truncation=True, max_length=N_TOKENS, return_tensors="pt")
    seen: list[Tensor] = []
    for layer in model.encoder.layer:
        for part in ("query", "key", "value"):
            linear = getattr(layer.attention.self, part)
            linear.register_forward_hook(lambda _module, _inputs, found: seen.append(found[0]))
    with torch.no_grad():
        model(**tokens)
    n_heads = model.config.num_attention_heads
    of_heads = [x.reshape(len(x), n_heads, -1).unbind(1) for x in seen]
    return [
        (query, key, value)
        for start in range(0, len(of_heads), 3)
        for query, key, value in zip(*of_heads[start : start + 3], strict=True)
    ]


def _mean_over_spread(x: Tensor, weights: Tensor) -> float:
    """Return the size of the weighted means of the rows of x, divided by that of the deviations."""
    mean = weights @ x
    spread = weights @ x.square() - mean.square()
    return float((mean.square().mean() / spread.mean()).sqrt())


def measured() -> NDArray[np.float64]:
    """Return a row for each of the 72 heads, with the columns of `trained.COLUMNS`."""
    rng, rows = np.random.default_rng(0), []
    for head in heads():
        query, key, value = map(_rounded, head)
        g = _rounded(torch.from_numpy(rng.standard_normal(value.shape)))
        right = _query_gradient(query, key, value, g)
        weights = (query @ key.mT * query.shape[-1] ** -0.5).softmax(dim=-1)
        equal = torch.full_like(weights[:1], 1 / N_TOKENS)

        def percent(found: Tensor, right: Tensor = right) -> float:
            return 100 * float((found - right).norm() / right.norm())

        centred = key - key.mean(dim=0), value - value.mean(dim=0)
        rows.append(
            (
                _mean_over_spread(value, equal),
                _mean_over_spread(key, equal),
                _mean_over_spread(value, weights),
                _mean_over_spread(key, weights),
                percent(_query_gradient(query, key, value, g, output=_rounded)),
                percent(_query_gradient(query, key, value, g, scores=_rounded)),
                percent(_query_gradient(query, *centred, g, output=_rounded)),
                percent(_query_gradient(query, key, value, g, output=_in_two)),
            )
        )
    return np.array(rows)


def write(found: dict[str, dict[str, NDArray[np.float64]]], day: str) -> None:
    """Write the file."""
    head = (
        f"72 heads of {trained.HUB}, revision {trained.REVISION},\n"
        f"on the first {N_TOKENS} tokens of LICENSE-Apache-2.0.txt; measured on {day} by\n"
        "tools/measure_heads.py. attnbook/trained.py says what the columns mean.\n"
        + ",".join(trained.COLUMNS)
    )
    columns = np.stack(list(found[""].values()), axis=1)
    np.savetxt(STORED, columns, fmt="%.4f", delimiter=",", header=head)


def by_column() -> dict[str, NDArray[np.float64]]:
    """Return the columns by name."""
    return dict(zip(trained.COLUMNS, measured().T, strict=True))


def of_a_sentence() -> dict[str, NDArray[np.float64]]:
    """Return the queries and the keys of `trained.SENTENCE`, each (72, number of tokens, 32)."""
    query, key, _ = zip(*heads(trained.SENTENCE), strict=True)
    return {"query": torch.stack(query).numpy(), "key": torch.stack(key).numpy()}


def write_sentence(found: dict[str, dict[str, NDArray[np.float64]]], day: str) -> None:
    """Write the file; the day is not in it, because nothing was drawn, and nothing was trained."""
    from transformers import AutoTokenizer

    ids = AutoTokenizer.from_pretrained(**trained.minilm())
    tokens = np.array(ids.tokenize(trained.SENTENCE, add_special_tokens=True))
    query, key = (found[""][name].astype(np.float16) for name in ("query", "key"))
    np.savez_compressed(OF_A_SENTENCE, tokens=tokens, query=query, key=key)


def stored_sentence(_: str = "") -> dict[str, NDArray[np.float64]]:
    """Return what is stored, under the names of `of_a_sentence`."""
    _tokens, query, key = trained.queries_and_keys()
    return {"query": query, "key": key}


TABLES = {
    "heads": Table({"": by_column}, lambda _: trained.rounded_heads(), write, numbers_apart),
    "sentence": Table({"": of_a_sentence}, stored_sentence, write_sentence, numbers_apart),
}

if __name__ == "__main__":
    sys.exit(main(TABLES))
