"""What the Makefile calls, where the project stands, and what its table of contents lists."""

from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent


def parts() -> list[tuple[str, list[str]]]:
    """Return the name of each part and its pages in order; the first page is a part of its own."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    found = [("", [toc["root"]])]
    for part in toc["parts"]:
        pages = [
            page["file"] for top in part["chapters"] for page in (top, *top.get("sections", []))
        ]
        found.append((part["caption"], pages))
    return found
