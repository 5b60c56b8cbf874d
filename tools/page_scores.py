"""Lighthouse over every page of the built book, for a phone and a desktop: `make lighthouse`.

The book is served from this machine, compressed. Each page is measured once, and twice more where a
score is below its target: then the run with the median performance counts, since other programs on
the machine slow a page down and none makes it fast. What comes out is stored in
`benchmarks/results/lighthouse.json`, which the book's page of benchmarks shows.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tools.serve import BOOK, server_of

ROOT = Path(__file__).resolve().parent.parent
TOOL = ROOT / "tools" / "lighthouse"
RESULT = ROOT / "benchmarks" / "results" / "lighthouse.json"

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FORMS = ("desktop", "mobile")
SCORES = ("performance", "accessibility", "best_practices", "seo")
TARGETS = {
    "desktop": dict.fromkeys(SCORES, 95),
    "mobile": {"performance": 90, "accessibility": 100, "best_practices": 100, "seo": 100},
}
RUNS = 3  # where the first is below a target

Run = dict[str, Any]


def below(run: Run, form: str) -> list[str]:
    """Return the scores of a run that are below their targets.

    >>> run = {"performance": 89, "accessibility": 100, "best_practices": 100, "seo": 100}
    >>> below(run, "mobile"), below(run | {"performance": 90}, "mobile")
    (['performance'], [])
    """
    return [name for name, target in TARGETS[form].items() if run[name] < target]


def median_run(runs: list[Run]) -> Run:
    """Return the run with the median performance; of an even number, the lower of the two.

    >>> median_run([{"performance": 80}, {"performance": 95}, {"performance": 91}])
    {'performance': 91}
    """
    return sorted(runs, key=lambda run: run["performance"])[(len(runs) - 1) // 2]


def measured(measure: Callable[[], Run], form: str) -> Run:
    """Return the run that counts for a page, with how many runs it was chosen from."""
    runs = [measure()]
    if below(runs[0], form):
        runs += [measure() for _ in range(RUNS - 1)]
    return median_run(runs) | {"runs": len(runs)}


def summary(rows: Iterable[Run]) -> dict[str, dict[str, dict[str, float]]]:
    """Return the worst and the median of every score, and of paint and size, for each form."""
    found = list(rows)
    result: dict[str, dict[str, dict[str, float]]] = {}
    for form in FORMS:
        mine = [row for row in found if row["form"] == form]
        if not mine:
            continue
        result[form] = {name: spread([row[name] for row in mine], min) for name in SCORES}
        for name in ("first_paint_ms", "transfer_bytes"):
            result[form][name] = spread([row[name] for row in mine], max)
    return result


def spread(values: list[float], worst: Callable[[list[float]], float]) -> dict[str, float]:
    """Return the worst and the median of some values.

    >>> spread([90, 100, 95], min)
    {'worst': 90, 'median': 95}
    """
    return {"worst": worst(values), "median": statistics.median(values)}


class Lighthouse:
    """Lighthouse in one Node process with one browser, for as many runs as are asked for."""

    def __init__(self, node: str, browser: str) -> None:
        self.process = subprocess.Popen(
            [node, str(TOOL / "measure.js"), browser],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )

    def __call__(self, url: str, form: str) -> Run:
        """Return what one run found.

        Raises:
            RuntimeError: Lighthouse ended, or could not load the page.
        """
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps({"url": url, "form": form}), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"Lighthouse ended while it measured {url}")
        run: Run = json.loads(line)
        if run.pop("error", None):
            raise RuntimeError(f"Lighthouse could not measure {url}")
        return run

    def close(self) -> None:
        """End the browser and the process."""
        self.process.communicate()


def find_browser() -> str | None:
    """Return the first Chromium or Chrome on PATH, or the one that CHROME_PATH names."""
    named = os.environ.get("CHROME_PATH")
    return named or next(filter(None, map(shutil.which, PROGRAMS)), None)


def missing() -> str | None:
    """Return what keeps Lighthouse from running, in one line, or None."""
    if not (BOOK / "index.html").is_file():
        return "the book is not built; run make book"
    if not (TOOL / "node_modules" / "lighthouse").is_dir():
        return "Lighthouse is not installed; run make lighthouse"
    if shutil.which("node") is None:
        return "Node is not on PATH; run make lighthouse"
    if find_browser() is None:
        return "there is no Chromium: install it (Debian: apt install chromium), or set CHROME_PATH"
    return None


def pages(book: Path = BOOK) -> list[str]:
    """Return the addresses of every page that a reader can come to, the first page first."""
    found = [path.relative_to(book).as_posix() for path in sorted(book.rglob("*.html"))]
    # The one for missing addresses is no page of its own, and search engines are told so.
    kept = [page for page in found if page != "404.html" and not page.startswith("_")]
    return sorted(kept, key=lambda page: page != "index.html")


def measure_all(names: list[str]) -> list[Run]:
    """Measure pages in both forms, and say how it goes."""
    browser, node = find_browser(), shutil.which("node")
    assert browser is not None and node is not None
    server = server_of(BOOK, quiet=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    lighthouse = Lighthouse(node, browser)
    rows = []
    began = time.monotonic()
    try:
        for form in FORMS:
            for page in names:
                url = f"http://127.0.0.1:{server.server_port}/{page}"
                run = measured(lambda url=url, form=form: lighthouse(url, form), form)  # type: ignore[misc]
                rows.append({"page": page, "form": form} | run)
                scores = "/".join(str(run[name]) for name in SCORES)
                left = (len(names) * len(FORMS) - len(rows)) * (time.monotonic() - began)
                print(
                    f"{form:8}{page:40}{scores:>16}"
                    f"  first paint {run['first_paint_ms'] / 1000:.1f} s"
                    f"  {run['transfer_bytes'] / 1024:.0f} KiB"
                    f"  (about {left / len(rows) / 60:.0f} min left)",
                    flush=True,
                )
    finally:
        lighthouse.close()
        server.shutdown()
        server.server_close()
    return rows


def main(arguments: list[str]) -> int:
    """Measure all pages, or those named; store only a run over all. Return the exit status."""
    problem = missing()
    if problem is not None:
        print(f"Cannot measure: {problem}.", file=sys.stderr)
        return 1
    rows = measure_all(arguments or pages())
    result = {
        "what": "Lighthouse over every page, served compressed from the machine that measures",
        "machine": {
            "Lighthouse": rows[0]["lighthouse"],
            "Chromium": rows[0]["browser"],
            "cores": os.cpu_count(),
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        },
        "targets": TARGETS,
        "summary": summary(rows),
        "rows": [
            {key: value for key, value in row.items() if key not in ("lighthouse", "browser")}
            for row in rows
        ],
    }
    for form, found in summary(rows).items():
        words = ", ".join(
            f"{name} {values['worst']:.0f} ({values['median']:.0f})"
            for name, values in found.items()
        )
        print(f"{form}, worst (median): {words}")
    if not arguments:
        RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(f"Stored in {RESULT.relative_to(ROOT)}")
    missed = [(row["form"], row["page"], below(row, row["form"])) for row in rows]
    for form, page, names in missed:
        if names:
            print(f"Below its target, {form}, {page}: {', '.join(names)}", file=sys.stderr)
    return int(any(names for *_, names in missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
