"""A link from each name of the reference to its lines in the repository."""

from __future__ import annotations

import importlib
import inspect
from operator import attrgetter
from pathlib import Path

import yaml
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
REPOSITORY = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))["repository"]["url"]


def linkcode_resolve(domain: str, info: dict[str, str]) -> str | None:
    """Return the address of what is documented, with its first and last line; None for data.

    >>> address = linkcode_resolve("py", {"module": "attnlib.masks", "fullname": "causal"})
    >>> str(address).partition("/blob/main/")[2].partition("#")[0]
    'attnlib/masks.py'
    """
    if domain != "py" or not info["module"]:
        return None
    try:
        found = attrgetter(info["fullname"])(importlib.import_module(info["module"]))
        found = inspect.unwrap(getattr(found, "fget", None) or found)
        lines, first = inspect.getsourcelines(found)
        file = Path(inspect.getfile(found)).resolve().relative_to(ROOT)
    except (AttributeError, TypeError, OSError, ValueError):
        return None
    return f"{REPOSITORY}/blob/main/{file.as_posix()}#L{first}-L{first + len(lines) - 1}"


def setup(app: Sphinx) -> dict[str, bool]:
    """Give sphinx.ext.linkcode the function that it asks for."""
    app.setup_extension("sphinx.ext.linkcode")
    app.config.linkcode_resolve = linkcode_resolve
    return {"parallel_read_safe": True, "parallel_write_safe": True}
