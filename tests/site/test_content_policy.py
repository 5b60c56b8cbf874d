"""The content-security policy: on every page, first in its head, and it lets in nothing foreign."""

from __future__ import annotations

import base64
import hashlib
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tests.site.conftest import all_pages

POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">')


@pytest.mark.quick
@pytest.mark.parametrize("name", all_pages())
def test_a_page_has_its_policy_before_all_else(book: Path, name: str) -> None:
    page = (book / f"{name}.html").read_text(encoding="utf-8")
    policies = list(POLICY.finditer(page))
    assert len(policies) == 1
    before = page[: policies[0].start()]
    assert not re.search(r"<(script|link|style|img|body)\b", before)
    rules = dict(rule.split(" ", 1) for rule in unescape(policies[0][1]).split("; "))
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in rules["script-src"] + rules["style-src"]
    # The digests of what is written into the page, and of nothing else.
    assert "http" not in policies[0][1] and "*" not in policies[0][1]
    written = {"script-src": set(), "style-src": set()}
    inline = r"<(script|style)(?![^>]*\b(?:src|type)=)[^>]*>(.*?)</\1>"
    for tag, code in re.findall(inline, page, re.DOTALL):
        digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
        written[f"{tag}-src"].add(f"'sha256-{digest}'")
    for rule, digests in written.items():
        assert set(rules[rule].split()) == {"'self'", *digests}


@pytest.mark.parametrize("name", [*all_pages(), "search.html?q=softmax"])
def test_a_page_of_a_file_works_without_a_word(browser: Any, book: Path, name: str) -> None:
    page = browser.new_context().new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    path, _, query = name.partition("?")
    page.goto(f"{(book / path).with_suffix('.html').as_uri()}?{query}", wait_until="load")
    page.evaluate("document.fonts.ready.then(() => true)")
    if query:
        page.locator("#search-results ul.search li a").first.wait_for(timeout=10_000)
    assert page.evaluate("getComputedStyle(document.body).fontSize") != ""
    assert said == []
    page.context.close()
