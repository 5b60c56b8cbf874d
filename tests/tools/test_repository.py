"""What the project's files say of each other: the repository's address, the commands of make."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tools import ROOT

CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
HERE = CONFIG["repository"]["url"]


def files(*arguments: str) -> set[str]:
    """Return the project's files, by their paths from the root."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *arguments]
    done = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in done.stdout.splitlines() if (ROOT / name).is_file()}


# -- the address ----------------------------------------------------------------------------------


def test_every_place_names_the_same_repository() -> None:
    account, name = HERE.removeprefix("https://github.com/").split("/")
    assert CONFIG["html"]["baseurl"] == f"https://{account}.github.io/{name}/"
    for page in files("*.md", "*.ipynb", "*.yml", "*.cff", "*.toml"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert set(re.findall(rf"[/ ]([\w-]+)/{re.escape(name)}\b", text)) <= {account}, page


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a clone that holds the files that may name the repository."""
    for name in files("*.md", "chapters", "tools/move.sh", "_config.yml", "CITATION.cff"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "--all"], cwd=tmp_path, check=True)
    return tmp_path


def test_the_repository_moves_and_moves_back(copy: Path) -> None:
    def contents() -> dict[Path, str]:
        found = (path for path in copy.rglob("*") if path.is_file() and ".git" not in path.parts)
        return {path: path.read_text(encoding="utf-8") for path in found}

    def move(address: str) -> int:
        command = ["sh", str(copy / "tools" / "move.sh"), address]
        return subprocess.run(command, capture_output=True, check=False).returncode

    before = contents()
    old = HERE.removeprefix("https://github.com/")
    assert move("some-school/attention.course") == 0
    after = contents()
    assert not [path for path, text in after.items() if old in text]
    config = yaml.safe_load(after[copy / "_config.yml"])
    assert config["repository"]["url"] == "https://github.com/some-school/attention.course"
    assert config["html"]["baseurl"] == "https://some-school.github.io/attention.course/"
    assert "\ncd attention.course\n" in after[copy / "README.md"]
    for wrong in ("", "some-school", "https://github.com/a/b", "a/b/c", "a/b c", "/b", "a/"):
        assert move(wrong) == 1, wrong
    assert move(old) == 0
    assert contents() == before


# -- the Makefile ---------------------------------------------------------------------------------


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Call make as a user does, though a make may have called us."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    mine |= {"PYTHON": sys.executable}
    return subprocess.run(
        ["make", *arguments], cwd=ROOT, env=mine, capture_output=True, text=True, check=False
    )


def test_help_lists_every_command_on_one_screen() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", "")
    (phony,) = re.findall(r"(?m)^\.PHONY: (.*)", makefile)
    _, *often, rarely, _ = make().stdout.splitlines()
    rare = rarely.partition(": ")[2].split()
    listed = [line.split()[0] for line in often] + rare
    assert sorted([*listed, "FORCE"]) == sorted(phony.split())
    assert len(often) <= 12 and max(map(len, [*often, rarely])) <= 100
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [name for name in rare if f"\nmake {name} " not in contributing] == []


def test_every_command_that_is_called_is_there() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    commands = set(re.findall(r"(?m)^([a-z-]+):", makefile))
    variables = set(re.findall(r"(?m)^([A-Z_]+) [?:]=", makefile))
    pages = [".ci/run", *files("*.md", ".github/**.yml", "tools/*.py", "tools/*.sh")]
    for page in pages:
        text = (ROOT / page).read_text(encoding="utf-8")
        calls = re.findall(r"(?:`|run: |^ *)make ([a-z][a-z-]*)((?: [A-Z_]+=)?)", text, re.M)
        for command, variable in calls:
            assert command in commands, f"{page}: make {command}"
            assert variable.strip(" =") in {"", *variables}, f"{page}: {variable}"
        for module in re.findall(r"python -m ((?:tools|benchmarks)\.\w+)", text):
            assert (ROOT / module.replace(".", "/")).with_suffix(".py").is_file(), (
                f"{page}: {module}"
            )


def test_every_file_that_the_book_reads_makes_it_out_of_date() -> None:
    pages = ROOT / "_build" / ".doctrees" / "environment.pickle"
    if not pages.is_file():
        pytest.skip("the book is not built: run `make book`")
    environment = pickle.loads(pages.read_bytes())
    read = {environment.doc2path(name) for name in environment.all_docs}
    read = read.union(*environment.dependencies.values())
    ours = {os.path.relpath(ROOT / name, ROOT) for name in read} & files()
    assert {"index.md", "attnlib/masks.py", "tests/mistakes.txt"} <= ours
    assert make("_build/.sources").returncode == 0
    sources = (ROOT / "_build" / ".sources").read_text(encoding="utf-8").splitlines()
    assert sorted(ours - set(sources)) == []
