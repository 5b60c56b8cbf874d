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


def test_the_repository_moves_and_moves_back(tmp_path: Path) -> None:
    named = files("*.md", "chapters", "tools/move.sh", "_config.yml", "CITATION.cff")
    for name in named:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "--all"], cwd=tmp_path, check=True)

    def contents() -> dict[str, str]:
        return {name: (tmp_path / name).read_text(encoding="utf-8") for name in named}

    def move(address: str) -> int:
        command = ["sh", str(tmp_path / "tools" / "move.sh"), address]
        return subprocess.run(command, capture_output=True, check=False).returncode

    before, old = contents(), HERE.removeprefix("https://github.com/")
    assert move("some-school/attention.course") == 0
    after = contents()
    assert not [name for name, text in after.items() if old in text]
    config = yaml.safe_load(after["_config.yml"])
    assert config["repository"]["url"] == "https://github.com/some-school/attention.course"
    assert config["html"]["baseurl"] == "https://some-school.github.io/attention.course/"
    assert "\ncd attention.course\n" in after["README.md"]
    for wrong in ("", "some-school", "https://github.com/a/b", "a/b/c", "a/b c", "/b", "a/"):
        assert move(wrong) == 1, wrong
    assert move(old) == 0 and contents() == before


# -- the Makefile ---------------------------------------------------------------------------------


def make(*arguments: str) -> str:
    """Call make as a user does, though a make may have called us, and return what it prints."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", *arguments, f"PYTHON={sys.executable}"]
    return subprocess.run(command, cwd=ROOT, env=mine, stdout=-1, text=True, check=True).stdout


def test_help_lists_every_command() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", "")
    (phony,) = re.findall(r"(?m)^\.PHONY: (.*)", makefile)
    _, *often, rarely, _ = make().splitlines()
    rare = rarely.partition(": ")[2].split()
    assert sorted([*(line.split()[0] for line in often), *rare, "FORCE"]) == sorted(phony.split())
    contributing = (ROOT / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [name for name in rare if f"\nmake {name} " not in contributing] == []


def test_every_command_that_is_called_is_there() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    commands = set(re.findall(r"(?m)^([a-z-]+):", makefile))
    variables = {"", *re.findall(r"(?m)^([A-Z_]+) [?:]=", makefile)}
    for page in [".ci/run", *files("*.md", ".github/**.yml", "tools/*.py", "tools/*.sh")]:
        text = (ROOT / page).read_text(encoding="utf-8")
        calls = re.findall(r"(?:`|run: |^ *)make ([a-z][a-z-]*)(?: ([A-Z_]+)=)?", text, re.M)
        unknown = [c for c, variable in calls if c not in commands or variable not in variables]
        called = re.findall(r"python -m ((?:tools|benchmarks)\.\w+)", text)
        gone = [m for m in called if not (ROOT / f"{m.replace('.', '/')}.py").is_file()]
        assert unknown + gone == [], page


def test_every_file_that_the_book_reads_makes_it_out_of_date() -> None:
    pages = ROOT / "_build" / ".doctrees" / "environment.pickle"
    if not pages.is_file():
        pytest.skip("the book is not built: run `make book`")
    environment = pickle.loads(pages.read_bytes())
    read = {environment.doc2path(name) for name in environment.all_docs}
    read = read.union(*environment.dependencies.values())
    ours = {os.path.relpath(ROOT / name, ROOT) for name in read} & files()
    program = "oracle/peers/reproductions/pytorch/nan_query.py"
    assert {"index.md", "attnlib/masks.py", program} <= ours
    make("_build/.sources")
    sources = (ROOT / "_build" / ".sources").read_text(encoding="utf-8").splitlines()
    assert sorted(ours - set(sources)) == []
