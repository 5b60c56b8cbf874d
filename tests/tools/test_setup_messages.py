"""What a newcomer reads where the set-up fails: the tool's own reason, and one line on what to do.

Nothing is installed here. One small script stands in for Python, pip, npm and Jupyter Book, in a
copy of the files that the Makefile needs; it fails at the step that a test names, with its message.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tools import ROOT

COPIED = (
    "Makefile", "tools/step.sh", "tools/constraints.txt", "requirements.txt", "tools/model.txt",
    "pyproject.toml", "oracle/pyproject.toml",
    "tools/node/package.json", "tools/node/package-lock.json", "tools/node/.npmrc",
)
FOLDERS = (
    "attnbook", "attnlib", "benchmarks/results", "chapters", "oracle/attncheck",
    "oracle/peers/reproductions", "reference", "tests", "tools/node", "tools/site",
)
EMPTY = ("_config.yml", "_toc.yml", "index.md", "tests/mistakes.txt")

STAND_IN = """#!/bin/sh
called="${0##*/} $*"
case $called in *"$FAIL_AT"*) cat message >&2; exit 7 ;; esac
case $called in
  *" -m venv "*)
    for folder; do :; done
    mkdir -p "$folder/bin"
    for tool in python npm jupyter-book; do cp "$0" "$folder/bin/$tool"; done ;;
  *"npm ci"*) mkdir -p tools/node/node_modules ;;
esac
case $called in *" -m "* | npm* | jupyter*) echo "much that nobody reads"; echo "more" >&2 ;; esac
"""

CERTIFICATE = "export PIP_CERT=FILE NODE_EXTRA_CA_CERTS=FILE"
NETWORK = "export HTTPS_PROXY="
NO_SPACE = "the disk is full"
MISSING = "the index has no such version"
OTHER = "This step alone is: "

# What stands above a reason, or below it, and gives none.
TRACE = '  File "somewhere.py", line 1\n' * 40
RETRY = "WARNING: Retrying (Retry(total={})) after connection broken by 'NewConnectionError({})'\n"
NPM = "npm error code EUSAGE\nnpm error package.json and lock must be in sync.\nnpm error Usage:\n"
# What a tool says, what of it is shown, and the advice.
MESSAGES = [
    ("npm error code X\nnpm error reason: self-signed certificate", "code X", CERTIFICATE),
    ("Could not fetch: problem confirming the ssl certificate", "confirming", CERTIFICATE),
    ("npm ERR! reason: connect ECONNREFUSED\nnpm ERR!     at ClientRequest", "REFUSED", NETWORK),
    ("npm error code ENOTFOUND", "ENOTFOUND", NETWORK),
    (RETRY.format(1, "a") + RETRY.format(0, "b"), "NewConnectionError(b)", NETWORK),
    (RETRY.format(1, "a") + "ERROR: versions conflict", "versions conflict", OTHER),
    ("ERROR: Ignored: 2.4.6\nERROR: No matching distribution found", "Ignored", MISSING),
    ("ERROR: [Errno 28] No space left on device\n" + TRACE, "No space left on device", NO_SPACE),
    ("error: the moon is in the wrong house\n" + TRACE, "the moon is", OTHER),
    ("FileNotFoundError: [Errno 2] index.md", "index.md", OTHER),  # not npm's ENOTFOUND
    (NPM + "npm error [--option]\n" * 40, "must be in sync", OTHER),
    ("", "", OTHER),
]


def step(shell: str, *options: str, message: str = "") -> subprocess.CompletedProcess[str]:
    """Return what step.sh makes of a command of the shell, which may print the message."""
    command = ["sh", "tools/step.sh", *options, "trying", "sh", "-c", shell]
    own = os.environ | {"MESSAGE": message}
    return subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=False)


def test_a_step_that_succeeds_is_quiet() -> None:
    done = step("echo much; echo more >&2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("message", "reason", "advice"), MESSAGES)
def test_the_reason_is_shown_with_one_line_of_advice(
    message: str, reason: str, advice: str
) -> None:
    done = step('printf %s "$MESSAGE" >&2; exit 7', message=message)
    *shown, last = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (7, "")
    assert last.startswith("Stopped while trying: ") and advice in last
    assert sum(known in last for known in (CERTIFICATE, NETWORK, NO_SPACE, MISSING, OTHER)) == 1
    assert reason in "\n".join(shown) and len(shown) <= 16
    # Frames of a trace, tries before the last one and lists of options give no reason.
    assert not [line for line in shown if "    at " in line or "total=1" in line or "--o" in line]


def test_every_warning_of_the_book_is_shown() -> None:
    done = step("for n in 1 2 3; do echo a$n; done; seq 100; exit 1", "--all")
    assert done.stderr.splitlines()[:-1] == ["a1", "a2", "a3", *map(str, range(1, 101))]


# -- the Makefile ---------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder with what the Makefile needs for the set-up, and the stand-in."""
    for name in FOLDERS:
        (tmp_path / name).mkdir(parents=True)
    for name in COPIED:
        shutil.copyfile(ROOT / name, tmp_path / name)
    for name in EMPTY:
        (tmp_path / name).touch()
    (tmp_path / "message").write_text("certificate verify failed", encoding="utf-8")
    (tmp_path / "stand-in").write_text(STAND_IN, encoding="utf-8")
    (tmp_path / "stand-in").chmod(0o755)
    return tmp_path


def make(project: Path, target: str, fail_at: str = "nowhere") -> tuple[int, str, str]:
    """Return make's status, and what it prints to stdout and to stderr."""
    # What a make around this one was told, such as `make latest` by REQUIREMENTS, is not for it.
    others = {"REQUIREMENTS"} | {name for name in os.environ if name.startswith("MAKE")}
    own = {name: value for name, value in os.environ.items() if name not in others}
    done = subprocess.run(
        ["make", target, f"PYTHON={project / 'stand-in'}"], cwd=project,
        env=own | {"FAIL_AT": fail_at}, capture_output=True, text=True, timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


# The call that fails, the words for the step, and the stamp that it may not leave.
STEPS = [
    (" -m venv ", "making the environment", ".venv/.folder"),
    (" -m ensurepip ", "putting pip into the environment", ".venv/.folder"),
    ("pip install --no-compile -r", "installing the pinned packages", ".venv/.packages"),
    ("--editable .", "installing attnlib and attncheck", ".venv/.attnlib"),
    ("npm ci", "installing what the book takes from npm", "tools/node/node_modules/.complete"),
    ("jupyter-book build", "building the book", "_build/.complete"),
]


def test_a_step_that_fails_says_why_and_is_done_again(project: Path) -> None:
    for call, words, stamp in STEPS:
        status, _, err = make(project, "book", call)
        assert status and not (project / stamp).exists()
        assert f"certificate verify failed\nStopped while {words}: " in err and CERTIFICATE in err
    status, out, err = make(project, "book")
    assert (status, err) == (0, "") and "nobody reads" not in out
    assert all((project / stamp).exists() for _, _, stamp in STEPS)


def test_without_the_model_of_chapter_19_the_tests_go_on_and_say_so(project: Path) -> None:
    status, out, err = make(project, ".venv/.model", "--require-hashes")
    assert status == 0 and out.endswith("The tests go on without the model, and skip chapter 19\n")
    assert "Stopped while installing the model: " in err
    assert not (project / ".venv/.model").exists()
    assert make(project, ".venv/.model")[0] == 0
    assert (project / ".venv/.model").exists()


@pytest.mark.parametrize(
    ("python", "message"),
    [
        ("", "3.11 or newer; got no such command"),
        ('[ "$1" = --version ] && echo Python 3.10.2', "3.11 or newer; got Python 3.10.2."),
        ('case "$*" in *venv*) exit 1 ;; esac', "must have its modules venv and ensurepip"),
    ],
)
def test_a_python_that_will_not_do_is_one_line(project: Path, python: str, message: str) -> None:
    (project / "stand-in").write_text(f"#!/bin/sh\n{python}\n", encoding="utf-8")
    if not python:
        (project / "stand-in").unlink()
    status, out, err = make(project, "book")
    assert (status, out) == (2, "") and not (project / ".venv").exists()
    first, *others = err.splitlines()
    assert first.startswith("Cannot start: ") and message in first
    assert all(line.startswith("make: ***") for line in others)
