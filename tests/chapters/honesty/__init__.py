"""What a notebook must keep so that its reader can rely on it.

A rule is a function from a notebook, as `tools.notebooks.read` gives it, to its faults, one line
each. `execution` has the rules on what ran and what was stored, `content` those on what is read.
"""

from __future__ import annotations

from honesty import content, execution
from honesty.cells import Rule

PAGE_RULES: dict[str, Rule] = {rule.__name__: rule for rule in (*execution.RULES, *content.RULES)}
CHAPTER_RULES: dict[str, Rule] = {
    rule.__name__: rule for rule in (*execution.CHAPTER_RULES, *content.CHAPTER_RULES)
}
RULES = PAGE_RULES | CHAPTER_RULES

__all__ = ["CHAPTER_RULES", "PAGE_RULES", "RULES", "content", "execution"]
