"""What search engines and messengers see of a page: its one address, its words, its card.

Each page names its canonical address and carries Open Graph tags; each page that an author wrote
has a card, a picture of 1200 by 630 pixels with its title and description, drawn when the book is
built. A sitemap lists the pages. All addresses begin with `html_baseurl`.
"""

from __future__ import annotations

from functools import cache
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape as escape_xml

import matplotlib
from PIL import Image, ImageDraw, ImageFont
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

WIDTH, HEIGHT, MARGIN = 1200, 630, 84
CARDS = "_images/cards"
# The colours of the light theme, as book.css and attnbook.figures have them.
INK, MUTED, PAPER, BLUE = (31, 41, 51), (76, 87, 99), (255, 255, 255), (21, 101, 176)
# The fonts that Matplotlib brings, so that a card has the same letters on every machine.
FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
# The sign of the book, as in favicon.svg: row, column, and how dark.
SIGN = ((0, 0, 1.0), (1, 0, 0.55), (1, 1, 1.0), (2, 0, 0.3), (2, 1, 0.55), (2, 2, 1.0))


@cache
def font(name: str, size: int) -> ImageFont.FreeTypeFont:
    """A font of Matplotlib's, laid out without help from the system."""
    file = str(FONTS / f"{name}.ttf")
    return ImageFont.truetype(file, size, layout_engine=ImageFont.Layout.BASIC)


@cache
def outline(name: str, letter: str) -> bytes:
    """The picture of one letter; letters that a font lacks share one picture."""
    return bytes(font(name, 40).getmask(letter))


def without_picture(words: str, name: str) -> set[str]:
    """The letters for which a font has no picture.

    >>> without_picture("√dₖ · QKᵀ", "DejaVuSans"), without_picture("語", "DejaVuSans")
    (set(), {'語'})
    """
    lacking = outline(name, "\uffff")
    return {letter for letter in words if outline(name, letter) == lacking}


def wrapped(words: str, letters: ImageFont.FreeTypeFont, width: int) -> list[str]:
    """Lines of whole words, none wider than `width` unless one word is."""
    lines: list[str] = []
    for word in words.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and letters.getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def mixed(share: float) -> tuple[int, int, int]:
    """Blue on paper, more or less dark."""
    red, green, blue = (round(p + share * (b - p)) for p, b in zip(PAPER, BLUE, strict=True))
    return red, green, blue


def card(title: str, description: str, book: str) -> Image.Image:
    """The picture of a page: title, description, the book's name and sign.

    Raises: `ExtensionError` when the fonts lack a letter, or the words leave the picture.
    """
    for words, name in ((title, "DejaVuSans-Bold"), (description, "DejaVuSans")):
        if lacking := without_picture(words, name):
            raise ExtensionError(f"the card of {title!r} cannot show {', '.join(sorted(lacking))}")
    picture = Image.new("RGB", (WIDTH, HEIGHT), PAPER)
    draw = ImageDraw.Draw(picture)
    draw.rectangle((0, 0, 15, HEIGHT), fill=BLUE)
    large, small, line = font("DejaVuSans-Bold", 66), font("DejaVuSans", 31), font("DejaVuSans", 28)
    y = MARGIN - 12
    for words in wrapped(title, large, WIDTH - 2 * MARGIN):
        draw.text((MARGIN, y), words, INK, large)
        y += 82
    y += 22
    for words in wrapped(description, small, WIDTH - 2 * MARGIN):
        draw.text((MARGIN, y), words, MUTED, small)
        y += 45
    foot = HEIGHT - MARGIN
    if y > foot - 40:
        raise ExtensionError(f"the card of {title!r} has no room for {description!r}")
    for row, column, share in SIGN:
        corner = (MARGIN + 22 * column, foot - 64 + 22 * row)
        draw.rectangle((*corner, corner[0] + 19, corner[1] + 19), fill=mixed(share))
    draw.text((MARGIN + 84, foot - 48), book, INK, line)
    # Few colours, so a small file; without dithering, so the same one each time.
    return picture.quantize(64, dither=Image.Dither.NONE)


class _Description(HTMLParser):
    """Finds the description among the meta tags of a page."""

    words = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "meta" and values.get("name") == "description":
            self.words = values.get("content") or ""


def description_of(metatags: str) -> str:
    """The description that a page's meta tags hold.

    >>> description_of('<meta content="Softmax &amp; more" name="description" />')
    'Softmax & more'
    """
    reader = _Description()
    reader.feed(metatags)
    return reader.words


def address(app: Sphinx, pagename: str) -> str:
    """The one address of a page; the first page's is the site's own."""
    base: str = app.config.html_baseurl
    if not base.endswith("/"):
        raise ExtensionError("page_meta: html: baseurl: of _config.yml ends without a slash")
    if pagename == app.config.root_doc:
        return base
    return f"{base}{app.builder.get_target_uri(pagename)}"


def add_tags(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Add a page's address and its Open Graph tags, and draw its card."""
    if app.builder.name != "html":
        return
    context["pageurl"] = address(app, pagename)
    title = context["plain_title"]
    words = description_of(context["metatags"])
    tags = {
        "og:site_name": app.config.html_title,
        "og:title": title,
        "og:description": words,
        "og:type": "website" if pagename == app.config.root_doc else "article",
        "og:url": context["pageurl"],
    }
    names = {}
    if doctree is not None:
        file = f"{CARDS}/{pagename.replace('/', '-')}.png"
        target = Path(app.outdir) / file
        target.parent.mkdir(parents=True, exist_ok=True)
        card(title, words, app.config.html_title).save(target, optimize=True)
        tags |= {
            "og:image": f"{app.config.html_baseurl}{file}",
            "og:image:width": str(WIDTH),
            "og:image:height": str(HEIGHT),
            "og:image:alt": f"{title}. {words}",
        }
        names["twitter:card"] = "summary_large_image"
    lines = [f'<meta property="{name}" content="{escape(text)}">' for name, text in tags.items()]
    lines += [f'<meta name="{name}" content="{escape(text)}">' for name, text in names.items()]
    context["metatags"] += "".join(f"\n    {line}" for line in lines)


def write_sitemap(app: Sphinx, exception: Exception | None) -> None:
    """List the pages that an author wrote, for search engines."""
    if exception is not None or app.builder.name != "html":
        return
    pages = sorted(app.env.found_docs, key=lambda name: (name != app.config.root_doc, name))
    entries = [f"  <url><loc>{escape_xml(address(app, page))}</loc></url>" for page in pages]
    head = '<?xml version="1.0" encoding="UTF-8"?>'
    space = "http://www.sitemaps.org/schemas/sitemap/0.9"
    lines = [head, f'<urlset xmlns="{space}">', *entries, "</urlset>", ""]
    folder = Path(app.outdir)
    (folder / "sitemap.xml").write_text("\n".join(lines), encoding="utf-8")
    # Read only where the book stands at the root of its host.
    robots = ["User-agent: *", "Allow: /", f"Sitemap: {app.config.html_baseurl}sitemap.xml", ""]
    (folder / "robots.txt").write_text("\n".join(robots), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect after lean_pages, which gives each page its title and description."""
    app.connect("html-page-context", add_tags, priority=920)
    app.connect("build-finished", write_sitemap)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
