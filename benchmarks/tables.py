"""Put what the benchmarks have stored into the book's page of them.

    python -m benchmarks.tables

Each part of `reference/benchmarks.md` between `<!-- name -->` and `<!-- end -->` is written anew
from the JSON in `benchmarks/results/`, and so are the drawings there. `make bench` does this.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnbook import figures
from attnbook.figures.charts import SERIES, canvas, powers_axis
from attnbook.figures.drawing import COLOURS
from benchmarks.blockwise import geometric_mean
from benchmarks.timing import RESULTS

PAGE = Path(__file__).resolve().parent.parent / "reference" / "benchmarks.md"
Result = dict[str, Any]


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table in Markdown."""
    lines = [list(head), *(map(str, row) for row in rows)]
    first, *others = (f"| {' | '.join(cells)} |" for cells in lines)
    return "\n".join([first, "|" + "---|" * len(lines[0]), *others])


def labels(results: list[Result]) -> list[str]:
    """Return what the stored runs are called on the page."""
    return [f"run {letter}" for letter, _ in zip(ascii_uppercase, results, strict=False)]


def machines(results: list[Result]) -> str:
    """Return the machine and the versions of each stored run, side by side."""
    names = dict.fromkeys(name for result in results for name in result["machine"])
    rows = ([name, *(result["machine"].get(name, "") for result in results)] for name in names)
    return table(["what", *labels(results)], rows)


def means(results: list[Result]) -> str:
    rows = (
        [name, *(f"{result['means'][name]:.2f}" for result in results)]
        for name in results[0]["means"]
    )
    return table(["ratio to torch, geometric mean over", *labels(results)], rows)


def halves(results: list[Result]) -> str:
    """Return how long half precision takes each side, by its own time in float32."""
    rows = []
    for run, result in zip(labels(results), results, strict=True):
        cases = {(row["form"], row["dtype"], *size(row)): row for row in result["rows"]}
        for dtype in ("bfloat16", "float16"):
            pairs = [
                (row, cases[row["form"], "float32", *rest])
                for (_, kind, *rest), row in cases.items()
                if kind == dtype
            ]
            by_own = [
                geometric_mean([half[side] / wide[side] for half, wide in pairs])
                for side in ("theirs", "ours")
            ]
            ratio = result["means"][f"{dtype}, forward + backward"]
            rows.append([dtype, run, *(f"{number:.2f}" for number in (*by_own, ratio))])
    head = ["dtype", "run", "torch, by its float32", "ours, by its float32", "ratio to torch"]
    return table(head, rows)


def size(row: Result) -> tuple[Any, ...]:
    """Return what was computed in a row, but for the form and the dtype."""
    names = ("heads", "n_tokens", "n_features", "is_causal", "backward")
    return tuple(row[name] for name in names)


def timings(results: list[Result]) -> str:
    """Return every case: the ratios of all runs, then what the reader may want beside them."""
    head = ["form", "dtype", "heads × T × D", "keys", "pass", *labels(results)]
    head += [f"{what}, {run}" for what in ("products", "quartiles") for run in labels(results)]
    found = [{(row["form"], row["dtype"], *size(row)): row for row in r["rows"]} for r in results]
    rows = []
    for case, row in found[0].items():
        cells = [
            row["form"],
            row["dtype"],
            f"{row['heads']} × {row['n_tokens']} × {row['n_features']}",
            "causal" if row["is_causal"] else "all",
            "both" if row["backward"] else "forward",
        ]
        same = [run[case] for run in found]
        cells += [f"{one['ratio']:.2f}" for one in same]
        products = (one["to_products"] for one in same)
        cells += ["" if ratio is None else f"{ratio:.2f}" for ratio in products]
        cells += [f"{one['ratio_low']:.2f} to {one['ratio_high']:.2f}" for one in same]
        rows.append(cells)
    return table(head, rows)


def memory(results: list[Result]) -> str:
    found = [
        {(row["form"], row["n_tokens"]): row["extra_bytes"] / 2**20 for row in result["memory"]}
        for result in results
    ]
    rows = (
        [form, f"{n_tokens:,}", *(f"{run[form, n_tokens]:,.0f}" for run in found)]
        for form, n_tokens in found[0]
    )
    return table(["form", "T", *(f"MiB, {run}" for run in labels(results))], rows)


def decoding(result: Result) -> str:
    """Return what a step with a cache takes, and what a layer with a cache saves."""
    rows = [[f"a step, {name}", f"{mean:.2f}"] for name, mean in result["means"].items()]
    for row in result["layers"]:
        rows.append(
            [f"a layer, recomputed by cached, T = {row['n_tokens']}", f"{row['ratio']:.0f}"]
        )
    return table(["what", "ratio"], rows)


def ring(result: Result) -> str:
    """Return how evenly the ranks of a ring share their work, as measured and as counted."""
    rows = (
        (row["devices"], row["balance"], f"{row['measured']:.2f}", f"{row['counted']:.2f}")
        for row in result["rows"]
    )
    return table(["ranks", "layout", "CPU time, largest / mean", "scores, largest / mean"], rows)


# A form of the backward that was measured once, and has gone: it was slower in every case.
ATOMIC = "triton_fused, deterministic=False"
# How the forms of `benchmarks.gpu` are called on the page, and what is drawn of them.
ON_A_GPU = {
    "triton_fused": "triton_fused",
    ATOMIC: "atomic dQ",
    "FLASH_ATTENTION": "FlashAttention-2",
    "CUDNN_ATTENTION": "cuDNN",
    "EFFICIENT_ATTENTION": "memory-efficient",
    "FlexAttention": "FlexAttention",
    "torch_blockwise": "torch_blockwise",
    "torch_dense": "torch_dense",
}
DRAWN = ("triton_fused", "FLASH_ATTENTION", "FlexAttention", "CUDNN_ATTENTION")


def gpu(result: Result | None) -> str:
    """Return the machine, and what each form reaches on a GPU: a row for each case.

    What has no number has its reason below the table.
    """
    if result is None:
        return (
            "No figures of a GPU are stored yet: none was at hand. What stands above was measured "
            "on a processor, and says nothing about `triton_fused`."
        )
    cases: dict[tuple[str, ...], dict[str, str]] = {}
    without: list[str] = []
    for row in result["rows"]:
        keys = "causal" if row["is_causal"] else "all"
        passes = "backward" if row["backward"] else "forward"
        case = f"{row['n_features']}", keys, passes, f"{row['n_tokens']:,}"
        found = cases.setdefault(case, {})
        if "tflops" in row:
            found[row["form"]] = f"{row['tflops']:.0f}"
        elif row["form"] != ATOMIC or row["backward"]:
            without.append(f"`{row['form']}`, {row['why_not']}")
    order = sorted(
        cases, key=lambda case: (case[:2], case[2] != "forward", list(cases).index(case))
    )
    rows = ([*case, *(cases[case].get(form, "") for form in ON_A_GPU)] for case in order)
    head = ["D", "keys", "pass", "T", *ON_A_GPU.values()]
    why = "\n".join(f"- {each} ({without.count(each)} ×)" for each in dict.fromkeys(without))
    peak = f"A product of two large matrices reached {result['peak_tflops']:.0f} in the same run."
    about = table(["what", "value"], result["machine"].items())
    return "\n\n".join([about, peak, table(head, rows), f"Without a number:\n\n{why}"])


def finish(figure: Figure, panels: list[Axes], titles: Iterable[str], y_title: str) -> None:
    """Give panels that share a vertical axis their titles, and the figure one legend."""
    for axes, title in zip(panels, titles, strict=True):
        axes.set(xlabel="tokens T", ylabel=y_title, title=title)
        axes.grid(axis="y")
        axes.sharey(panels[0])
        axes.label_outer()
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper center", ncols=2)


def speeds(result: Result) -> figures.Drawing:
    """Return what four forms reach on a GPU by length, at D = 128 and without a mask."""
    looks = (*SERIES[1::-1], SERIES[2], {"color": COLOURS["ink"], "marker": "D", "linestyle": "-."})
    said = []
    with canvas(3.6, 2) as (figure, panels):
        for axes, backward in zip(panels, (False, True), strict=True):
            for form, look in zip(DRAWN, looks, strict=True):
                found = {
                    row["n_tokens"]: row["tflops"]
                    for row in result["rows"]
                    if (row["form"], row["n_features"]) == (form, 128) and "tflops" in row
                    and (row["is_causal"], row["backward"]) == (False, backward)
                }
                name = ON_A_GPU[form]
                axes.plot(list(found), list(found.values()), label=name, markersize=6, **look)
                numbers = ", ".join(f"{rate:.0f} at {n}" for n, rate in found.items())
                said.append(f"{'backward' if backward else 'forward'}, {name}: {numbers}")
            axes.set_ylim(0, 750)
            powers_axis(axes, list(found), 4)
        finish(figure, panels, ("forward", "backward"), "10¹² operations a second")
        alt = (
            f"Operations a second of four kernels on an {result['machine']['gpu']}, against tokens "
            "T, horizontal axis logarithmic; forward on the left, backward on the right, with 128 "
            "features, bfloat16 and no mask."
        )
        return figures.Drawing.from_matplotlib(figure, f"{alt} {'; '.join(said)}.")


KINDS = {  # of calls: causal or not, with the backward or not
    "forward": (False, False),
    "forward, causal": (True, False),
    "forward and backward": (False, True),
}


def ratios(results: list[Result]) -> figures.Drawing:
    """Return the ratios of the blockwise form by length, at D = 64, as a drawing.

    Each run has a panel. All of them share the vertical axis, and torch is the line at 1.
    """
    said = []
    with canvas(3.9, len(results)) as (figure, panels):
        for axes, name, result in zip(panels, labels(results), results, strict=True):
            axes.axhline(1, color=COLOURS["ink"], linewidth=1)
            axes.annotate("torch", (0.02, 1), (0, -4), xycoords=("axes fraction", "data"), va="top",
                          textcoords="offset points")
            for (kind, passes), look in zip(KINDS.items(), SERIES, strict=True):
                found = {
                    row["n_tokens"]: row["ratio"]
                    for row in result["rows"]
                    if (row["form"], row["dtype"], row["n_features"])
                    == ("torch_blockwise", "float32", 64)
                    and (row["is_causal"], row["backward"]) == passes
                }
                axes.plot(list(found), list(found.values()), label=kind, markersize=6, **look)
                numbers = ", ".join(f"{ratio:.2f} at {n}" for n, ratio in found.items())
                said.append(f"{name}, {kind}: {numbers}")
            axes.set_ylim(bottom=0.9)
            powers_axis(axes, list(found), len(results) + 1)  # room between the numbers
        finish(figure, panels, labels(results), "ratio")
        alt = (
            "Time of torch_blockwise divided by that of torch's kernel, against tokens T, "
            "horizontal axis logarithmic, a panel for each run; torch is the line at 1."
        )
        return figures.Drawing.from_matplotlib(figure, f"{alt} {'; '.join(said)}.")


def bytes_(result: Result) -> figures.Drawing:
    """Return the memory of the forms, at the lengths at which all were measured, as a drawing."""
    series: dict[str, dict[int, float]] = {}
    for row in result["memory"]:
        series.setdefault(row["form"], {})[row["n_tokens"]] = row["extra_bytes"] / 2**20
    lengths = sorted(set.intersection(*(set(found) for found in series.values())))
    values = {name: [found[length] for length in lengths] for name, found in series.items()}
    words = (f"{name}: {', '.join(f'{v:.0f}' for v in row)}" for name, row in values.items())
    alt = f"Memory in MiB over inputs and results, for T = {lengths}. {'; '.join(words)}."
    return figures.lines(lengths, values, x_title="tokens T", y_title="MiB", powers=True, alt=alt)


def runs(folder: Path = RESULTS) -> list[Result]:
    """Return the stored runs of `benchmarks.blockwise`, one for each machine, the newest first."""
    found = [json.loads(file.read_text("utf-8")) for file in (folder / "blockwise").glob("*.json")]
    found.sort(key=lambda run: (run["machine"]["date"], run["machine"]["cpu"]), reverse=True)
    return found


def parts(folder: Path = RESULTS) -> dict[str, str]:
    """Return what stands on the page, by the names of its places."""
    stored = {file.stem: json.loads(file.read_text("utf-8")) for file in folder.glob("*.json")}
    of_runs = (machines, means, halves, memory, timings)
    found = {part.__name__: part(runs(folder)) for part in of_runs}
    found |= {part.__name__: part(stored[part.__name__]) for part in (decoding, ring)}
    return found | {"gpu": gpu(stored.get("gpu"))}


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
    found = runs()
    on_a_gpu = json.loads((RESULTS / "gpu.json").read_text("utf-8"))
    drawings = {"ratios": ratios(found), "memory": bytes_(found[0]), "gpu": speeds(on_a_gpu)}
    for name, drawing in drawings.items():
        (RESULTS / f"{name}.html").write_text(drawing._repr_html_() + "\n", "utf-8")


if __name__ == "__main__":
    main()
