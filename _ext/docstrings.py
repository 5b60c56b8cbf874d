"""The package's docstrings, written to be read in an editor, as autodoc needs them.

There a docstring has lines such as "Shapes: query (…, L, E) → …" and names in single backticks.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

LABELLED = re.compile(r"(Shapes|Units|Raises|Source): +(?=\S)")


def starts_block(lines: list[str]) -> bool:
    """Whether an indented block comes next: formulas or a table, to be shown as written."""
    return len(lines) > 1 and not lines[0] and lines[1].startswith("    ")


def as_fields(lines: list[str]) -> list[str]:
    """Labelled lines as a field list, blocks as they are written, and bars as bars.

    >>> as_fields(["Give x.", "Shapes: (T,)", "    and (S,)", "Raises: an error if |x| > 1"])
    ['Give x.', '', ':Shapes: (T,)', '    and (S,)', ':Raises: an error if \\\\|x\\\\| > 1']
    """
    fields: list[str] = []
    in_field = False
    for number, line in enumerate(lines):
        if line.endswith(":") and not line.startswith(" ") and starts_block(lines[number + 1 :]):
            fields += [line, "", ".. code-block:: text"]
            in_field = False
            continue
        label = LABELLED.match(line)
        if label:
            if not in_field and fields and fields[-1]:
                fields.append("")
            line = f":{label[1]}: {line[label.end() :]}"
        elif in_field and line and not line.startswith(" "):
            line = f"    {line}"
        in_field = bool(label) or (in_field and bool(line))
        if in_field or not line.startswith((" " * 4, ">>>", "...")):
            line = re.sub(r"\|(?=[^|\s])([^|]*)\|", r"\\|\1\\|", line)
        fields.append(line)
    return fields


def rewrite(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Autodoc's hook: the lines are changed in place."""
    lines[:] = as_fields(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect before napoleon, which then finds fields."""
    app.connect("autodoc-process-docstring", rewrite, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
