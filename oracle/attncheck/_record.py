"""A report as data: one record a case, what failed alike, and a score by class.

`schema.json` in this folder is the schema. A field that is there keeps its name and its meaning as
long as `format` is 1.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attncheck import __version__
from attncheck._classes import CLASSES, NUMBERS, UNSAFE, WRITES, class_of
from attncheck._comparison import Result
from attncheck._report import Report

if TYPE_CHECKING:  # it needs torch
    from attncheck._pairs import PairReport

FORMAT = 1
BESIDE = "beside its reference"  # the topic of all cases of a pair


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

    alike = [
        {
            "kind": group.kind, "condition": group.condition,
            "smallest": group.smallest.case.id, "cases": len(group.results),
        }
        for group, _ in groups
    ]
    cases = list(map(told, report.results))
    return _whole(report, cases, alike, judged, report.asked, report.not_claimed)


def record_beside(report: PairReport) -> dict[str, Any]:
    """Return what came of a kernel beside its reference, as data of the same schema.

    Its ids are words, which `--case` does not take.
    """
    kinds = {case: wrong.kind if wrong else "" for case, wrong in report.found.items()}
    each = list(dict.fromkeys(filter(None, kinds.values())))
    cases = [
        {
            "id": case, "topic": BESIDE, "class": UNSAFE if kinds[case] in WRITES else NUMBERS,
            "passed": not wrong, "refused": False, "kind": kinds[case],
            "message": str(wrong or ""), "group": each.index(kinds[case]) if wrong else None,
        }
        for case, wrong in report.found.items()
    ]
    alike = [
        {
            "kind": kind, "condition": "",
            "smallest": next(case for case, own in kinds.items() if own == kind),
            "cases": list(kinds.values()).count(kind),
        }
        for kind in each
    ]
    there = len(report.found) + len(report.not_asked)
    return _whole(report, cases, alike, False, there, report.not_asked)


def _whole(
    report: Report | PairReport, cases: list[dict[str, Any]], groups: list[dict[str, Any]],
    judged: bool, there: int, not_claimed: Mapping[str, str],
) -> dict[str, Any]:
    return {
        "format": FORMAT, "version": __version__, "about": report.about, "judged": judged,
        "seed": report.seed, "passed": report.passed, "there": there,
        "not_claimed": dict(not_claimed), "score": score(cases), "groups": groups, "cases": cases,
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
