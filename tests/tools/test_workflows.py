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

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PINNED = (ROOT / "requirements.txt").read_text(encoding="utf-8")


def load(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_linter_finds_nothing() -> None:
    """It asks for pinned actions, few rights, and no text of others in a command."""
    linter = Path(sys.executable).with_name("zizmor")
    done = subprocess.run(
        [str(linter), "--offline", "--no-progress", "--quiet", ".github"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_action_has_one_version_everywhere() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in WORKFLOWS)
    used = set(re.findall(r"uses: (\S+)@(.*)", text))
    assert len(used) == len({action for action, _ in used})


def test_linux_begins_with_the_lowest_python() -> None:
    matrix = load(".github/workflows/checks.yml")["jobs"]["linux"]["strategy"]["matrix"]
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'requires-python = ">={matrix["python"][0]}"' in pyproject


def test_hooks_run_what_requirements_pin_on_files_that_there_are() -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    for hook in load(".pre-commit-config.yaml")["repos"][0]["hooks"]:
        assert any(re.search(hook.get("files", ""), name) for name in listed), hook["id"]
        program = hook["entry"].split()[0].removeprefix(".venv/bin/")
        if hook["language"] == "system" and program != "python":
            assert re.search(rf"(?m)^{program}==[\d.]+$", PINNED), program


def test_updates_come_for_everything_that_is_pinned() -> None:
    covered = {
        (update["package-ecosystem"], folder)
        for update in load(".github/dependabot.yml")["updates"]
        for folder in update.get("directories", [update.get("directory")])
    }
    packages = [*ROOT.glob("package.json"), *ROOT.glob("*/package.json")]
    packages += ROOT.glob("tools/*/package.json")
    folders = {"/" + str(path.parent.relative_to(ROOT)).removeprefix(".") for path in packages}
    npm = {("npm", folder) for folder in folders}
    assert covered == npm | {("pip", "/"), ("pip", "/tools"), ("github-actions", "/")}


@pytest.mark.parametrize("folder", [".", "tools/lighthouse"])
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
    for page in ("README.md", "reference/errata.md", "CONTRIBUTING.md"):
        forms = re.findall(r"/issues/new\?template=([\w.-]+)", (ROOT / page).read_text("utf-8"))
        assert "erratum.yml" in forms, page
        assert all((ROOT / ".github" / "ISSUE_TEMPLATE" / form).is_file() for form in forms)
