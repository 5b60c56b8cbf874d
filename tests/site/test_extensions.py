"""The book's own extensions: what they change, and how a build that must fail fails."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sphinx", reason="the book's packages are not installed")

from tests.site.conftest import ROOT

NAMES = (
    "accessible_pages", "book_pages", "docstrings", "plain_search", "source_links", "static_math",
)


@pytest.mark.quick
@pytest.mark.parametrize("name", NAMES)
def test_examples_in_docstrings(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0 and result.failed == 0


def test_a_formula_that_cannot_be_read_fails_each_build(tmp_path: Path) -> None:
    if not (ROOT / "tools" / "node" / "node_modules" / "katex").is_dir():
        pytest.skip("KaTeX is not installed: run `make book`")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "node").symlink_to(ROOT / "tools" / "node")
    settings = f"import sys\nsys.path.insert(0, {str(ROOT / 'tools' / 'site')!r})\n"
    (tmp_path / "conf.py").write_text(f"{settings}extensions = ['static_math']\n")
    text = "Title\n=====\n\nGood :math:`x`.\n\n"
    wrong = (r"\undefined{x}", r"\frac{a}{", "é")
    text += "".join(f".. math::\n\n   {tex}\n\n" for tex in wrong)
    (tmp_path / "index.rst").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "sphinx", "-b", "html", str(tmp_path), str(tmp_path / "out")]
    for _ in range(2):  # the second build must not take the first one's page as good
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode != 0
        # Each of the three with its line.
        said = done.stdout + done.stderr
        assert [f"index.rst:{line}: ERROR: formula" in said for line in (6, 10, 14)] == [True] * 3
        assert "formulas that KaTeX cannot read in: index" in said
