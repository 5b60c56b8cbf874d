"""Formulas become HTML while the book is built; a page needs no script to show them.

KaTeX renders each formula in one Node process that lives as long as the build. A formula that KaTeX
cannot read is an error with its file and line, and the build fails.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

logger = logging.getLogger(__name__)

HOW_TO_INSTALL = "run `make book`, which installs what the formulas need"

# What opens and closes a group in TeX, and the space that parts equations.
MARKS = re.compile(
    r"(?P<open>\{|\\begin\b|\\left\b)|(?P<close>\}|\\end\b|\\right\b)|(?P<gap>\\qquad\b)|\\."
)


# The letters that have a colour in every drawing have it in formulas too, on the line of the text.
LETTERS = {
    **dict.fromkeys("Qq", "query"),
    **dict.fromkeys("Kk", "key"),
    **dict.fromkeys("Vv", "value"),
    **dict.fromkeys("Aa", "weight"),
    **dict.fromkeys("Oo", "output"),
}
# Letters on the line of the text: an index is "mtight" besides. The O of an order is none of them.
ITALIC = re.compile(
    r'<span class="mord mathnormal"( style="[^"]*")?>'
    r'((?!O</span><span class="mopen")[A-Za-z]+)</span>'
)


class FormulaError(Exception):
    """KaTeX cannot read a formula; the message is KaTeX's."""


class Renderer:
    """KaTeX in a Node process, which starts with the first formula.

    `failed` has the pages with a formula that could not be read.
    """

    def __init__(self, node: str, katex: Path) -> None:
        self.command = [node, str(Path(__file__).parent / "render_math.js"), str(katex)]
        self.process: subprocess.Popen[str] | None = None
        self.failed: set[str] = set()

    def html(self, tex: str, *, display: bool) -> str:
        """The HTML of a formula. Raises `FormulaError`."""
        if self.process is None:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
            )
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps({"tex": tex, "display": display}), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise ExtensionError(f"KaTeX ended early: {HOW_TO_INSTALL}")
        answer: dict[str, str] = json.loads(line)
        if "error" in answer:
            raise FormulaError(answer["error"])
        return answer["html"]

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.communicate()
            self.process = None


def equations(tex: str) -> list[str]:
    r"""The equations of a display: what stands between its outermost wide spaces.

    Each may begin a line of its own where they do not fit beside each other.

    >>> equations(r"a = b, \qquad c = \boxed{d \qquad e}")
    ['a = b,', 'c = \\boxed{d \\qquad e}']
    """
    found, depth, start = [], 0, 0
    for mark in MARKS.finditer(tex):
        depth += (mark.lastgroup == "open") - (mark.lastgroup == "close")
        if mark.lastgroup == "gap" and depth == 0:
            found.append(tex[start : mark.start()].strip())
            start = mark.end()
    return [*found, tex[start:].strip()]


def coloured(html: str) -> str:
    """KaTeX's HTML with a class at each letter that has a colour; an index has none.

    >>> coloured('<span class="mord mathnormal">q</span>')
    '<span class="mord mathnormal attn-query">q</span>'
    """

    def split(found: re.Match[str]) -> str:
        style, letters = found[1] or "", found[2]
        names = [f" attn-{LETTERS[letter]}" if letter in LETTERS else "" for letter in letters]
        if not any(names):
            return found[0]
        styles = [""] * (len(letters) - 1) + [style]
        return "".join(
            f'<span class="mord mathnormal{name}"{look}>{letter}</span>'
            for name, look, letter in zip(names, styles, letters, strict=True)
        )

    return ITALIC.sub(split, html)


def plain_math(tex: str) -> str:
    """TeX as a title or a description can show it.

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
    """A node's words, formulas included."""
    if isinstance(node, nodes.math):
        return plain_math(node.astext())
    if isinstance(node, nodes.Text):
        return str(node.astext())
    return "".join(plain_text(child) for child in node.children)


def find_node() -> str:
    """The Node program: of this Python environment if it has one, else the first on PATH."""
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    found = shutil.which("node", path=folders)
    if found is None:
        raise ExtensionError(f"Node was not found: {HOW_TO_INSTALL}")
    return found


def find_katex(source: Path) -> Path:
    """The folder with KaTeX's script, stylesheet and fonts."""
    folder = source / "tools" / "node" / "node_modules" / "katex" / "dist"
    if not (folder / "katex.min.js").is_file():
        raise ExtensionError(f"KaTeX was not found in {folder}: {HOW_TO_INSTALL}")
    return folder


def only_woff2(stylesheet: str) -> str:
    """KaTeX's stylesheet without the font formats that browsers of the last ten years skip.

    >>> only_woff2('src:url(fonts/A.woff2) format("woff2"),url(fonts/A.ttf) format("truetype")')
    'src:url(fonts/A.woff2) format("woff2")'
    """
    return re.sub(r',url\([^)]*\.(?:woff|ttf)\) format\("(?:woff|truetype)"\)', "", stylesheet)


def copy_assets(katex_folder: Path, target: Path) -> None:
    """Put the stylesheet and the woff2 fonts into a folder of static files."""
    fonts = target / "fonts"
    fonts.mkdir(parents=True, exist_ok=True)
    stylesheet = (katex_folder / "katex.min.css").read_text(encoding="utf-8")
    (target / "katex.min.css").write_text(only_woff2(stylesheet), encoding="utf-8")
    for font in sorted((katex_folder / "fonts").glob("*.woff2")):
        shutil.copyfile(font, fonts / font.name)


def start(app: Sphinx) -> None:
    """Find Node and KaTeX, and give the pages their stylesheet."""
    if app.builder.format != "html":
        return
    katex_folder = find_katex(Path(app.srcdir))
    app.builder.static_math = Renderer(  # type: ignore[attr-defined]
        find_node(), katex_folder / "katex.min.js"
    )
    assets = Path(app.doctreedir) / "static_math"
    copy_assets(katex_folder, assets / "katex")
    app.config.html_static_path.append(str(assets))
    app.add_css_file("katex/katex.min.css")


def render(self: Any, node: nodes.Element, *, display: bool) -> str:
    """The HTML of one formula; where KaTeX refuses it, its TeX, and the build will fail."""
    renderer: Renderer = self.builder.static_math
    page = getattr(self.builder, "current_docname", "")
    parts = equations(node.astext()) if display else [node.astext()]
    try:
        return "".join(coloured(renderer.html(tex, display=display)) for tex in parts)
    except FormulaError as problem:
        logger.error("formula: %s", problem, location=node, type="math")
        renderer.failed.add(page)
        return f"<code>{self.encode(node.astext())}</code>"


def visit_inline(self: Any, node: nodes.math) -> None:
    """A formula within a line."""
    self.body.append(self.starttag(node, "span", "", CLASS="math"))
    self.body.append(render(self, node, display=False))
    self.body.append("</span>")
    raise nodes.SkipNode


def visit_display(self: Any, node: nodes.math_block) -> None:
    """A formula of its own, with its number at the right. Only what cannot break scrolls."""
    number = get_node_equation_number(self, node) if node["number"] else None
    # Furo puts a box around, with the formula's own ids.
    around = node.parent.get("ids") if node.parent is not None else None
    named: Any = {"ids": []} if around == node["ids"] else node
    self.body.append(self.starttag(named, "div", "", CLASS="math math-block"))
    name = f"Equation {number}" if number else "Equation"
    # The script of the page makes the box a stop for the Tab key only where it scrolls.
    self.body.append(f'<div class="math-scroll" role="group" aria-label="{name}">')
    self.body.append(render(self, node, display=True))
    self.body.append("</div>")
    if number:
        self.body.append(f'<span class="eqno">({number})')
        self.add_permalink_ref(node, "Permalink to this equation")
        self.body.append("</span>")
    self.body.append("</div>\n")
    raise nodes.SkipNode


def finish(app: Sphinx, exception: Exception | None) -> None:
    """End KaTeX, and fail if a formula did. Sphinx then begins the next build from nothing."""
    renderer: Renderer | None = getattr(app.builder, "static_math", None)
    if renderer is None:
        return
    renderer.close()
    if renderer.failed and exception is None:
        names = ", ".join(sorted(renderer.failed))
        raise ExtensionError(f"formulas that KaTeX cannot read in: {names}")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer; Sphinx takes it in place of its own because it is the only other."""
    app.add_html_math_renderer(
        "static_math", inline_renderers=(visit_inline, None), block_renderers=(visit_display, None)
    )
    app.connect("builder-inited", start)
    app.connect("build-finished", finish)
    # Formulas go through one process, so pages are written one after another.
    return {"version": "1.0", "parallel_read_safe": True, "parallel_write_safe": False}
