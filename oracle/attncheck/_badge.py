"""Say what came out of a check in one line, and as JSON that shields.io makes a badge of."""

from __future__ import annotations

import json
from pathlib import Path

from attncheck import __version__
from attncheck._report import Report


def badge(report: Report) -> dict[str, object]:
    """Return a badge in the form of a shields.io endpoint.

    What was refused, and which topics were left out, is told too, so that a badge praises nothing
    that was not asked. Failures that are expected are failures here.
    """
    failed, refused = len(report.failed), len(report.refused)
    left_out = list(report.not_claimed.values()).count("left out")
    said = [f"{len(report.results)} asked", f"{failed} failed"]
    said += [f"{refused} refused"] * bool(refused)
    said += [f"{report.asked - len(report.results)} not claimed"]
    said += [f"{left_out} topic{'s' * (left_out != 1)} left out"] * bool(left_out)
    color = "brightgreen" if report.passed else "red"
    label = f"attncheck {__version__}"
    return {"schemaVersion": 1, "label": label, "message": ", ".join(said), "color": color}


def write(file: str, report: Report) -> str:
    """Write the badge to a file, and return its line."""
    own = badge(report)
    Path(file).write_text(json.dumps(own) + "\n", encoding="utf-8")
    return f"{own['label']}: {own['message']}"
