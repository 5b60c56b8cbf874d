"""What a newcomer reads where the set-up fails: the tool's own reason, and one line on what to do.

Nothing is installed here. One small script stands in for Python, pip, npm and Jupyter Book, in a
copy of the files that the Makefile needs; it fails at the step that a test names, with its message.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tools import ROOT

COPIED = (
    "Makefile",
    "tools/step.sh",
    "tools/constraints.txt",
    "requirements.txt",
    "tools/model.txt",
    "pyproject.toml",
    "package.json",
    "package-lock.json",
    ".npmrc",
    "tools/lighthouse/package.json",
    "tools/lighthouse/package-lock.json",
)
EMPTY = ("_config.yml", "_toc.yml", "index.md", "tests/mistakes.txt")
FOLDERS = (
    "_ext", "attnbook", "attnlib", "benchmarks/results", "chapters", "peers/reproductions",
    "reference", "tests",
)  # fmt: skip

STAND_IN = """#!/bin/sh
called="${0##*/} $*"
case $called in *"$FAIL_AT"*) cat message >&2; exit 7 ;; esac
case $called in *"$HANG_AT"*) touch hanging; exec sleep 60 ;; esac
case $called in
  *" -m venv "*)
    for folder; do :; done
    mkdir -p "$folder/bin"
    for tool in python npm jupyter-book; do cp "$0" "$folder/bin/$tool"; done ;;
  *"npm ci --prefix"*) mkdir -p tools/lighthouse/node_modules ;;
  *"npm ci"*) mkdir -p node_modules ;;
esac
case $called in *" -m "* | npm* | jupyter*) echo "much that nobody reads"; echo "more" >&2 ;; esac
"""

NPM_CERTIFICATE = """\
npm warn deprecated something@1.0.0: no longer supported
npm error code SELF_SIGNED_CERT_IN_CHAIN
npm error errno SELF_SIGNED_CERT_IN_CHAIN
npm error request to https://npm.example/katex failed, reason: self-signed certificate in chain
npm error     at ClientRequest.<anonymous> (/somewhere/minipass-fetch/lib/index.js:130:14)
npm error A complete log of this run can be found in: /somewhere/_logs/debug-0.log
"""
NPM_REFUSED = """\
npm ERR! code ECONNREFUSED
npm ERR! FetchError: request to http://npm.example/katex failed, reason: connect ECONNREFUSED
npm ERR!     at ClientRequest.<anonymous> (/somewhere/minipass-fetch/lib/index.js:130:14)
npm ERR! If you are behind a proxy, please make sure that the 'proxy' config is set properly.
"""
NPM_USAGE = (
    """\
npm error code EUSAGE
npm error `npm ci` can only install packages when package.json and lock are in sync.
npm error Usage:
npm error npm ci
"""
    + "npm error [--option]\n" * 40
)
PIP_CERTIFICATE = """\
WARNING: Retrying (Retry(total=1, connect=None)) after connection broken by 'SSLError(a)': /simple/
WARNING: Retrying (Retry(total=0, connect=None)) after connection broken by 'SSLError(b)': /simple/
Could not fetch URL https://pypi.example/: There was a problem confirming the ssl certificate
ERROR: Could not find a version that satisfies the requirement numpy==2.4.6 (from versions: none)
ERROR: No matching distribution found for numpy==2.4.6
"""
PIP_NETWORK = """\
WARNING: Retrying (Retry(total=1)) after connection broken by 'NewConnectionError(a)': /simple/
WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(b)': /simple/
ERROR: Could not find a version that satisfies the requirement numpy==2.4.6 (from versions: none)
ERROR: No matching distribution found for numpy==2.4.6
"""
PIP_RECOVERED = """\
WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError(a)': /simple/
ERROR: Cannot install numpy==2.4.6 and numpy==1.26 because these package versions conflict.
ERROR: ResolutionImpossible: for help visit the documentation
"""
PIP_MISSING = """\
ERROR: Ignored the following versions that require a different python version: 2.4.6
ERROR: Could not find a version that satisfies the requirement numpy==2.4.6 (from versions: 1.26.0)
ERROR: No matching distribution found for numpy==2.4.6
"""
# The reason stands above a trace that is longer than what is shown.
TRACE = '  File "somewhere.py", line 1\n' * 40
FULL = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n"
ODD = "error: the moon is in the wrong house\n"

CERTIFICATE = "export PIP_CERT=FILE NODE_EXTRA_CA_CERTS=FILE"
NETWORK = "export HTTPS_PROXY="
NO_SPACE = "the disk is full"
MISSING = "the index has no such version"
OTHER = "This step alone is: "


def command(shell: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Return what step.sh makes of a command of the shell."""
    return subprocess.run(
        ["sh", "tools/step.sh", *options, "trying", "sh", "-c", shell],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_step_that_succeeds_is_quiet() -> None:
    done = command("echo much; echo more >&2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("message", "reason", "advice"),
    [
        (NPM_CERTIFICATE, "reason: self-signed certificate in chain", CERTIFICATE),
        (NPM_REFUSED, "reason: connect ECONNREFUSED", NETWORK),
        (NPM_USAGE, "package.json and lock are in sync", OTHER),
        (PIP_CERTIFICATE, "problem confirming the ssl certificate", CERTIFICATE),
        (PIP_NETWORK, "NewConnectionError(b)", NETWORK),
        (PIP_RECOVERED, "because these package versions conflict", OTHER),
        (PIP_MISSING, "that require a different python version", MISSING),
        (FULL + TRACE, "No space left on device", NO_SPACE),
        (ODD + TRACE, "error: the moon is in the wrong house", OTHER),
        ("FileNotFoundError: [Errno 2] index.md", "index.md", OTHER),  # not npm's ENOTFOUND
        ("npm error code ENOTFOUND", "ENOTFOUND", NETWORK),
        ("", "", OTHER),
    ],
)
def test_the_reason_is_shown_with_one_line_of_advice(
    tmp_path: Path, message: str, reason: str, advice: str
) -> None:
    file = tmp_path / "message"
    file.write_text(message, encoding="utf-8")
    done = command(f"cat {file} >&2; exit 7")
    *shown, last = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (7, "")
    assert last.startswith("Stopped while trying: ") and advice in last
    assert "run the same command again" in last or "make book PYTHON=" in last
    assert reason in "\n".join(shown)
    assert set(filter(None, shown)) <= set(message.splitlines())
    assert len(shown) <= 16
    # Frames of a trace, tries before the last one and lists of options give no reason.
    assert not re.search(r"    at |total=1|\[--option\]", "\n".join(shown))
    assert sum(known in last for known in (CERTIFICATE, NETWORK, NO_SPACE, MISSING, OTHER)) == 1


def test_every_warning_of_the_book_is_shown() -> None:
    done = command("for n in 1 2 3; do echo a$n; done; seq 100; exit 1", "--all")
    assert done.stderr.splitlines()[:-1] == ["a1", "a2", "a3", *map(str, range(1, 101))]


# -- the Makefile ---------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder with what the Makefile needs for the set-up, and the stand-in."""
    for name in COPIED:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    for name in FOLDERS:
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    for name in EMPTY:
        (tmp_path / name).touch()
    (tmp_path / "stand-in").write_text(STAND_IN, encoding="utf-8")
    (tmp_path / "stand-in").chmod(0o755)
    return tmp_path


def start(project: Path, target: str, **variables: str) -> subprocess.Popen[str]:
    """Start make in the copy, as from a terminal."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    own |= {"FAIL_AT": "nowhere", "HANG_AT": "nowhere"} | variables
    return subprocess.Popen(
        ["make", target, f"PYTHON={project / 'stand-in'}"],
        cwd=project,
        env=own,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
    )


def make(project: Path, target: str, **variables: str) -> tuple[int, str, str]:
    """Return make's status, and what it prints to stdout and to stderr."""
    process = start(project, target, **variables)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


LIGHTHOUSE = "tools/lighthouse/node_modules/.complete"
# Each step: the target, the call that fails, the words for it, the stamp that it may not leave.
STEPS = [
    ("book", " -m venv ", "making the environment", ".venv/.folder"),
    ("book", " -m ensurepip ", "putting pip into the environment", ".venv/.folder"),
    ("book", "pip install -r", "installing the pinned packages", ".venv/.packages"),
    ("book", "--editable .", "installing attnlib", ".venv/.attnlib"),
    ("book", "npm ci", "installing what the book takes from npm", "node_modules/.complete"),
    ("book", "jupyter-book build", "building the book", "_build/.complete"),
    (LIGHTHOUSE, "npm ci --prefix", "installing Lighthouse", LIGHTHOUSE),
]
each_step = pytest.mark.parametrize(
    ("target", "call", "words", "stamp"), STEPS, ids=[words for _, _, words, _ in STEPS]
)


@each_step
def test_a_step_that_fails_says_why_and_is_done_again(
    project: Path, target: str, call: str, words: str, stamp: str
) -> None:
    message = NPM_CERTIFICATE if "npm" in call else PIP_CERTIFICATE
    (project / "message").write_text(message, encoding="utf-8")
    status, _, err = make(project, target, FAIL_AT=call)
    (advice,) = (line for line in err.splitlines() if line.startswith("Stopped while "))
    assert status
    assert advice.startswith(f"Stopped while {words}: ") and CERTIFICATE in advice
    assert "certificate" in err.partition("Stopped while")[0]
    assert not (project / stamp).exists()
    status, out, err = make(project, target)
    assert (status, err) == (0, "")
    assert "nobody reads" not in out
    assert (project / stamp).exists()
    assert len(out.splitlines()) <= 6


def test_without_the_model_of_chapter_19_the_tests_go_on_and_say_so(project: Path) -> None:
    (project / "message").write_text(PIP_CERTIFICATE, encoding="utf-8")
    status, out, err = make(project, ".venv/.model", FAIL_AT="--require-hashes")
    assert status == 0 and out.endswith("The tests go on without the model, and skip chapter 19\n")
    assert "Stopped while installing the model: " in err
    assert not (project / ".venv/.model").exists()
    assert make(project, ".venv/.model")[0] == 0
    assert (project / ".venv/.model").exists()


def test_a_step_that_is_interrupted_is_done_again(project: Path) -> None:
    process = start(project, "book", HANG_AT="pip install -r")
    for _ in range(600):
        if (project / "hanging").exists():
            break
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode
    assert "Stopped while" not in err
    assert not (project / ".venv/.packages").exists()
    status, _, err = make(project, "book")
    assert (status, err) == (0, "")


@pytest.mark.parametrize(
    ("python", "message"),
    [
        ("", "3.11 or newer; got no such command"),
        ('[ "$1" = --version ] && echo Python 3.10.2', "3.11 or newer; got Python 3.10.2."),
        ('case "$*" in *venv*) exit 1 ;; esac', "must have its modules venv and ensurepip"),
    ],
)
def test_a_python_that_will_not_do_is_one_line(project: Path, python: str, message: str) -> None:
    if python:
        (project / "stand-in").write_text(f"#!/bin/sh\n{python}\n", encoding="utf-8")
    else:
        (project / "stand-in").unlink()
    status, out, err = make(project, "book")
    assert (status, out) == (2, "")
    first, *others = err.splitlines()
    assert first.startswith("Cannot start: ") and message in first
    assert [line for line in others if not line.startswith("make: ***")] == []
    assert not (project / ".venv").exists()
