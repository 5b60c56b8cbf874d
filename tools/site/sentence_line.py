"""`{sentence}`: the first page's line for a sentence of the reader's (attnbook/sentence.py).

Without scripts the page has the drawing of `bank` in its place, as it is in chapter 1.
"""

from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from attnbook import figures, sentence

NAMES = ("1", "√dₖ = 8", "dₖ = 64")  # of the divisors


def shell() -> str:
    """Return what the script fills: the line, its words, the divisors, the beam."""
    opening = sentence.opening()
    stored = json.dumps(opening, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    tries = " ".join(
        f'<button type="button" value="{asks}">{escape(text)}</button>'
        for text, asks in sentence.OPENING
    )
    divisors = "".join(
        f'<label><input type="radio" name="divisor" value="{divisor}"{" checked" * (divisor == 8)}>'
        f"{name}</label>"
        for divisor, name in zip(sentence.DIVISORS, NAMES, strict=True)
    )
    near = "".join(
        f'<div><dt>{way}</dt><dd data-way="{way}"></dd></div>'
        for way in ("alone", "plain mean", "attention")
    )
    # What stands there without scripts needs none.
    still = re.sub("<script.*?</script>", "", figures.first_screen()._repr_html_(), flags=re.DOTALL)
    return f"""<div class="sentence">
<form><label for="sentence">Type a sentence, click a word:</label>
<input id="sentence" type="text" value="{escape(sentence.OPENING[0][0])}" maxlength="90"
 autocomplete="off" autocapitalize="none" spellcheck="false" enterkeyhint="done"></form>
<p class="sentence-try">{tries}
<button type="button" class="sentence-copy">Copy the link</button></p>
<p class="sentence-missing" role="status"></p>
<p class="sentence-said" role="status"></p>
<div class="sentence-picture"><svg class="sentence-arcs" aria-hidden="true"></svg>
<div class="sentence-words" role="group" aria-label="Which word asks?"></div></div>
<fieldset class="sentence-divisor"><legend>scores ÷</legend>{divisors}
<small>A score says how well two words match, and its divisor how sharply a word
chooses.</small></fieldset>
<svg class="sentence-beam" viewBox="0 0 448 168" role="img" aria-label="A beam"></svg>
<p class="sentence-single"></p>
<p class="sentence-title">Nearest of {opening["named"]:,} common words</p>
<dl class="sentence-near">{near}</dl>
<script type="application/json">{stored}</script>
</div>
<noscript><style>.sentence, .sentence-limits {{ display: none; }}</style>
{still}</noscript>"""


class SentenceDirective(SphinxDirective):
    """Put the line on the page."""

    def run(self) -> list[nodes.Node]:
        return [nodes.raw("", shell(), format="html")]


def add_script(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Put the script on a page that has the line."""
    if '<div class="sentence">' in context.get("body", ""):
        app.add_js_file("sentence.js", defer="defer")


def write_words(app: Sphinx, exception: Exception | None) -> None:
    """Write the words where the page's script looks for them."""
    if exception is None and app.builder.name == "html":
        for name, text in sentence.scripts().items():
            (Path(app.outdir) / "_static" / name).write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("sentence", SentenceDirective)
    app.connect("html-page-context", add_script, priority=400)
    app.connect("build-finished", write_words)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
