"""Pages that load what they use: nothing from another host, no script or font without a purpose.

Everything here goes through Sphinx's hooks. A page's scripts are chosen by name; one that the lists
below do not name is a warning, so that an update cannot add one unseen. (`one_stylesheet` does the
same for stylesheets.)
"""

from __future__ import annotations

import re
import shutil
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode
from pygments.formatters import HtmlFormatter
from pygments.styles import get_style_by_name
from pygments.token import Text
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ExtensionError
from sphinx.util import logging

logger = logging.getLogger(__name__)

HERE = Path(__file__).parent

KEPT_SCRIPTS = ("book.js", "attn/moving.js")
# The page of results has the search itself as well, from its template.
SEARCH_SCRIPTS = (
    "documentation_options.js",
    "doctools.js",
    "sphinx_highlight.js",
    "search_text.js",
)
# book.js does what this book uses of them; they took most of the time to the first key press.
DROPPED_SCRIPTS = ("scripts/sphinx-book-theme.js",)
# Values that only the version switcher and search-as-you-type read; the book has neither.
DROPPED_INLINE = ("DOCUMENTATION_OPTIONS.",)

# Left out of _static: nothing refers to them. Icons are drawn in book.css, menus and tooltips that
# need Bootstrap are plain links and titles here.
UNUSED_FILES = (
    "**/*.map",
    "**/*.LICENSE.txt",
    "**/*webpack-macros.html",
    "images/logo_*",
    "locales",
    "scripts",
    "styles/theme.css",
    "vendor",
)

# Each drawing of matplotlib has it, and it would hold for the whole page; book.css has it once.
DRAWING_STYLE = '<style type="text/css">*{stroke-linejoin: round; stroke-linecap: butt}</style>'

MOVING_FILES = ("moving.css", "moving.js")
LONGEST_DESCRIPTION = 160


SHARED = re.compile(r'<(style|script) class="attn-moving-\1">.*?</\1>', re.DOTALL)


def moving_figures_for_the_book(html: str) -> str:
    """An output without the inline parts that moving figures share: a page loads them once.

    >>> moving_figures_for_the_book('<p>a</p><style class="attn-moving-style">p{}</style>')
    '<p>a</p>'
    """
    return SHARED.sub("", html)


def is_moving(node: nodes.Node) -> bool:
    """Whether a node is HTML with a figure that moves."""
    return isinstance(node, nodes.raw) and "attn-moving" in node.astext()


def tidy_outputs(app: Sphinx, doctree: nodes.document) -> None:
    """Move what a page needs once out of the cells, and name what is folded."""
    for raw in list(doctree.findall(nodes.raw)):
        if "html" not in raw.get("format", ""):
            continue
        html = raw.astext().replace(DRAWING_STYLE, "")
        if is_moving(raw):
            html = moving_figures_for_the_book(html)
        raw.children = [nodes.Text(html)]
    for cell in doctree.findall(nodes.container):
        if cell.get("nb_element") == "cell_code" and cell.get("hide_mode"):
            title = re.match(r"#\s*@title\s+(.+)", cell.astext().lstrip())
            if title:
                cell["prompt_show"] = cell["prompt_hide"] = title[1].strip()


def visit_folded(self: Any, node: nodes.Element) -> None:
    """A folded cell as the browser's own details element, named by the text one sees."""
    self.body.append(f'<details class="hide {" ".join(node["classes"])}">\n')
    self.body.append(f"<summary>{self.encode(node['prompt_show'])}</summary>\n")


def depart_folded(self: Any, node: nodes.Element) -> None:
    """The end of a folded cell."""
    self.body.append("</details>\n")


def plain_math(tex: str) -> str:
    """TeX as a description can show it.

    >>> plain_math(r"QK^{\\mathsf T}/\\sqrt{d_k}")
    'QKᵀ/√dₖ'
    """
    tex = re.sub(r"\\sqrt\s*\{([^{}]*)\}", r"√\1", tex)
    tex = re.sub(r"\\(?:mathrm|mathsf|mathbf|text|operatorname)\s*", "", tex)
    tex = tex.replace(r"\top", "T").replace(r"\cdot", "·").replace(r"\times", "×")
    tex = re.sub(r"\s+", " ", re.sub(r"[{}\\]", "", tex)).strip()
    for written, sign in (("^T", "ᵀ"), ("^2", "²"), ("_k", "ₖ")):
        tex = re.sub(rf"{re.escape(written)}(?!\w)", sign, tex)
    return tex


def plain_text(node: nodes.Node) -> str:
    """A paragraph's words, formulas included."""
    if isinstance(node, nodes.math):
        return plain_math(node.astext())
    if isinstance(node, nodes.Text):
        return str(node.astext())
    return "".join(plain_text(child) for child in node.children)


def shortened(words: str, longest: int = LONGEST_DESCRIPTION) -> str:
    """Whole sentences if at least one fits, else whole words.

    >>> shortened("One idea. Another one.", 12)
    'One idea.'
    >>> shortened("One long idea", 9)
    'One long…'
    """
    words = re.sub(r"\s+", " ", words).strip()
    if len(words) <= longest:
        return words
    end = max(words.rfind(mark, 0, longest) for mark in (". ", "? ", "! "))
    if end > longest // 3:
        return words[: end + 1]
    return words[: words.rfind(" ", 0, longest)].rstrip(",;:") + "…"


def describe(doctree: nodes.document) -> str:
    """The first paragraph of the text that says something."""
    for paragraph in doctree.findall(nodes.paragraph):
        words = plain_text(paragraph)
        if isinstance(paragraph.parent, nodes.section) and len(words) > 40:
            return shortened(words)
    return ""


def name_page(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Set for each page a title in plain words and, unless its author wrote one, a description."""
    if pagename in app.env.titles:
        number = app.env.toc_secnumbers.get(pagename, {}).get("", ())
        dotted = "".join(f"{part}. " for part in number[:1])
        title = dotted + plain_text(app.env.titles[pagename])
    else:
        title = pagename.capitalize()
    context["plain_title"] = title
    # The theme's own template states the viewport; the parsers' repetition is dropped.
    metatags = re.sub(r'\s*<meta name="viewport"[^>]*>', "", context.get("metatags", ""))
    if 'name="description"' not in metatags:
        words = describe(doctree) if doctree is not None else ""
        words = words or f"{title}: a page of the course “{app.config.html_title}”."
        metatags += f'\n    <meta name="description" content="{escape(words)}">'
    context["metatags"] = metatags


def name_of(asset: Any) -> str | None:
    """A script's name within _static; None for inline code."""
    filename = getattr(asset, "filename", asset)
    if not filename:
        return None
    return str(filename).removeprefix("_static/")


def choose_scripts(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Keep the scripts that the page uses; they wait for the page."""
    if doctree is not None and any(is_moving(raw) for raw in doctree.findall(nodes.raw)):
        if not (Path(app.doctreedir) / "lean_pages" / "attn").is_dir():
            raise ExtensionError(
                f"{pagename} has a moving figure; attnbook/figures has no moving.js"
            )
        app.add_js_file("attn/moving.js")

    scripts = []
    for script in context["script_files"]:
        name = name_of(script)
        if name is None:
            code = getattr(script, "attributes", {}).get("body", "")
            if not code.startswith(DROPPED_INLINE):
                logger.warning("lean_pages: inline script is not known: %.60s", code)
        elif name in KEPT_SCRIPTS or (name in SEARCH_SCRIPTS and pagename == "search"):
            script.attributes["defer"] = "defer"
            scripts.append(script)
        elif name not in (*SEARCH_SCRIPTS, *DROPPED_SCRIPTS):
            logger.warning("lean_pages: script is not known: %s", name)
    context["script_files"] = scripts


def no_actions_yet(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """The theme renders its components once to see which are empty, before the links are known."""
    context["page_actions"] = {}


def plain_actions(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """What the theme puts into drop-down menus, as two plain links."""
    found: dict[str, str] = {}
    for group in context.get("header_buttons", []):
        for button in group.get("buttons", [group]):
            label, url = button.get("label"), button.get("url")
            if button.get("text") == "Colab":
                found["colab"] = url
            elif label == "download-notebook-button" or str(url).endswith(".ipynb"):
                found["notebook"] = url
    context["page_actions"] = found


class FewerSpans(HtmlFormatter):
    """Code in which a token has a span only where a style shows it unlike plain text.

    A name, a bracket or a space has no colour of its own; their spans are half of all.
    """

    shown_in: tuple[Any, ...] = ()

    def _get_css_classes(self, ttype: Any) -> str:
        if all(
            style.style_for_token(ttype) == style.style_for_token(Text) for style in self.shown_in
        ):
            return ""
        return str(super()._get_css_classes(ttype))


def use_fewer_spans(app: Sphinx) -> None:
    """Format code with the spans that the styles of the two themes show."""
    options = app.config.html_theme_options
    names = [options.get(f"pygments_{theme}_style") for theme in ("light", "dark")]
    if app.builder.format == "html" and all(names):
        styles = tuple(get_style_by_name(name) for name in names)
        formatter = type("FewerSpans", (FewerSpans,), {"shown_in": styles})
        app.builder.highlighter.formatter = formatter  # type: ignore[attr-defined]


def add_templates(app: Sphinx, config: Config) -> None:
    """The book's templates come before the theme's."""
    config.templates_path.insert(0, str(HERE / "templates"))


def add_assets(app: Sphinx) -> None:
    """The book's stylesheet and script, and those of the moving figures from the package."""
    app.config.html_static_path.append(str(HERE / "assets"))
    # After the theme's and the notebooks' own, so that the book has the last word.
    app.add_css_file("book.css", priority=900)
    app.add_js_file("book.js")
    figures = Path(app.srcdir) / "attnbook" / "figures"
    target = Path(app.doctreedir) / "lean_pages"
    shutil.rmtree(target, ignore_errors=True)
    if all((figures / name).is_file() for name in MOVING_FILES):
        (target / "attn").mkdir(parents=True)
        for name in MOVING_FILES:
            shutil.copyfile(figures / name, target / "attn" / name)
        app.config.html_static_path.append(str(target))


def remove_unused(app: Sphinx, exception: Exception | None) -> None:
    """Take out of _static what the theme brings and no page refers to."""
    if exception is not None or app.builder.format != "html":
        return
    static = Path(app.outdir) / "_static"
    for pattern in UNUSED_FILES:
        for path in list(static.glob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the hooks; those on pages run after the theme's own."""
    app.add_node(HideCodeCellNode, override=True, html=(visit_folded, depart_folded))
    # Jupyter Book sets this option for an extension that the book does not load.
    app.add_config_value("comments_config", {}, "")
    app.connect("config-inited", add_templates)
    app.connect("builder-inited", add_assets)
    app.connect("builder-inited", use_fewer_spans)
    app.connect("doctree-read", tidy_outputs)
    app.connect("html-page-context", no_actions_yet, priority=100)
    app.connect("html-page-context", name_page, priority=900)
    app.connect("html-page-context", plain_actions, priority=900)
    app.connect("html-page-context", choose_scripts, priority=950)
    app.connect("build-finished", remove_unused)
    return {"version": "1.0", "parallel_read_safe": True, "parallel_write_safe": True}
