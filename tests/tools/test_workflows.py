"""What a reader of the workflows, hooks and updates cannot see: that they fit the project."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools import ROOT


def load(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def run(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_linter_finds_nothing() -> None:
    """It asks for pinned actions, few rights, and no text of others in a command."""
    linter = str(Path(sys.executable).with_name("zizmor"))
    run(linter, "--offline", "--no-progress", "--quiet", ".github")


def test_linux_begins_with_the_lowest_python() -> None:
    matrix = load(".github/workflows/checks.yml")["jobs"]["linux"]["strategy"]["matrix"]
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'requires-python = ">={matrix["python"][0]}"' in pyproject


def test_updates_come_for_everything_that_is_pinned() -> None:
    covered = {
        (update["package-ecosystem"], folder)
        for update in load(".github/dependabot.yml")["updates"]
        for folder in update.get("directories", [update.get("directory")])
    }
    packages = [name for name in run("git", "ls-files").splitlines() if "package.json" in name]
    npm = {("npm", f"/{Path(name).parent}") for name in packages}
    assert covered == npm | {("pip", "/"), ("pip", "/tools"), ("github-actions", "/")}


@pytest.mark.parametrize("folder", ["tools/lighthouse", "tools/node"])
def test_what_asks_npm_for_the_newest_version_gets_the_locked_one(folder: str) -> None:
    """Without an override, npm ci refuses a lock as soon as there is a newer version."""
    package, lock = (
        json.loads((ROOT / folder / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("package", "package-lock")
    )
    for held in lock["packages"].values():
        for name, version in held.get("dependencies", {}).items():
            if version == "latest":
                locked = lock["packages"][f"node_modules/{name}"]["version"]
                assert package.get("overrides", {}).get(name) == locked, name


def test_readers_are_led_to_forms_that_there_are() -> None:
    for page in ("README.md", "reference/errata.md", ".github/CONTRIBUTING.md"):
        forms = re.findall(r"/issues/new\?template=([\w.-]+)", (ROOT / page).read_text("utf-8"))
        assert "erratum.yml" in forms, page
        assert all((ROOT / ".github" / "ISSUE_TEMPLATE" / form).is_file() for form in forms)


def test_what_runs_here_runs_there() -> None:
    """`.ci/run` and the workflow of every change call the same targets, and weekly has them all."""
    ours = re.findall(r"(?m)^make (\w+)$", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    assert ours == ["book", "tenth", "test"]
    checks, weekly = (
        load(f".github/workflows/{name}.yml")["jobs"] for name in ("checks", "weekly")
    )
    steps = [step.get("run", "") for step in checks["linux"]["steps"]]
    assert [step for step in steps if step.startswith("make ")] == [f"make {one}" for one in ours]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    [parts] = re.findall(r"(?m)^weekly: ([a-z ]+?) *#", makefile)
    runs = {
        step.get("run", "").split(" COLAB_ARGS")[0]
        for job in weekly.values()
        for step in job["steps"]
    }
    assert {f"make {part}" for part in parts.split()} <= runs


def test_colab_s_python_is_the_first() -> None:
    said = (ROOT / "tools" / "colab.txt").read_text(encoding="utf-8")
    [major, minor] = map(int, re.findall(r"\(Python (\d+)\.(\d+)\)", said)[0])
    for name in ("checks", "weekly"):
        matrix = load(f".github/workflows/{name}.yml")["jobs"]["colab"]["strategy"]["matrix"]
        assert matrix["python"] == [f"{major}.{minor}", f"{major}.{minor - 1}"]
