"""The package's docstrings, written to be read in an editor, as Sphinx needs them.

Napoleon, an extension of Sphinx, knows their sections. It does not know a block of formulas after a
line with a colon, and bars such as those of |x|, which mean something else to Sphinx.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx


def as_written(lines: list[str]) -> list[str]:
    r"""Return the lines with blocks that are shown as they are, and with bars that are bars.

    >>> for line in as_written(["So:", "", "    |x|", "", "Raises:", "    ValueError: |x| > 1."]):
    ...     print(line)
    So:
    <BLANKLINE>
    .. code-block:: text
    <BLANKLINE>
        |x|
    <BLANKLINE>
    Raises:
        ValueError: \|x\| > 1.
    """
    found: list[str] = []
    in_block = announced = False
    for line in lines:
        if line and not line.startswith(" "):
            in_block = False
        elif line and not in_block and announced and not found[-1]:
            in_block = True
            found += [".. code-block:: text", ""]
        if not in_block and not line.lstrip().startswith((">>>", "...")):
            line = re.sub(r"\|(?=[^|\s])([^|]*)\|", r"\\|\1\\|", line)
        found.append(line)
        if line:
            announced = line.endswith(":") and not line.startswith(" ")
    return found


def rewrite(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Change the lines in place: autodoc's hook."""
    lines[:] = as_written(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect before napoleon, which puts sections in place of what it knows."""
    app.connect("autodoc-process-docstring", rewrite, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
