"""Rehearse each chapter as a reader meets it on Colab: `make colab`.

    python -m tools.rehearse [--environment NAME] [--torch-varies] [CHAPTER …]

A chapter lies alone in an empty folder. Its environment holds NumPy, torch, matplotlib and a
kernel, the model of chapter 19 as a package (tools/model.txt), and neither `attnlib` nor
`attncheck`: its own set-up cell installs them, from the address that it names, which git is told to
take from a copy of this working tree. nbval then runs the chapter from top to bottom and compares
what it shows with what is stored; of Matplotlib's charts it compares our words alone. In the first
environment the notebook of the class runs too, untouched: nothing in it may raise.

    colab    what Colab publishes as its own versions (tools/colab.txt)
    numpy    the same without torch, for the chapters that import no torch
    lowest   the lowest versions that pyproject.toml allows, on Python 3.12 or older
    latest   the newest versions there are

torch has the version of requirements.txt in all of them, unless --torch-varies is given. Where
torch is, there is transformers, for the chapters on the models of others. In the first environment
it has the version of requirements.txt, because Colab's list lacks what it needs in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from tools import ROOT, class_notebooks, notebooks

CACHE = ROOT / "_build" / "colab"
MODEL = ROOT / "tools" / "model.txt"
NAMES = ("colab", "numpy", "lowest", "latest")
BROUGHT = ("attnlib", "attncheck", "triton")  # what the set-up cells may install
SHOWN = ("numpy", "torch", "triton", "transformers", "matplotlib", "ipykernel", "ipython")
NBVAL = ["--nbval", "--nbval-kernel-name=rehearsal", "-q", "--no-header", "--color=no"]
NBVAL += [
    "--tb=short",
    f"--nbval-sanitize-with={ROOT / 'tests' / 'newer_versions.cfg'}",
]
TORCH = re.compile(
    r"^\s*(?:import|from)\s+(?:torch|triton|transformers)\b|attnlib\.(?:torch|triton)_|\btorch_",
    re.M,
)


# -- environments ---------------------------------------------------------------------------------


def pins(lines: list[str], sign: str = "==") -> dict[str, str]:
    """Return the pins of a list of requirements, or with >= its lowest versions as pins."""
    found = (re.match(rf"([\w-]+){sign}([^\s;,]+)", line) for line in lines)
    return {match[1]: f"{match[1]}=={match[2]}" for match in found if match}


def floors() -> dict[str, str]:
    """Return the lowest version of each package that pyproject.toml allows, as a pin."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    return pins([*project["dependencies"], *(line for extra in extras for line in extra)], ">=")


def environments(python: tuple[int, int]) -> tuple[str, ...]:
    """Return the environments that can be made with this Python.

    For Python 3.13 and newer there is no build of the lowest NumPy.
    """
    return tuple(name for name in NAMES if name != "lowest" or python < (3, 13))


def requirements(name: str, torch_varies: bool = False) -> list[str]:
    """Return what pip installs into the environment of this name."""
    own = pins((ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines())
    if name in ("colab", "numpy"):
        wanted = pins((ROOT / "tools" / "colab.txt").read_text(encoding="utf-8").splitlines())
        wanted["transformers"] = own["transformers"]
    elif name == "lowest":
        wanted = floors() | {"ipykernel": own["ipykernel"]}
    else:
        newest = ("numpy", "torch", "transformers", "matplotlib", "ipykernel")
        wanted = {package: package for package in newest}
    if not torch_varies:
        wanted["torch"] = own["torch"]
    if name == "numpy":
        del wanted["torch"], wanted["transformers"]
    if sys.platform != "linux":
        wanted.pop("triton", None)
    return list(wanted.values())


def make_environment(name: str, wanted: list[str]) -> Path:
    """Return the Python of an environment that holds these, made anew where they have changed.

    Raises:
        SystemExit: they cannot be installed together; step.sh has said why.
    """
    folder = CACHE / name
    python, stamp = folder / "bin" / "python", folder / "requirements.txt"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--upgrade"]
    steps = [[sys.executable, "-m", "venv", "--clear", str(folder)], [*pip, *wanted]]
    text = "\n".join(wanted)
    if any(line.startswith("torch=") or line == "torch" for line in wanted):
        # What chapter 19 fetches elsewhere; without torch it is left out.
        steps.append([*pip, "--no-deps", "--require-hashes", "-r", str(MODEL)])
        text += "\n" + MODEL.read_text(encoding="utf-8")
    if stamp.exists() and stamp.read_text(encoding="utf-8") == text:
        steps = steps[1:] if name == "latest" else []
    for step in steps:
        said = ["sh", str(ROOT / "tools" / "step.sh"), f"making the environment {name!r}"]
        if subprocess.run([*said, *step], check=False).returncode:
            raise SystemExit(f"{name}: could not be made with {', '.join(wanted)}")
    stamp.write_text(text, encoding="utf-8")
    return python


def make_repository() -> Path:
    """Return a git repository whose one commit is this working tree, but for what git ignores."""
    folder = CACHE / "repository"
    shutil.rmtree(folder, ignore_errors=True)
    git = ["git", "-c", "user.name=rehearsal", "-c", "user.email=rehearsal@localhost"]
    here = [f"--git-dir={folder / '.git'}", f"--work-tree={ROOT}"]
    subprocess.run([*git, "init", "--quiet", str(folder)], check=True)
    subprocess.run([*git, *here, "add", "--all"], cwd=ROOT, check=True, stderr=subprocess.DEVNULL)
    subprocess.run([*git, *here, "commit", "--quiet", "-m", "rehearsal"], cwd=ROOT, check=True)
    return folder


def surroundings(python: Path, repository: Path) -> dict[str, str]:
    """Return a reader's environment variables, with this Python and our copy for GitHub."""
    kernel = CACHE / "jupyter" / "kernels" / "rehearsal" / "kernel.json"
    kernel.parent.mkdir(parents=True, exist_ok=True)
    command = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    about = {"argv": command, "display_name": "rehearsal", "language": "python"}
    kernel.write_text(json.dumps(about), encoding="utf-8")
    config = CACHE / "gitconfig"
    config.write_text(
        f'[url "{repository.as_uri()}"]\n\tinsteadOf = {notebooks.REPOSITORY}\n'
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
        "JUPYTER_PATH": str(CACHE / "jupyter"),
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


def installed(python: Path, variables: dict[str, str]) -> dict[str, str]:
    """Return the version of every package of this environment."""
    command = [str(python), "-m", "pip", "list", "--format=json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=variables)
    return {package["name"].lower(): package["version"] for package in json.loads(done.stdout)}


def rehearse(
    chapter: Path,
    python: Path,
    variables: dict[str, str],
    given: list[str],
    of_class: bool = False,
) -> str:
    """Run the chapter alone in an empty folder and return what is wrong, or nothing."""
    brought = [name for name in BROUGHT if not any(line.startswith(f"{name}=") for line in given)]
    pip = [str(python), "-m", "pip", "uninstall", "--quiet", "--yes", *brought]
    subprocess.run(pip, check=True, env=variables, stderr=subprocess.DEVNULL)
    before = installed(python, variables)
    notebook = notebooks.read(chapter)
    if of_class:
        notebook = class_notebooks.class_notebook(notebook)
    for cell in notebook["cells"]:
        if notebooks.SETUP_TAG in (tags := cell["metadata"].get("tags", [])):
            tags.append("nbval-ignore-output")  # here it installs, and says so
    with tempfile.TemporaryDirectory(prefix="colab-") as folder:
        notebooks.write_normalised(Path(folder) / chapter.name, notebook)
        lax = ["--nbval-lax"] if of_class else []  # it has no outputs to compare
        command = [sys.executable, "-m", "pytest", *lax, *NBVAL]
        command += ["-p", "no:cacheprovider", chapter.name]
        done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    if done.returncode:
        return (done.stdout + done.stderr)[-4000:]
    now = installed(python, variables)
    changed = {name for name in now | before if now.get(name) != before.get(name)}
    if "attnlib" not in changed or not changed <= set(brought):
        return f"the set-up cell must install attnlib alone; it changed {sorted(changed)}"
    return ""


# -- all of them ----------------------------------------------------------------------------------


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
    repository = make_repository()
    failed = []
    for name in chosen.environment or environments(sys.version_info[:2]):
        given = requirements(name, chosen.torch_varies)
        python = make_environment(name, given)
        variables = surroundings(python, repository)
        held = installed(python, variables)
        print(f"{name}:", ", ".join(f"{p} {held.get(p, 'none')}" for p in SHOWN), flush=True)
        for chapter in chapters:
            if name == "numpy" and needs_torch(notebooks.read(chapter)):
                continue
            for of_class in [False, True] if name == "colab" else [False]:
                began = time.monotonic()
                wrong = rehearse(chapter, python, variables, given, of_class)
                what = f"{chapter.name}{', class' * of_class}"
                failed += [f"{name}, {what}"] if wrong else []
                verdict = f"FAILED\n{wrong}" if wrong else "runs" if of_class else "as stored"
                took = time.monotonic() - began
                print(f"  {what:36} {took:4.0f} s  {verdict}", flush=True)
    if failed:
        print("Failed: " + "; ".join(failed), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
