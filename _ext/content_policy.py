"""A content-security policy in the head of every page: what the page may load, and nothing else.

The site needs no other host, and the policy makes the browser hold it to that: whatever asks for
one is refused. Scripts and stylesheets are files of the site; the one script that has to run before
the first paint stands in the page, named by its digest. Only the style attributes of formulas and
drawings are free (`style-src-attr`): they are thousands, and can ask for nothing that `img-src` and
`font-src` do not allow.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

FIRST_PAINT = Path(__file__).parent / "first_paint.js"


def digest(code: str) -> str:
    """The name of an inline script in a policy.

    >>> digest("")
    "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
    """
    hashed = hashlib.sha256(code.encode()).digest()
    return f"'sha256-{base64.b64encode(hashed).decode()}'"


def policy(*scripts: str) -> str:
    """The policy of a page with these inline scripts.

    >>> policy().split("; ")[:2]
    ["default-src 'none'", "script-src 'self'"]
    """
    rules = {
        "default-src": ["'none'"],
        "script-src": ["'self'", *map(digest, scripts)],
        "style-src": ["'self'"],
        "style-src-attr": ["'unsafe-inline'"],
        "img-src": ["'self'", "data:"],  # the icons are data in the stylesheet
        "font-src": ["'self'"],
        "connect-src": ["'self'"],  # the page of results quotes from the pages it found
        "form-action": ["'self'"],
        "base-uri": ["'none'"],
    }
    return "; ".join(f"{name} {' '.join(values)}" for name, values in rules.items())


def add_policy(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any
) -> None:
    """Put the policy before everything that it is about; the template places the script."""
    script = FIRST_PAINT.read_text(encoding="utf-8")
    context["first_paint"] = script
    meta = f'\n    <meta http-equiv="Content-Security-Policy" content="{policy(script)}">'
    context["metatags"] = meta + context.get("metatags", "")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the hook, after all that write metatags."""
    app.connect("html-page-context", add_policy, priority=990)
    return {"version": "1.0", "parallel_read_safe": True, "parallel_write_safe": True}
