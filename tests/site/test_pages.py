"""Every page, in a real browser: nothing from elsewhere, nothing broken, readable on a phone."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.site.conftest import OpenPage, all_pages, chapters, pages

FACTS = (Path(__file__).parent / "facts.js").read_text(encoding="utf-8")
DRAWN_TEXT = (Path(__file__).parent / "drawn_text.js").read_text(encoding="utf-8")
CUT = (Path(__file__).parent / "cut.js").read_text(encoding="utf-8")
DESKTOP, PHONE = 1280, 360
VIEWS = [("light", DESKTOP), ("light", PHONE), ("dark", PHONE)]
MOST_SHIFT = 0.05
# Of letters in drawings, in px: 7 points.
LEAST_LETTERS = 9.5


@pytest.fixture(scope="session")
def look(open_anywhere: OpenPage) -> Any:
    """What a page looks like in a theme and a width; each is loaded once."""

    @cache
    def look_once(name: str, theme: str, width: int) -> dict[str, Any]:
        # Nothing is on its way between two frames while it is measured.
        visit = open_anywhere(name, theme=theme, width=width, height=800, motion="reduce")
        facts: dict[str, Any] = visit.page.evaluate(FACTS)
        facts |= {"foreign": visit.foreign, "problems": visit.problems}
        facts["drawn_text"] = visit.page.evaluate(DRAWN_TEXT)
        facts["cut"] = visit.page.evaluate(CUT)
        visit.page.context.close()
        return facts

    return look_once


@pytest.fixture(params=VIEWS, ids=lambda view: f"{view[0]}-{view[1]}")
def view(request: pytest.FixtureRequest) -> tuple[str, int]:
    """A theme and a width."""
    return request.param


@pytest.mark.quick
@pytest.mark.parametrize("name", all_pages())
def test_nothing_fails_or_comes_from_another_host(
    look: Any, name: str, view: tuple[str, int]
) -> None:
    facts = look(name, *view)
    assert facts["foreign"] == [] and facts["problems"] == []


@pytest.mark.quick
@pytest.mark.parametrize("name", all_pages())
def test_every_formula_is_visible(look: Any, name: str, view: tuple[str, int]) -> None:
    facts = look(name, *view)
    for raw in ("$$", r"\(", r"\[", r"\begin{", r"\frac", r"\sqrt"):
        assert raw not in facts["words"]
    for formula in facts["formulas"]:
        assert formula["rendered"] and not formula["wrong"], formula
        assert min(formula["size"]) > 0, formula
        assert "$" not in formula["text"] and "\\" not in formula["text"], formula
    if name in chapters():
        assert facts["formulas"]
        assert any("KaTeX_Main" in font for font in facts["fonts"])
    assert facts["broken"] == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", all_pages())
def test_a_phone_needs_no_sideways_scroll(look: Any, name: str, theme: str) -> None:
    facts = look(name, theme, PHONE)
    assert facts["paper"] == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 30)"}[theme]
    assert facts["scrollWidth"] <= PHONE


@pytest.mark.quick
@pytest.mark.parametrize("name", all_pages())
def test_a_phone_cuts_no_formula_and_no_figure(look: Any, name: str) -> None:
    facts = look(name, "light", PHONE)
    assert facts["cut"] == []
    assert facts["lost"] == []  # the commas that a line begins with


@pytest.mark.parametrize("name", all_pages())
def test_nothing_jumps_while_the_page_loads(look: Any, name: str, view: tuple[str, int]) -> None:
    assert look(name, *view)["shift"] <= MOST_SHIFT


@pytest.mark.parametrize("name", pages())
def test_text_in_drawings_can_be_read(look: Any, name: str, view: tuple[str, int]) -> None:
    facts = look(name, *view)
    assert facts["drawn_text"] or name not in chapters()
    for text in facts["drawn_text"]:
        assert text["contrast"] >= 4.5, text
        assert text["size"] >= LEAST_LETTERS, text


@pytest.mark.parametrize("name", pages())
def test_tables_have_headers_and_a_name(look: Any, name: str) -> None:
    for table in look(name, "light", PHONE)["tables"]:
        assert table["headers"] == table["columns"] > 1, table
        assert len(table["name"].split()) >= 2, table
