"""`{results} name part`: what a benchmark has stored, as a table or a picture.

The parts are those of `benchmarks/results/<name>.json`: machine, means, rows, memory, and `ratios`
and `bytes`, which draw rows and memory; `rates` are the rows of a GPU, `scores` and `pages` those
of Lighthouse. So no measured number is typed into a page.
Where a result may be missing, the directive's content is shown in its stead.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from attnbook import figures

RESULTS = Path(__file__).resolve().parent.parent / "benchmarks" / "results"
Rows = list[dict[str, Any]]


def table(head: list[str], rows: list[list[str]]) -> nodes.table:
    """Return a table of words."""
    group = nodes.tgroup(cols=len(head))
    group += [nodes.colspec(colwidth=1) for _ in head]
    for part, lines in ((nodes.thead(), [head]), (nodes.tbody(), rows)):
        for line in lines:
            row = nodes.row()
            row += [nodes.entry("", nodes.paragraph(text=cell)) for cell in line]
            part += row
        group += part
    return nodes.table("", group)


def machine(result: dict[str, Any]) -> nodes.Node:
    return table(["what", "value"], [[k, str(v)] for k, v in result["machine"].items()])


def means(result: dict[str, Any]) -> nodes.Node:
    rows = [[name, f"{mean:.2f}"] for name, mean in result["means"].items()]
    return table(["geometric mean over", "ratio to torch"], rows)


def timings(result: dict[str, Any]) -> nodes.Node:
    head = ["form", "dtype", "heads × T × D", "keys", "pass", "ratio", "products", "quartiles"]
    rows = [
        [
            row["form"],
            row["dtype"],
            f"{row['heads']} × {row['n_tokens']} × {row['n_features']}",
            "causal" if row["is_causal"] else "all",
            "both" if row["backward"] else "forward",
            f"{row['ratio']:.2f}",
            "" if row["to_products"] is None else f"{row['to_products']:.2f}",
            f"{row['ratio_low']:.2f} to {row['ratio_high']:.2f}",
        ]
        for row in result["rows"]
    ]
    return table(head, rows)


def memory(result: dict[str, Any]) -> nodes.Node:
    rows = [
        [row["form"], f"{row['n_tokens']:,}", f"{row['extra_bytes'] / 2**20:,.0f}"]
        for row in result["memory"]
    ]
    return table(["form", "T", "MiB over inputs and results"], rows)


def ratios(result: dict[str, Any]) -> nodes.Node:
    """Draw the ratios of the blockwise form by length, at D = 64."""
    chosen = [
        row
        for row in result["rows"]
        if row["form"] == "torch_blockwise"
        and row["dtype"] == "float32"
        and row["n_features"] == 64
    ]
    lengths = sorted({row["n_tokens"] for row in chosen})
    kinds = {
        "forward": (False, False),
        "forward, causal": (True, False),
        "forward and backward": (False, True),
    }
    series = {
        name: [
            next(
                row["ratio"]
                for row in chosen
                if (row["n_tokens"], row["is_causal"], row["backward"]) == (length, *kind)
            )
            for length in lengths
        ]
        for name, kind in kinds.items()
    }
    words = "; ".join(
        f"{name}: {', '.join(f'{ratio:.2f}' for ratio in values)}"
        for name, values in series.items()
    )
    alt = f"Time of torch_blockwise by torch's kernel for T = {lengths}. {words}."
    drawing = figures.lines(lengths, series, x_title="tokens T", y_title="ratio", alt=alt)
    return nodes.raw("", drawing._repr_html_(), format="html")


def bytes_(result: dict[str, Any]) -> nodes.Node:
    """Draw the memory of the forms at the lengths that all of them were measured at."""
    by_form: dict[str, dict[int, float]] = {}
    for row in result["memory"]:
        by_form.setdefault(row["form"], {})[row["n_tokens"]] = row["extra_bytes"] / 2**20
    lengths = sorted(set.intersection(*(set(found) for found in by_form.values())))
    series = {form: [found[length] for length in lengths] for form, found in by_form.items()}
    words = "; ".join(
        f"{form}: {', '.join(f'{size:.0f}' for size in sizes)}" for form, sizes in series.items()
    )
    alt = f"Memory in MiB over inputs and results for T = {lengths}. {words}."
    titles = {"x_title": "tokens T", "y_title": "MiB", "alt": alt}
    return nodes.raw(
        "", figures.lines(lengths, series, **titles, powers=True)._repr_html_(), format="html"
    )


def rates(result: dict[str, Any]) -> nodes.Node:
    """Return the rows of a GPU: speed, its share of a large matrix product's, ratios to torch."""
    peers = list(dict.fromkeys(peer for row in result["rows"] for peer in row.get("ratios", ())))
    head = ["form", "T", "D", "keys", "pass", "TFLOP/s", "share of a product's"]
    rows = []
    for row in result["rows"]:
        keys = "causal" if row["is_causal"] else "all"
        passed = "backward" if row["backward"] else "forward"
        case = [row["form"], str(row["n_tokens"]), str(row["n_features"]), keys, passed]
        if "tflops" in row:
            share = row["tflops"] / result["peak_tflops"]
            ratios = (row["ratios"].get(peer) for peer in peers)
            found = [f"{row['tflops']:.0f}", f"{share:.0%}"]
            found += ["" if ratio is None else f"{ratio:.2f}" for ratio in ratios]
        else:
            found = [row["why_not"], *[""] * (1 + len(peers))]
        rows.append(case + found)
    return table([*head, *(f"time by {peer}'s" for peer in peers)], rows)


SCORES = {
    "performance": "performance",
    "accessibility": "accessibility",
    "best_practices": "best practices",
    "seo": "search engines",
}


def scores(result: dict[str, Any]) -> nodes.Node:
    """Return the worst and the median score over all pages, and what was aimed at."""
    rows = []
    for form, found in result["summary"].items():
        for name, words in SCORES.items():
            worst, median = (f"{found[name][which]:.0f}" for which in ("worst", "median"))
            rows.append([form, words, worst, median, f"≥ {result['targets'][form][name]}"])
        for name, words, unit, digits in (
            ("first_paint_ms", "first paint, s", 1000, 1),
            ("transfer_bytes", "on the way, without pictures, KiB", 1024, 0),
        ):
            worst, median = (
                f"{found[name][which] / unit:.{digits}f}" for which in ("worst", "median")
            )
            rows.append([form, words, worst, median, ""])
    return table(["on a", "what", "worst page", "median", "aim"], rows)


def pages(result: dict[str, Any]) -> nodes.Node:
    """Return the scores of each page, phone and desktop side by side."""
    by_form = {(row["page"], row["form"]): row for row in result["rows"]}
    rows = []
    for page in dict.fromkeys(row["page"] for row in result["rows"]):
        cells = [page.removesuffix(".html")]
        for form in ("mobile", "desktop"):
            row = by_form[page, form]
            cells.append("/".join(str(row[name]) for name in SCORES))
            cells.append(f"{row['first_paint_ms'] / 1000:.1f}")
        rows.append([*cells, f"{by_form[page, 'mobile']['transfer_bytes'] / 1024:.0f}"])
    head = ["page", "phone", "first paint, s", "desktop", "first paint, s", "KiB"]
    return table(head, rows)


PARTS = {
    "machine": machine,
    "means": means,
    "rows": timings,
    "memory": memory,
    "ratios": ratios,
    "bytes": bytes_,
    "rates": rates,
    "scores": scores,
    "pages": pages,
}


class ResultsDirective(SphinxDirective):
    """Put one part of a stored result on the page."""

    required_arguments = 2
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        name, part = self.arguments
        file = RESULTS / f"{name}.json"
        self.env.note_dependency(str(file))
        if not file.is_file() and self.content:
            return self.parse_content_to_nodes()
        if not file.is_file():
            known = ", ".join(sorted(f.stem for f in RESULTS.glob("*.json")))
            raise self.error(f"no result is named {name!r}; there are {known}")
        if part not in PARTS:
            raise self.error(f"no part is named {part!r}; there are {', '.join(PARTS)}")
        return [PARTS[part](json.loads(file.read_text(encoding="utf-8")))]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("results", ResultsDirective)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
