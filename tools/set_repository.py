"""Set the repository's address in every place that names it: `make repository URL=…`.

It needs Python alone, so that it can be the first thing done in a clone.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ADDRESS = re.compile(r"https://github\.com/([a-z0-9][\w-]*)/([\w.-]+?)(?:\.git)?/?", re.A | re.I)

PLACES = (
    ".github/ISSUE_TEMPLATE/*.yml",
    "_config.yml",
    "CHANGELOG.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "README.md",
    "chapters/*.ipynb",
    "index.md",
    "pyproject.toml",
    "reference/*.ipynb",
    "reference/*.md",
)


def repository_address(root: Path = ROOT) -> str:
    """Return the present address, as `repository: url:` of `_config.yml` has it.

    Raises:
        ValueError: it is not there.
    """
    config = (root / "_config.yml").read_text(encoding="utf-8")
    found = re.search(r"(?m)^repository:\n(?:[ #].*\n)*?  url: *(\S+)", config)
    if found is None:
        raise ValueError("expected `repository:` with `url:` in _config.yml")
    return found[1]


def parse(address: str) -> tuple[str, str]:
    """Return account and repository of an address such as https://github.com/ACCOUNT/REPO.

    Raises:
        ValueError: the address has another form.
    """
    match = ADDRESS.fullmatch(address.strip())
    if match is None or not match[2].strip("."):
        raise ValueError(
            f"expected an address of the form https://github.com/ACCOUNT/REPO, got {address!r}"
        )
    return match[1], match[2]


def replace(text: str, old: tuple[str, str], new: tuple[str, str]) -> str:
    """Return the text with the new repository in place of the old one.

    That is in links to the repository, to its notebooks on Colab and to its pages, and in the
    command that enters the folder of a clone.
    """
    account, name = map(re.escape, old)
    # `name-other` and `name.other` are other repositories; `name.git` and a full stop are not.
    end = r"(?!(?:\.(?!git\b))?[\w-])"
    slug = rf"((?:github\.com|colab\.research\.google\.com/github)/){account}/{name}{end}"
    text = re.sub(slug, lambda found: f"{found[1]}{new[0]}/{new[1]}", text)
    pages = rf"https://{account}\.github\.io/{name}{end}"
    text = re.sub(pages, lambda _: f"https://{new[0]}.github.io/{new[1]}", text)
    return re.sub(rf"(?m)^cd {name}$", lambda _: f"cd {new[1]}", text)


def places(root: Path) -> list[Path]:
    """Return the files that may name the repository."""
    return sorted(path for place in PLACES for path in root.glob(place))


def set_repository(address: str, root: Path = ROOT) -> list[Path]:
    """Put the address in every place and return the files that changed."""
    old, new = parse(repository_address(root)), parse(address)
    changed = []
    for path in places(root):
        text = path.read_text(encoding="utf-8")
        if (replaced := replace(text, old, new)) != text:
            path.write_text(replaced, encoding="utf-8", newline="\n")
            changed.append(path)
    return changed


def main(arguments: list[str]) -> int:
    """Set the address given as the one argument and say what changed."""
    try:
        changed = set_repository(arguments[0] if len(arguments) == 1 else "")
    except ValueError as error:
        print(f"Nothing changed: {error}", file=sys.stderr)
        return 1
    for path in changed:
        print(f"Changed {path.relative_to(ROOT)}")
    print(f"The repository's address is {repository_address()} ({len(changed)} files changed).")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
