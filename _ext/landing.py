"""The two parts of the first page that lead to the chapters: `{formula_map}` and `{ladder}`.

`{formula_map}` draws the formula of attention with KaTeX's own letters; each of its parts is one
link, named by the words in its option: `:softmax: chapters/04_softmax how scores become weights`.
`{ladder}` lists the implementations from the top rung to the foot; a line is
`module | what it adds | first chapter, or first to last`. A module that is in the package is a link
to its first chapter; one that is not is shown as still to come.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, ClassVar, NamedTuple

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Part(NamedTuple):
    """A part of the formula: its TeX, and how it is said."""

    tex: str
    spoken: str


PARTS = {
    "inputs": Part("Q, K, V", "Q, K and V"),
    "softmax": Part(r"\operatorname{softmax}", "softmax"),
    "scores": Part(r"QK^\top", "Q K transposed"),
    "divisor": Part(r"\sqrt{d_k}", "the square root of d_k"),
    "values": Part("V", "V"),
}
NAME = "The formula of attention, each part a link to its chapter"
SPOKEN = (
    "Attention of Q, K and V is softmax of Q K transposed, divided by the square root of d_k, "
    "times V."
)


class box(nodes.General, nodes.Element):  # noqa: N801  (docutils names nodes so)
    """An element with a tag, classes and other attributes of HTML."""


class way(nodes.General, nodes.Element):  # noqa: N801
    """A link to a page: `page` is its name, `number` the chapter's, once it is known."""


def element(tag: str, classes: str, *children: nodes.Node, **attributes: str) -> box:
    """One HTML element."""
    made = box("", *children, tag=tag, html=attributes)
    made["classes"] += classes.split()
    return made


def words(text: str, classes: str) -> box:
    """Some words in a span."""
    return element("span", classes, nodes.Text(text))


def seen(tex: str) -> box:
    """A formula for the eye; those who listen are told in words."""
    return element("span", "formula-seen", nodes.math(tex, tex), **{"aria-hidden": "true"})


def sign(tex: str, classes: str = "") -> box:
    """A sign between the parts."""
    return element("span", f"formula-sign {classes}", seen(tex))


class FormulaMap(SphinxDirective):
    """Put the formula on the page."""

    option_spec: ClassVar[dict[str, Any]] = {name: directives.unchanged_required for name in PARTS}

    def part(self, name: str) -> way:
        """One part of the formula, with the words of its option."""
        page, _, label = self.options[name].strip().partition(" ")
        if page not in self.env.found_docs or not label:
            raise self.error(f"expected a page and words at :{name}:, came {self.options[name]!r}")
        tex, spoken = PARTS[name]
        link = way("", page=page, classes=["formula-part", f"formula-{name}"])
        about = element("span", "formula-label")
        about += words(f"{spoken}: ", "formula-said")
        about += words(label, "formula-words")
        about += words(", ", "formula-said")
        about += way_number()
        link += [about, seen(tex)] if name == "scores" else [seen(tex), about]
        return link

    def run(self) -> list[nodes.Node]:
        if missing := [name for name in PARTS if name not in self.options]:
            raise self.error(f"expected an option for each part, missing: {', '.join(missing)}")
        inputs, softmax, scores, divisor, values = (self.part(name) for name in PARTS)
        bar = element("span", "formula-bar")
        left = [
            sign(r"\operatorname{Attention}("),
            inputs,
            sign(")="),
        ]
        right = [
            softmax,
            sign(r"\Biggl(", "formula-high"),
            element("span", "formula-fraction", scores, bar, divisor),
            sign(r"\Biggr)", "formula-high"),
            values,
        ]
        return [
            element(
                "div",
                "formula-map",
                element("p", "formula-said", nodes.Text(SPOKEN)),
                element(
                    "div",
                    "formula-line",
                    element("span", "formula-side", *left),
                    element("span", "formula-side", *right),
                ),
                role="group",
                **{"aria-label": NAME},
            )
        ]


def way_number() -> box:
    """Where the chapter's number will stand."""
    return element("span", "formula-chapter", nodes.Text("chapter ?"))


class Ladder(SphinxDirective):
    """Put the ladder of implementations on the page."""

    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {}

    def rung(self, line: str) -> box:
        """One rung: a link if its module is there, else a promise."""
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 3:
            raise self.error(f"expected module | what it adds | chapters, came {line!r}")
        module, adds, numbers = fields
        there = find_spec(f"attnlib.{module}") is not None
        plural = "s" * (" to " in numbers)
        about: list[nodes.Node] = [
            element("code", "ladder-name", nodes.Text(module)),
            words(adds, "ladder-adds"),
        ]
        if not there:
            about.append(words(f"to come, chapter{plural} {numbers}", "ladder-chapter"))
            return element("li", "ladder-rung ladder-to-come", element("span", "", *about))
        about.append(words(f"chapter{plural} {numbers}", "ladder-chapter"))
        first = f"chapters/{int(numbers.split()[0]):02}_"
        pages = [name for name in self.env.found_docs if name.startswith(first)]
        if len(pages) != 1:
            raise self.error(f"expected one page {first}… for {module}, found {pages}")
        return element("li", "ladder-rung", way("", *about, page=pages[0]))

    def run(self) -> list[nodes.Node]:
        self.assert_has_content()
        rungs = [self.rung(line) for line in self.content if line.strip()]
        return [element("ol", "ladder", *rungs, reversed="reversed")]


def find_ways(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Set the address of each link and its chapter's number."""
    for link in doctree.findall(way):
        link["address"] = app.builder.get_relative_uri(docname, link["page"])
        numbers = app.env.toc_secnumbers.get(link["page"], {}).get("", ())
        for place in link.findall(box):
            if "formula-chapter" in place["classes"]:
                place.children = [nodes.Text(f"chapter {numbers[0]}")]


def opening(self: Any, node: nodes.Element, tag: str, attributes: dict[str, str]) -> str:
    """The opening tag of an element, in the translator's own manner and with no line's end."""
    if node["classes"]:
        attributes = {"CLASS": " ".join(node["classes"]), **attributes}
    start: str = self.starttag({"ids": [], "classes": []}, tag, "", **attributes)
    return start


def visit_box(self: Any, node: box) -> None:
    """Open the element."""
    attributes = {"CLASS": " ".join(node["classes"])} if node["classes"] else {}
    opening = self.starttag(
        {"ids": [], "classes": []}, node["tag"], "", **attributes, **node["html"]
    )
    self.body.append(opening)


def depart_box(self: Any, node: box) -> None:
    """Close the element."""
    self.body.append(f"</{node['tag']}>")


def visit_way(self: Any, node: way) -> None:
    """Open the link."""
    self.body.append(opening(self, node, "a", {"href": node["address"]}))


def depart_way(self: Any, node: way) -> None:
    """Close the link."""
    self.body.append("</a>")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(box, html=(visit_box, depart_box))
    app.add_node(way, html=(visit_way, depart_way))
    app.add_directive("formula_map", FormulaMap)
    app.add_directive("ladder", Ladder)
    app.connect("doctree-resolved", find_ways)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
