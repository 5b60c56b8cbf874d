"""What the Makefile calls, where the project stands, and what its table of contents lists."""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent


@cache
def contents() -> dict[str, Any]:
    """Return the table of contents."""
    read: dict[str, Any] = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    return read


def chapters() -> dict[str, list[str]]:
    """Return each chapter with the pages below it, in order."""
    return {
        page["file"]: [below["file"] for below in page.get("sections", [])]
        for part in contents()["parts"]
        for page in part["chapters"]
        if page["file"].startswith("chapters/")
    }


def parts() -> list[tuple[str, list[str]]]:
    """Return the name of each part and its pages in order; the first page is a part of its own."""
    toc = contents()
    found = [("", [toc["root"]])]
    for part in toc["parts"]:
        pages = [
            page["file"] for top in part["chapters"] for page in (top, *top.get("sections", []))
        ]
        found.append((part["caption"], pages))
    return found
