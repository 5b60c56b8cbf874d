"""Put what the benchmarks have stored into the book's page of them.

    python -m benchmarks.tables

Each part of `reference/benchmarks.md` between `<!-- name -->` and `<!-- end -->` is written anew
from the JSON in `benchmarks/results/`, and so are the two drawings there. `make bench` does this.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from attnbook import figures
from benchmarks.timing import RESULTS

PAGE = Path(__file__).resolve().parent.parent / "reference" / "benchmarks.md"
Result = dict[str, Any]


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table in Markdown."""
    lines = [list(head), *(map(str, row) for row in rows)]
    first, *others = (f"| {' | '.join(cells)} |" for cells in lines)
    return "\n".join([first, "|" + "---|" * len(lines[0]), *others])


def machine(result: Result) -> str:
    return table(["what", "value"], result["machine"].items())


def means(result: Result) -> str:
    rows = ((name, f"{mean:.2f}") for name, mean in result["means"].items())
    return table(["geometric mean over", "ratio to torch"], rows)


def timings(result: Result) -> str:
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


def memory(result: Result) -> str:
    rows = (
        (row["form"], f"{row['n_tokens']:,}", f"{row['extra_bytes'] / 2**20:,.0f}")
        for row in result["memory"]
    )
    return table(["form", "T", "MiB over inputs and results"], rows)


def ring(result: Result) -> str:
    """Return how evenly the ranks of a ring share their work, as measured and as counted."""
    rows = (
        (row["devices"], row["balance"], f"{row['measured']:.2f}", f"{row['counted']:.2f}")
        for row in result["rows"]
    )
    return table(["ranks", "layout", "CPU time, largest / mean", "scores, largest / mean"], rows)


def gpu(result: Result | None) -> str:
    """Return the machine and the rows of a GPU: speed, share of a large product's, ratios.

    The speed is that of the operations as they are usually counted, and of those that are done.
    """
    if result is None:
        return (
            "No figures of a GPU are stored yet: none was at hand. What stands above was measured "
            "on a processor, and says nothing about `triton_fused`."
        )
    peers = list(dict.fromkeys(peer for row in result["rows"] for peer in row.get("ratios", ())))
    rows = []
    for row in result["rows"]:
        keys = "causal" if row["is_causal"] else "all"
        case = [row["form"], row["n_tokens"], row["n_features"], keys]
        case.append("backward" if row["backward"] else "forward")
        if "tflops" in row:
            done = f"{row['tflops_done']:.0f}" if "tflops_done" in row else ""
            found = [f"{row['tflops']:.0f}", done, f"{row['tflops'] / result['peak_tflops']:.0%}"]
            ratios = (row["ratios"].get(peer) for peer in peers)
            found += ["" if ratio is None else f"{ratio:.2f}" for ratio in ratios]
        else:
            found = [row["why_not"], *[""] * (2 + len(peers))]
        rows.append(case + found)
    head = ["form", "T", "D", "keys", "pass", "TFLOP/s", "as done", "share of a product's"]
    head += [f"time by {peer}'s" for peer in peers]
    return f"{machine(result)}\n\n{table(head, rows)}"


def ratios(result: Result) -> figures.Drawing:
    """Return the ratios of the blockwise form by length, at D = 64, as a drawing."""
    kinds = {
        "forward": (False, False),
        "forward, causal": (True, False),
        "forward and backward": (False, True),
    }
    series: dict[str, dict[int, float]] = {name: {} for name in kinds}
    for row in result["rows"]:
        if (row["form"], row["dtype"], row["n_features"]) == ("torch_blockwise", "float32", 64):
            for name, kind in kinds.items():
                if (row["is_causal"], row["backward"]) == kind:
                    series[name][row["n_tokens"]] = row["ratio"]
    about = "Time of torch_blockwise divided by that of torch's kernel"
    return drawn(series, about, y_title="ratio", digits=2, log_x=True)


def bytes_(result: Result) -> figures.Drawing:
    """Return the memory of the forms, at the lengths at which all were measured, as a drawing."""
    series: dict[str, dict[int, float]] = {}
    for row in result["memory"]:
        series.setdefault(row["form"], {})[row["n_tokens"]] = row["extra_bytes"] / 2**20
    about = "Memory in MiB over inputs and results"
    return drawn(series, about, y_title="MiB", digits=0, powers=True)


def drawn(
    series: dict[str, dict[int, float]], about: str, digits: int, **options: Any
) -> figures.Drawing:
    """Return some series by length as a drawing, with every number in its alternative text."""
    lengths = sorted(set.intersection(*(set(found) for found in series.values())))
    values = {name: [found[length] for length in lengths] for name, found in series.items()}
    words = (f"{n}: {', '.join(f'{v:.{digits}f}' for v in row)}" for n, row in values.items())
    alt = f"{about}, for T = {lengths}. {'; '.join(words)}."
    return figures.lines(lengths, values, x_title="tokens T", alt=alt, **options)


def parts(folder: Path = RESULTS) -> dict[str, str]:
    """Return what stands on the page, by the names of its places."""
    stored = {file.stem: json.loads(file.read_text("utf-8")) for file in folder.glob("*.json")}
    found = {part.__name__: part(stored["blockwise"]) for part in (machine, means, memory, timings)}
    return found | {"ring": ring(stored["ring"]), "gpu": gpu(stored.get("gpu"))}


def written(page: str, found: dict[str, str]) -> str:
    """Return the page with each part in its place.

    Raises:
        ValueError: the page has no place for a part.
    """
    for name, part in found.items():
        head, start, rest = page.partition(f"<!-- {name} -->\n")
        _, end, tail = rest.partition("\n<!-- end -->")
        if not end:
            raise ValueError(f"the page must have <!-- {name} --> and after it <!-- end -->")
        page = f"{head}{start}\n{part}\n{end}{tail}"
    return page


def main() -> None:
    """Write the tables into the page, and the drawings beside the stored results."""
    PAGE.write_text(written(PAGE.read_text("utf-8"), parts()), "utf-8")
    result = json.loads((RESULTS / "blockwise.json").read_text("utf-8"))
    for name, drawing in (("ratios", ratios(result)), ("memory", bytes_(result))):
        (RESULTS / f"{name}.html").write_text(drawing._repr_html_() + "\n", "utf-8")


if __name__ == "__main__":
    main()
