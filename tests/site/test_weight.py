"""What a chapter weighs on its way to the reader, compressed, without its pictures."""

from __future__ import annotations

import gzip
from pathlib import Path
from urllib.parse import urldefrag, urlsplit

import pytest

from tests.site.conftest import chapters
from tests.site.test_links import read

MOST_KIB = 350


def weight(path: Path) -> int:
    """Bytes on the way: text is compressed, fonts are already."""
    content = path.read_bytes()
    return len(content if path.suffix == ".woff2" else gzip.compress(content))


@pytest.mark.parametrize("name", chapters())
def test_a_chapter_is_light(book: Path, name: str) -> None:
    page = book / f"{name}.html"
    links = [urlsplit(urldefrag(link)[0]).path for link in read(page).links]
    loaded = [link for link in links if link.endswith((".css", ".js"))]
    # Every font is counted, though no page needs all of them.
    parts = [page, *(book / "_static" / "katex" / "fonts").iterdir()]
    parts += [(page.parent / link).resolve() for link in loaded]
    assert len(parts) > 10
    assert sum(map(weight, parts)) <= MOST_KIB * 1024
