"""The whole book as one page, to be printed: what Sphinx's `singlehtml` builder makes here.

Sphinx puts the pages one after another and leaves three things to do: the same id may stand on two
pages, the parts lose their names, and what a page folds or moves cannot be unfolded on paper.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from docutils import nodes
from lean_pages import plain_text
from myst_nb.sphinx_ import HideCodeCellNode
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.builders.singlehtml import SingleFileHTMLBuilder
from sphinx.errors import ExtensionError

HERE = Path(__file__).parent
# Attributes of HTML that name an id of the same page, one or several.
NAMING = re.compile(r'(\s(?:id|for|aria-labelledby|aria-describedby|aria-controls)=")([^"]+)(")')
POINTING = re.compile(r'((?:href="|url\()#)([^")]+)')
# What stands beside a drawing only to move it, or to say all its values.
NOT_ON_PAPER = re.compile(
    r"<script\b.*?</script>|<details>.*?</details>|<div class=\"attn-controls\" hidden>.*?</div>",
    re.DOTALL,
)
# The files of _static that the one page refers to.
USED = ("book.css", "favicon.svg", "katex", "print.css", "pygments.css")


def prefix(page: str) -> str:
    """What makes a page's ids its own.

    >>> prefix("chapters/03_scaling")
    'chapters-03-scaling--'
    """
    return re.sub(r"[^a-z0-9]+", "-", page.lower()) + "--"


def html_of_page(html: str, page: str) -> str:
    """HTML with the page's own ids, and without what paper cannot do.

    >>> html_of_page('<svg aria-labelledby="a b"><g id="a"/><use href="#a"/></svg>', "x")
    '<svg aria-labelledby="x--a x--b"><g id="x--a"/><use href="#x--a"/></svg>'
    """
    own = prefix(page)
    html = NOT_ON_PAPER.sub("", html)
    html = NAMING.sub(
        lambda found: found[1] + " ".join(own + name for name in found[2].split()) + found[3], html
    )
    return POINTING.sub(lambda found: f"{found[1]}{own}{found[2]}", html)


def anchor(uri: str, page: str) -> str:
    """A link of `page` to a place on any page, as a link within the one page.

    >>> anchor("#document-a/b", "c"), anchor("#document-a/b#id1", "c"), anchor("#id1", "c")
    ('#document-a/b', '#a-b--id1', '#c--id1')
    >>> anchor("https://example.org/#id1", "c")
    'https://example.org/#id1'
    """
    if not uri.startswith("#"):
        return uri
    target, _, name = uri[1:].partition("#")
    if not target.startswith("document-"):
        return f"#{prefix(page)}{target}"
    return f"#{prefix(target.removeprefix('document-'))}{name}" if name else uri


def make_own(tree: nodes.Element, page: str) -> None:
    """Put the page's prefix before every id of a page, and into every link to one."""
    own = prefix(page)
    for node in tree.findall(nodes.Element):
        for several in ("ids", "backrefs"):
            if node.get(several):
                node[several] = [own + name for name in node[several]]
        if "refid" in node:
            node["refid"] = own + node["refid"]
        if isinstance(node, nodes.reference) and "refuri" in node:
            node["refuri"] = anchor(node["refuri"], page)
    for raw in list(tree.findall(nodes.raw)):
        raw.children = [nodes.Text(html_of_page(raw.astext(), page))]


def unfold(tree: nodes.Element) -> None:
    """Show what a page folds: a solution under its name; the set-up cell of each is left out."""
    for node in list(tree.findall(nodes.Element)):
        # A new list: not every parent of these nodes is known to them.
        node.children = [
            child
            for child in node.children
            if not (isinstance(child, nodes.container) and "tag_set-up" in child["classes"])
        ]
        for place, child in enumerate(node.children):
            if isinstance(child, HideCodeCellNode):
                name = nodes.paragraph("", child["prompt_show"], classes=["print-name"])
                shown = nodes.container("", name, *child.children, classes=["print-shown"])
                node.children[place] = shown


class OnePage(SingleFileHTMLBuilder):
    """Sphinx's builder of one page, with parts, with unique ids, and with nothing folded."""

    def parts(self) -> list[tuple[str, list[str]]]:
        """The name of each part and its pages, each before the pages below it."""

        def below(pages: list[str]) -> list[str]:
            within = self.env.toctree_includes
            return [one for page in pages for one in (page, *below(within.get(page, [])))]

        root = self.env.get_doctree(self.config.root_doc)
        return [
            (toctree.get("caption") or "", below([str(page) for page in toctree["includefiles"]]))
            for toctree in root.findall(addnodes.toctree)
        ]

    def page(self, name: str) -> addnodes.start_of_file:
        """One page, its title numbered as everywhere."""
        tree = self.env.get_doctree(name)
        for toctree in list(tree.findall(addnodes.toctree)):
            toctree.parent.remove(toctree)
        next(tree.findall(nodes.section))["classes"].append("print-page")
        title = next(tree.findall(nodes.title))
        if number := self.env.toc_secnumbers.get(name, {}).get("", ()):
            title["secnumber"] = number
        return addnodes.start_of_file("", *tree.children, docname=name)

    def assemble_doctree(self) -> nodes.document:
        """The pages in order, below the names of their parts, with every link resolved."""
        root = self.config.root_doc
        tree = self.env.get_doctree(root)
        tree.children = []
        tree += self.page(root)
        for number, (name, pages) in enumerate(self.parts(), start=1):
            part = nodes.section("", nodes.title("", name), ids=[f"part-{number}"])
            part["classes"].append("print-part")
            part += [self.page(page) for page in pages]
            tree += part
        tree["docname"] = root
        self.env.resolve_references(tree, root, self)
        for start in tree.findall(addnodes.start_of_file):
            make_own(start, start["docname"])
        unfold(tree)
        return tree

    def assemble_toc_secnumbers(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """None beside those that the titles have already."""
        return {self.config.root_doc: {}}

    def get_doc_context(self, docname: str, body: str, metatags: str) -> dict[str, Any]:
        """The page's words, and its contents for the template."""
        contents = []
        for number, (name, pages) in enumerate(self.parts(), start=1):
            entries = []
            for page in pages:
                found = self.numbers.get(page, ())
                dotted = "".join(f"{part}. " for part in found[:1])
                title = dotted + plain_text(self.env.titles[page])
                entries.append((self.get_target_uri(page), title))
            contents.append((f"#part-{number}", name, entries))
        context = super().get_doc_context(docname, body, metatags)
        return context | {
            "print_contents": contents,
            "print_author": self.config.author,
            "print_address": self.config.html_baseurl,
        }

    def prepare_writing(self, docnames: set[str]) -> None:
        """Keep the numbers of the chapters, which Sphinx replaces before it writes."""
        super().prepare_writing(docnames)
        self.numbers = {
            page: numbers.get("", ()) for page, numbers in self.env.toc_secnumbers.items()
        }


def problems(html: str) -> list[str]:
    """Ids that stand twice on a page, and links within it that lead nowhere.

    >>> problems('<p id="a"></p><i id="a"></i><a href="#a">1</a><a href="#b">2</a>')
    ['id a stands 2 times', 'no id b']
    """
    ids = Counter(re.findall(r'<[^<>]*\sid="([^"]+)"', html))
    links = set(re.findall(r'<[^<>]*\shref="#([^"]+)"', html))
    twice = [f"id {name} stands {times} times" for name, times in ids.items() if times > 1]
    return twice + [f"no id {name}" for name in sorted(links - {*ids})]


def choose_template(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> str | None:
    """The one page has a template of its own."""
    return "print.html" if app.builder.name == "singlehtml" else None


def finish(app: Sphinx, exception: Exception | None) -> None:
    """Leave the files that the one page uses, and see that its links lead somewhere."""
    if exception is not None or app.builder.name != "singlehtml":
        return
    folder = Path(app.outdir)
    (folder / "objects.inv").unlink()
    shutil.copyfile(HERE / "templates" / "print.css", folder / "_static" / "print.css")
    for path in (folder / "_static").iterdir():
        if path.name not in USED:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    found = problems((folder / "index.html").read_text(encoding="utf-8"))
    if found:
        raise ExtensionError(f"the one page for print: {'; '.join(found)}")


def setup(app: Sphinx) -> dict[str, bool]:
    """Take the place of Sphinx's builder of one page."""
    app.add_builder(OnePage, override=True)
    app.connect("html-page-context", choose_template, priority=990)
    # After lean_pages, which removes from _static by name.
    app.connect("build-finished", finish, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
