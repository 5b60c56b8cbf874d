"""A report as data: one record a case, what failed alike, and a score by class.

`schema.json` in this folder is the schema. A field that is there keeps its name and its meaning as
long as `format` is 1.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from attncheck import __version__
from attncheck._classes import CLASSES, class_of
from attncheck._comparison import Result
from attncheck._report import Report

FORMAT = 1


def record(report: Report, *, judged: bool = False) -> dict[str, Any]:
    """Return a report as data. `judged` says whether a process of its own gave the results."""
    groups = [(group, set(map(id, group.results))) for group in report.groups]
    refused = set(map(id, report.refused))

    def told(result: Result) -> dict[str, Any]:
        own = (n for n, (_, members) in enumerate(groups) if id(result) in members)
        return {
            "id": result.case.id, "topic": result.case.topic, "class": class_of(result),
            "passed": result.passed, "refused": id(result) in refused, "kind": result.kind,
            "message": result.message, "group": next(own, None),
        }

    cases = list(map(told, report.results))
    return {
        "format": FORMAT, "version": __version__, "about": report.about, "judged": judged,
        "seed": report.seed, "passed": report.passed, "there": report.asked,
        "not_claimed": dict(report.not_claimed), "score": score(cases),
        "groups": [
            {
                "kind": group.kind, "condition": group.condition,
                "smallest": group.smallest.case.id, "cases": len(group.results),
            }
            for group, _ in groups
        ],
        "cases": cases,
    }


def score(cases: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how many cases were asked and passed, and their share; of all, and of each class.

    A case that is refused has not passed. An unsafe failure counts in the class unsafe alone.
    """
    counts = {name: [0, 0] for name in ("all", *CLASSES)}
    for case in cases:
        for name in ("all", case["class"]):
            counts[name][0] += 1
            counts[name][1] += case["passed"]
    shares = {
        name: {"asked": asked, "passed": passed, "score": passed / asked if asked else None}
        for name, (asked, passed) in counts.items()
    }
    return shares.pop("all") | {"classes": shares}


def write(file: str | Path, told: dict[str, Any]) -> None:
    """Write a record to a file, all of it or nothing."""
    whole = Path(f"{file}.part")
    whole.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(whole, file)
