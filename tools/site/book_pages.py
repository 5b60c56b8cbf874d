"""What this book's pages have beside what Furo gives them, and the policy that they keep to.

A notebook's page has links to Colab and to the file; a folded cell has its own name; a page's title
and description are plain words; and a page may load nothing from another host.
"""

from __future__ import annotations

import base64
import hashlib
import re
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ExtensionError
from static_math import plain_math, plain_text

# What Furo and Sphinx leave for us to mend, on every page. An update that changes one of these is
# an error of the build, so that it is looked at.
MENDS = {
    # A heading has a level, and two asides have names.
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="All chapters">',
    '<aside class="toc-drawer': '<aside aria-label="On this page" class="toc-drawer',
}
# Each drawing of Matplotlib has it, and it would hold for the whole page; book.css has it once.
DRAWING_STYLE = '<style type="text/css">*{stroke-linejoin: round; stroke-linecap: butt}</style>'
# Asks early for the faces that are in almost every formula, so that no line moves when they arrive.
# A page of a file may not ask so.
FONTS = """<script>
      if (location.protocol !== "file:") for (const face of ["Main-Regular", "Math-Italic"]) {
        const root = document.documentElement.dataset.content_root;
        const href = `${root}_static/katex/fonts/KaTeX_${face}.woff2`;
        const link = { rel: "preload", as: "font", type: "font/woff2", crossOrigin: "", href };
        document.head.append(Object.assign(document.createElement("link"), link));
      }
    </script>"""
# What is far below is laid out when the reader comes near (book.css), so its height is told before:
# that of a drawing by its shape, that of code by its lines.
DRAWN = re.compile(
    r'(<svg [^>]*viewBox="0 0 ([\d.]+) ([\d.]+)"[^>]* style="max-width:100%;height:auto)"'
)
CODE = re.compile(r'<div class="highlight"(><pre>.*?</pre>)', re.DOTALL)
SKIP = re.compile(r'<a class="skip-to-content.*?</a>', re.DOTALL)
MINUTES = re.compile(r"\d+ minutes\b")
FIRST_SWITCH = '<input type="checkbox" class="sidebar-toggle" name="__navigation"'
INLINE = r"<{0}(?![^>]*\b(?:src|type)=)[^>]*>(.*?)</{0}>"


def complete(app: Sphinx, config: Config) -> None:
    """Set what `_config.yml` cannot: addresses made from `baseurl`, and an option of the theme.

    Furo defines its style for dark code when it is loaded, after Sphinx has checked the names.
    """
    config.pygments_dark_style = "a11y-high-contrast-dark"
    if not config.html_baseurl.endswith("/"):
        raise ExtensionError("html: baseurl: of _config.yml ends without a slash")
    config.ogp_site_url = config.html_baseurl
    config.notfound_urls_prefix = urlsplit(config.html_baseurl).path


def name_folded_cells(app: Sphinx, doctree: nodes.document) -> None:
    """Name a cell that is folded whole by the title in its first line, as Colab does.

    The check of an exercise is folded too, because many a check computes what the exercise asks.
    """
    n_checks = 0
    for cell in doctree.findall(nodes.container):
        if cell.get("nb_element") != "cell_code":
            continue
        if "tag_check" in cell["classes"]:
            n_checks += 1
            cell["hide_mode"], cell["prompt_show"] = "all", f"Check {n_checks}"
            cell["prompt_hide"] = cell["prompt_show"]
        elif cell.get("hide_mode") == "all":
            title = re.match(r"#\s*@title\s+(.+)", cell.astext().lstrip())
            if title:
                cell["prompt_show"] = title[1].strip()


def begin_with_questions(app: Sphinx, doctree: nodes.document) -> None:
    """Put the questions from earlier chapters under the line that says what a page needs.

    In a notebook they come after the set-up, which they need, and so between a problem and its
    figure.
    """
    for section in doctree.children[:1]:
        said = [part for part in section.children if isinstance(part, nodes.paragraph)]
        asked = [part for part in section.children if "tag_quiz" in part.get("classes", [])]
        if said and asked:
            section.remove(asked[0])
            section.insert(section.index(said[0]) + 1, asked[0])


def say_in_words(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Put a page's title, and the formulas that its description may quote, into plain words.

    A title alone would not say what the page is found by, so the first of its search terms follows.
    """
    if pagename in app.env.titles:
        number = app.env.toc_secnumbers.get(pagename, {}).get("", ())
        words = "".join(f"{part}. " for part in number[:1]) + plain_text(app.env.titles[pagename])
        terms = app.config.search_terms.get(pagename, []) if number else []
        context["title"] = escape(" · ".join([words, *terms[:1]]))
    if doctree is not None:
        # The page is written; from its tree the card and the description are made, without the
        # title, which stands beside them, and without how long the page takes.
        for title in list(doctree.findall(nodes.title))[:1]:
            title.parent.remove(title)
        for said in list(doctree.findall(nodes.paragraph))[:1]:
            if MINUTES.match(said.astext()):
                said.parent.remove(said)
        for formula in list(doctree.findall(nodes.math)):
            formula.replace_self(nodes.Text(plain_math(formula.astext())))


def add_notebook_links(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Put links to Colab and to the file under the title of a notebook."""
    source = context.get("sourcename", "")
    if doctree is None or not source.endswith(".ipynb"):
        return
    colab = f"{app.config.book_colab}{pagename}.ipynb"
    file = context["pathto"](f"_sources/{source}", resource=True)
    links = (
        f'<p class="book-actions"><a href="{escape(colab)}">Open in Colab</a>'
        f'<a href="{escape(file)}" download>Download the notebook</a></p>'
    )
    context["body"] = context["body"].replace("</h1>", f"</h1>\n{links}", 1)


def policy(html: str) -> str:
    """Return the content policy of a page: its own files, and by digest what is written into it.

    Only the style attributes of formulas and drawings are free: they are thousands, and can ask for
    nothing that `img-src` and `font-src` do not allow.

    >>> policy("<style>p {}</style>").split("; ")[2]
    "style-src 'self' 'sha256-SNJDlN1Iy2mnt7DOjQIyDb2LQE6O5PQiSZomcdzawQ4='"
    """

    def digests(tag: str) -> str:
        found = {}
        for code in re.findall(INLINE.format(tag), html, re.DOTALL):
            digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
            found[f" 'sha256-{digest}'"] = True
        return "".join(found)

    return (
        f"default-src 'none'; script-src 'self'{digests('script')}; "
        f"style-src 'self'{digests('style')}; style-src-attr 'unsafe-inline'; "
        "img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; "
        "base-uri 'none'"
    )


def finish(app: Sphinx, exception: Exception | None) -> None:
    """Mend each page that was written, and put the policy before everything that it is about."""
    if exception is not None or app.builder.name != "html":
        return
    for path in Path(app.outdir).rglob("*.html"):
        html = path.read_text(encoding="utf-8")
        if "Content-Security-Policy" in html or '<meta charset="utf-8">' not in html:
            continue  # written by an earlier build, or no page
        for old, new in MENDS.items():
            if old not in html:
                raise ExtensionError(f"book_pages: {path.name} has no {old}; has Furo changed?")
            html = html.replace(old, new)
        html = html.replace(DRAWING_STYLE, "")
        html = DRAWN.sub(r'\1;aspect-ratio:\2/\3"', html)
        html = CODE.sub(
            lambda code: (
                f'<div class="highlight" style="--lines:{code[1].count(chr(10))}"{code[1]}'
            ),
            html,
        )
        # The link that skips comes before the two switches, which book.css lets the keyboard reach.
        [skip] = SKIP.findall(html)
        html = html.replace(skip, "").replace(FIRST_SWITCH, skip + FIRST_SWITCH, 1)
        fonts = f"\n    {FONTS}" if 'class="katex-html"' in html else ""
        html = html.replace('<link rel="stylesheet"', f'{fonts}<link rel="stylesheet"', 1)
        meta = f'<meta http-equiv="Content-Security-Policy" content="{policy(html)}">'
        head = '<meta charset="utf-8">'
        path.write_text(html.replace(head, f"{head}\n    {meta}", 1), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the hooks; the words come before the extensions that quote them."""
    app.add_config_value("book_colab", "", "html")
    # Jupyter Book sets this option for an extension that the book does not load.
    app.add_config_value("comments_config", {}, "")
    app.connect("config-inited", complete, priority=100)
    app.connect("doctree-read", name_folded_cells)
    app.connect("doctree-read", begin_with_questions)
    app.connect("html-page-context", say_in_words, priority=100)
    app.connect("html-page-context", add_notebook_links)
    app.connect("build-finished", finish, priority=900)
    return {"version": "1.0", "parallel_read_safe": True, "parallel_write_safe": True}
