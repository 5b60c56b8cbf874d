"""404.html: it looks and leads right at any depth below the project's name."""

from __future__ import annotations

import pytest

from tests.site.conftest import OpenPage, pages


# Where the page is asked for: beside the first page, in a folder, two folders deep.
@pytest.mark.quick
@pytest.mark.parametrize("name", ["nowhere", "chapters/99_nowhere", "a/b/nowhere"])
def test_a_missing_address_gets_the_page_and_its_links_lead_on(
    open_page: OpenPage, address: str, name: str
) -> None:
    visit = open_page(name)
    page = visit.page
    # Nothing failed but the page itself: style, scripts and icon are found from any depth.
    answer, message = sorted(visit.problems)
    assert answer == f"404: {address}/{name}.html" and "404" in message
    assert visit.foreign == []
    assert page.locator("h1").inner_text().startswith("Page not found")
    links = page.locator("a[href]").evaluate_all("links => links.map((link) => link.href)")
    assert {f"{address}/{name}.html" for name in pages()} <= {link.split("#")[0] for link in links}
    page.locator(".sidebar-search").fill("softmax")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{address}/search.html?q=softmax*")
    page.locator("#search-results ul.search li a").first.wait_for()
