"""Rehearse each chapter as a reader meets it on Colab: `make colab`.

A chapter lies alone in an empty folder. Its environment holds NumPy, torch, matplotlib and a
kernel, and no `attnlib`: its own set-up cell installs that, from the address that it names, which
git is told to take from a copy of this working tree. The chapter then runs from top to bottom, and
has to show what is stored in it, wherever nbval compares. Of a drawing by matplotlib that is
its words: another version places its lines and its ticks a little otherwise.

    colab    what Colab publishes as its own versions (tools/colab.txt)
    numpy    the same without torch, for the chapters that import no torch
    lowest   the lowest versions that pyproject.toml allows
    latest   the newest versions there are

torch has the version of requirements.txt in all of them, unless --torch-varies is given.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools import notebooks
from tools.set_repository import ROOT, repository_address

CACHE = ROOT / "_build" / "colab"
NAMES = ("colab", "numpy", "lowest", "latest")
# Of these a chapter may ask for anything; the set-up cell may bring the last two, and no more.
SHOWN = ("numpy", "torch", "matplotlib", "ipykernel", "ipython")
BROUGHT = ("attnlib", "triton")
NOT_COMPARED = {"nbval-ignore-output", "nbval-skip", notebooks.SETUP_TAG}
PICTURES = {"image/png", "image/jpeg"}
DRAWING = re.compile(r"<svg\b.*?</svg>", re.S)
MATPLOTLIB = "*{stroke-linejoin: round; stroke-linecap: butt}"  # the style it puts into each
STYLE = re.compile(r"<style.*?</style>", re.S)
TORCH = re.compile(
    r"^\s*(?:import|from)\s+(?:torch|triton)\b|attnlib\.(?:torch|triton)_|\btorch_", re.M
)


class RehearsalError(Exception):
    """A chapter did not do in the empty folder what it does in the book."""


# -- what is installed ----------------------------------------------------------------------------


def pinned(file: Path, package: str) -> str:
    """Return the line `package==version` of a list of requirements.

    Raises:
        ValueError: the list has none.
    """
    line = re.search(rf"(?m)^{re.escape(package)}==[^\s;#]+", file.read_text(encoding="utf-8"))
    if line is None:
        raise ValueError(f"expected {package}== in {file.name}")
    return line[0]


def floors(pyproject: Path = ROOT / "pyproject.toml") -> dict[str, str]:
    """Return the lowest version of each package that pyproject.toml allows, `name==version`."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    lines = [
        line
        for group in (project["dependencies"], *project["optional-dependencies"].values())
        for line in group
    ]
    found = (re.match(r"([\w-]+)>=([\d.]+)", line) for line in lines)
    return {match[1]: f"{match[1]}=={match[2]}" for match in found if match}


def requirements(name: str, torch_varies: bool = False) -> list[str]:
    """Return what pip installs into the environment of this name."""
    colab = ROOT / "tools" / "colab.txt"
    kernel = pinned(ROOT / "requirements.txt", "ipykernel")
    if name in ("colab", "numpy"):
        lines = re.findall(r"(?m)^[\w-]+==\S+", colab.read_text(encoding="utf-8"))
    elif name == "lowest":
        lines = [*(floors()[package] for package in ("numpy", "torch", "matplotlib")), kernel]
    else:
        lines = ["numpy", "torch", "matplotlib", "ipykernel"]
    rest = [line for line in lines if not re.match(r"torch\b", line)]
    if name == "numpy":
        return rest
    torch = [line for line in lines if line not in rest]
    return [*rest, *(torch if torch_varies else [pinned(ROOT / "requirements.txt", "torch")])]


def make_environment(name: str, wanted: list[str]) -> Path:
    """Return the Python of an environment that holds these, made anew where they have changed.

    Raises:
        RehearsalError: they cannot be installed together.
    """
    folder = CACHE / name
    python, stamp = folder / "bin" / "python", folder / "requirements.txt"
    text = "\n".join(wanted) + "\n"
    complete = stamp.exists() and stamp.read_text(encoding="utf-8") == text
    steps = []
    if not complete:
        steps += [[sys.executable, "-m", "venv", "--clear", str(folder)]]
    if not complete or name == "latest":
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--upgrade"]
        steps += [[*pip, *wanted]]
    for step in steps:
        said = ["sh", str(ROOT / "tools" / "step.sh"), f"making the environment {name!r}"]
        if subprocess.run([*said, *step], check=False).returncode:
            raise RehearsalError(f"it could not be made with {', '.join(wanted)}")
        stamp.write_text(text, encoding="utf-8")
    return python


def installed(python: Path, variables: dict[str, str]) -> dict[str, str]:
    """Return the version of every package that this Python can import."""
    code = (
        "import importlib.metadata as m, json;"
        "print(json.dumps({d.name.lower(): d.version for d in m.distributions()}))"
    )
    done = subprocess.run(
        [str(python), "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=python.parent,
        env=variables,
    )
    versions: dict[str, str] = json.loads(done.stdout)
    return versions


def make_repository() -> Path:
    """Return a git repository whose one commit is this working tree, but for what git ignores."""
    folder = CACHE / "repository"
    shutil.rmtree(folder, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    author = ["-c", "user.name=rehearsal", "-c", "user.email=rehearsal@localhost"]
    for arguments in (
        ["init", "--quiet"],
        ["add", "--all"],
        ["commit", "--quiet", "-m", "rehearsal"],
    ):
        subprocess.run(
            ["git", *author, *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL
        )
    return folder


def surroundings(python: Path, repository: Path) -> dict[str, str]:
    """Return a reader's environment variables, with this Python and our copy for GitHub."""
    config = CACHE / "gitconfig"
    config.write_text(
        f'[url "{repository.as_uri()}"]\n\tinsteadOf = {repository_address()}\n'
        "[safe]\n\tdirectory = *\n",
        encoding="utf-8",
    )
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "VIRTUAL_ENV", "IPYTHON", "JUPYTER", "GIT_", "MAKE"))
    }
    return own | {
        "PATH": f"{python.parent}{os.pathsep}{own['PATH']}",
        "GIT_CONFIG_GLOBAL": str(config),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "IPYTHONDIR": str(CACHE / "ipython"),
        "PYTHONNOUSERSITE": "1",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",  # the debugger's word on a Python from 3.11 on
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        # As the outputs were stored: the order of a sum does not hang on the number of cores.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


# -- one chapter ----------------------------------------------------------------------------------


def needs_torch(notebook: notebooks.Notebook) -> bool:
    """Return whether a cell of the notebook imports torch, or what is made of it."""
    return any(
        TORCH.search(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"
    )


def first_difference(stored: notebooks.Notebook, shown: notebooks.Notebook) -> str | None:
    """Return how the first cell differs that shows something else than is stored, or None."""
    pairs = zip(
        notebooks.normalise(stored)["cells"], notebooks.normalise(shown)["cells"], strict=True
    )
    for number, (before, after) in enumerate(pairs, start=1):
        if NOT_COMPARED & set(before["metadata"].get("tags", [])):
            continue
        texts = [_text(cell.get("outputs", [])) for cell in (before, after)]
        if texts[0] != texts[1]:
            lines = difflib.unified_diff(
                texts[0].splitlines(), texts[1].splitlines(), "stored", "shown", lineterm="", n=1
            )
            return "\n".join([f"cell {number}:", *(line[:200] for line in list(lines)[:30])])
    return None


def _text(outputs: list[dict[str, Any]]) -> str:
    lines = []
    for output in outputs:
        for key in ("name", "text", "ename", "evalue"):
            lines += [f"{key}: {output[key]}"] if key in output else []
        data = output.get("data", {})
        lines += [f"{kind}: {_words(data[kind])}" for kind in sorted(set(data) - PICTURES)]
    return "\n".join(lines)


def _words(shown: str) -> str:
    """Return what is shown, with the words of each drawing by matplotlib in its place."""

    def words(drawing: re.Match[str]) -> str:
        if MATPLOTLIB not in drawing[0]:
            return drawing[0]
        said = re.findall(
            r'aria-label="([^"]*)"|>([^<>]*[^\W\d_][^<>]*)<', STYLE.sub("", drawing[0])
        )
        return "\n".join(label or words for label, words in said)

    return DRAWING.sub(words, shown)


@dataclass
class Stage:
    """One environment, ready, with the copy of the repository that its set-up cells install."""

    python: Path
    variables: dict[str, str]
    held: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        """Note what the environment holds before any chapter."""
        self.leave_out(*BROUGHT)
        self.held = installed(self.python, self.variables)

    def rehearse(self, chapter: Path) -> None:
        """Run the chapter alone in an empty folder.

        Raises:
            RehearsalError: a cell raised or showed something else than is stored, or the set-up
                cell changed more than it says.
        """
        stored = notebooks.read(chapter)
        self.leave_out(*BROUGHT)
        if brought := set(BROUGHT) & set(installed(self.python, self.variables)):
            raise RehearsalError(f"{', '.join(sorted(brought))} could not be removed beforehand")
        with tempfile.TemporaryDirectory(prefix="colab-") as name:
            folder = Path(name)
            shutil.copyfile(chapter, folder / chapter.name)
            kernel = self.run(
                "from ipykernel.kernelspec import *; import json; "
                "print(json.dumps(get_kernel_dict()))"
            )
            try:
                shown = notebooks.executed(stored, folder, json.loads(kernel), self.variables)
            except notebooks.NotebookError as error:
                raise RehearsalError(str(error)) from None
        now = installed(self.python, self.variables)
        changed = {
            package for package in now | self.held if now.get(package) != self.held.get(package)
        }
        if "attnlib" not in changed or not changed <= set(BROUGHT):
            raise RehearsalError(f"the set-up cell changed {sorted(changed)}, not attnlib alone")
        if difference := first_difference(stored, shown):
            raise RehearsalError(difference)

    def leave_out(self, *packages: str) -> None:
        """Remove these packages where they are installed."""
        pip = [str(self.python), "-m", "pip", "uninstall", "--quiet", "--yes", *packages]
        subprocess.run(pip, check=True, env=self.variables, stderr=subprocess.DEVNULL)

    def run(self, code: str) -> str:
        """Return what the environment's Python prints for this code."""
        return subprocess.run(
            [str(self.python), "-c", code],
            check=True,
            capture_output=True,
            text=True,
            env=self.variables,
            cwd=self.python.parent,
        ).stdout


# -- all of them ----------------------------------------------------------------------------------


def rehearse_all(name: str, chapters: list[Path], torch_varies: bool) -> list[str]:
    """Rehearse the chapters in one environment, say how each went, and return those that failed."""
    started = time.monotonic()
    print(f"{name}: making the environment", flush=True)
    try:
        python = make_environment(name, requirements(name, torch_varies))
    except RehearsalError as error:
        print(f"{name}: FAILED\n{error}", flush=True)
        return [f"{name}, its environment"]
    stage = Stage(python, surroundings(python, CACHE / "repository"))
    held = ", ".join(f"{package} {stage.held.get(package, 'none')}" for package in SHOWN)
    print(
        f"{name}: Python {stage.run('import platform as p; print(p.python_version())').strip()}, "
        f"{held}; {time.monotonic() - started:.0f} s",
        flush=True,
    )
    failed = []
    for chapter in chapters:
        if name == "numpy" and needs_torch(notebooks.read(chapter)):
            continue
        began = time.monotonic()
        try:
            stage.rehearse(chapter)
            verdict = "as stored"
        except RehearsalError as error:
            failed.append(f"{name}, {chapter.name}")
            verdict = f"FAILED\n{error}"
        print(f"  {chapter.stem:24} {time.monotonic() - began:4.0f} s  {verdict}", flush=True)
    print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)
    return failed


def main(arguments: list[str] | None = None) -> int:
    """Rehearse every chapter in every environment, or those that are named."""
    parser = argparse.ArgumentParser(prog="python -m tools.rehearse", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("chapters", nargs="*", type=Path)
    parser.add_argument("--environment", action="append", choices=NAMES, help="may be repeated")
    parser.add_argument(
        "--torch-varies", action="store_true", help="Colab's, the lowest and the newest torch"
    )
    chosen = parser.parse_args(arguments)
    found = [*ROOT.glob("chapters/*.ipynb"), *ROOT.glob("reference/*.ipynb")]
    chapters = chosen.chapters or sorted(found)
    CACHE.mkdir(parents=True, exist_ok=True)
    make_repository()
    failed: list[str] = []
    for name in chosen.environment or NAMES:
        failed += rehearse_all(name, chapters, chosen.torch_varies)
    if failed:
        print("Failed: " + "; ".join(failed), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
