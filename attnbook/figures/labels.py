"""Numbers and names as they stand in a drawing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Letters on a line: the paper around them interrupts it.
HALO: dict[str, Any] = {"stroke": "paper", "stroke_width": 4, "paint_order": "stroke"}
START: dict[str, Any] = {"text_anchor": "start"}
END: dict[str, Any] = {"text_anchor": "end"}


def decimal(value: float, digits: int = 2) -> str:
    """Return a number with this many decimals; minus is a true one, and a rounded 0 has no sign.

    >>> decimal(-1.5), decimal(-0.001, 1), decimal(float("-inf"))
    ('−1.50', '0.0', '−∞')
    """
    shown = f"{value:.{digits}f}".replace("-", "−").replace("inf", "∞")
    return shown.lstrip("−") if float(f"{value:.{digits}f}") == 0 else shown


def checked_labels(given: Sequence[str] | None, count: int) -> list[str]:
    """Return the labels of `count` rows or columns: those given, else their numbers.

    Raises:
        ValueError: when there is another number of labels.
    """
    labels = list(given) if given is not None else list(map(str, range(count)))
    if len(labels) != count:
        raise ValueError(f"there must be {count} labels; got {len(labels)}: {labels}")
    return labels
