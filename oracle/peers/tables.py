"""Put what the libraries answered into the book's page of them.

    python -m peers.tables

Each section of `reference/peers.md` between `<!-- name -->` and `<!-- end -->` is written anew from
the JSON in `oracle/peers/results`. `make peers` does this.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from string import ascii_uppercase
from typing import Any

from attncheck import CLAIMED, TOPICS
from benchmarks.tables import table, written
from peers.asking import HOUSE
from peers.verdict import FAILED, NOT_CLAIMED, PASSED, POLICY

PAGE = HOUSE.parent / "reference" / "peers.md"
RESULTS = HOUSE / "peers" / "results"
Library = dict[str, Any]

# The sections of the page, each a table of the libraries of these families.
SECTIONS = {
    "torch": ("pytorch",),
    "jax": ("jax_family",),
    "keras": ("keras_jax", "keras_torch", "keras_tensorflow"),
    "onnx": ("onnx_family",),
    "others": ("hugging_face", "x_transformers", "tiny"),
}


# How the programs of a library are called on the page.
LIBRARIES = {
    "PyTorch": ("F.", "flex_", "torch.", "nn."),
    "JAX": "jax.",
    "Flax": "flax.",
    "Equinox": "equinox",
    "Keras": "keras.",
    "ONNX": "ONNX reference",
    "ONNX Runtime": "ONNX Runtime",
    "transformers": "transformers",
    "x-transformers": "x-transformers",
    "tinygrad": "tinygrad",
}


def cell(counts: Counter[str]) -> str:
    """Return what became of a topic's cases, in short.

    >>> cell(Counter({"passed": 30, "failed": 4}))
    '30✓ 4✗'
    >>> cell(Counter({"not claimed": 12}))
    '–'
    """
    words = ((PASSED, "✓"), (FAILED, "✗"), (POLICY, "≠"))
    found = [f"{counts[kind]}{sign}" for kind, sign in words if counts[kind]]
    return " ".join(found) or "–"


def added(by_topic: dict[str, dict[str, int]]) -> Counter[str]:
    """Return the counts of all topics together."""
    total: Counter[str] = Counter()
    for counts in by_topic.values():
        total.update(counts)
    return total


def by_topic(libraries: list[Library]) -> str:
    """Return what letters stand for, a column for each of them by topic, and what was left out."""
    letters = ascii_uppercase[: len(libraries)]
    names = (
        f"- **{letter}**: [{library['name']}]({library['documentation']})"
        for letter, library in zip(letters, libraries, strict=True)
    )
    rows = [
        [topic, *(cell(Counter(library["topics"].get(topic, {}))) for library in libraries)]
        for topic in TOPICS
        if any(topic in library["topics"] for library in libraries)
    ]
    sums = [added(library["topics"]) for library in libraries]
    rows.append(["not claimed", *(str(total[NOT_CLAIMED]) for total in sums)])
    counts = ["<details><summary>Cases by topic</summary>", table(["topic", *letters], rows)]
    return "\n\n".join(["\n".join(names), *counts, "</details>", left_out(libraries)])


def left_out(libraries: list[Library]) -> str:
    """Return why cases were not claimed, and how many, in a block that can be opened."""
    lines = []
    for letter, library in zip(ascii_uppercase, libraries, strict=False):
        reasons = added(library["not claimed"])
        words = "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common())
        lines.append(f"- **{letter}**: {words}")
    return "\n".join(
        ["<details><summary>What is not claimed</summary>", "", *lines, "", "</details>"]
    )


def edges(page: str) -> str:
    """Return the edges of the page, each with the libraries of which a program shows it.

    >>> page = "## The edges\\n\\n### An edge\\n<summary>tinygrad: odd</summary>"
    >>> print(edges(page).splitlines()[2])
    | [An edge](#an-edge) | tinygrad |
    """
    rows = []
    for edge in page.split("## The edges\n")[1].split("\n## ")[0].split("\n### ")[1:]:
        title, _, text = edge.partition("\n")
        shown = re.findall(r"<summary>(.+?)</summary>", text)
        of = [name for name, known in LIBRARIES.items() if any(x.startswith(known) for x in shown)]
        anchor = re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")
        rows.append([f"[{title}](#{anchor})", ", ".join(of)])
    return table(["edge", "a program shows it in"], rows)


def versions(results: list[dict[str, Any]]) -> str:
    """Return the packages that were used with their versions, and when and where this was done."""
    found = {
        (name, version)
        for result in results
        for library in result["libraries"]
        for name, version in library["versions"].items()
    }
    runs = sorted(
        {f"{result['machine']['date']}, {result['machine']['cpu']}" for result in results}
    )
    return (
        f"{table(['package', 'version'], sorted(found))}\n\nDate and processor: {'; '.join(runs)}."
    )


def stored(family: str) -> dict[str, Any]:
    """Return the results of a family."""
    result: dict[str, Any] = json.loads((RESULTS / f"{family}.json").read_text("utf-8"))
    return result


def sections() -> dict[str, str]:
    """Return what stands on the page, by the names of its sections."""
    results = {family: stored(family) for families in SECTIONS.values() for family in families}
    asked = stored("pytorch")["libraries"][0]["topics"]
    rows = [(topic, words) for topic, words in TOPICS.items() if topic in asked]
    topics = table(["topic", "what is asked"], rows)
    found = {"topics": topics, "versions": versions(list(results.values()))}
    found["edges"] = edges(PAGE.read_text("utf-8"))
    for name, families in SECTIONS.items():
        libraries = [library for family in families for library in results[family]["libraries"]]
        found[name] = by_topic(libraries)
    return found


def counted(page: str) -> str:
    """Return the page with the numbers of cases, as they were asked, in its sentences."""
    topics = stored("pytorch")["libraries"][0]["topics"]
    asked = {topic: sum(verdicts.values()) for topic, verdicts in topics.items()}
    more = sum(n for topic, n in asked.items() if topic in CLAIMED)
    for number, words in (
        (sum(asked.values()), "(questions about|cases of)"), (more, "of them are about"),
    ):
        page = re.sub(rf"\b\d+ (?={words})", f"{number} ", page)
    return page


def page() -> str:
    """Return the page with its numbers and tables."""
    return written(counted(PAGE.read_text("utf-8")), sections())


def write() -> None:
    """Write numbers and tables into the page."""
    PAGE.write_text(page(), "utf-8")


if __name__ == "__main__":
    write()
