"""Ask every library every case, and store what came out.

    python -m peers                          every family
    python -m peers --only jax_family tiny   some of them

Each family's environment is built on its first run, under `.venv/peers`. Nothing else is changed:
the results go to `peers/results`, and from there into the book's page.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from collections import Counter, defaultdict
from typing import Any

from tqdm import tqdm

from benchmarks.timing import machine, store
from peers import programs, tables
from peers.asking import HOUSE, answers
from peers.tables import RESULTS
from peers.verdict import FAILED, NOT_CLAIMED, POLICY, questions

# Each family, and the environment it lives in; "" is the project's own.
FAMILIES = {
    "pytorch": "",
    "hugging_face": "",
    "x_transformers": "small",
    "jax_family": "jax",
    "keras_jax": "keras",
    "keras_torch": "keras",
    "keras_tensorflow": "keras",
    "onnx_family": "onnx",
    "tiny": "small",
}
LIMIT = 120.0


def python_of(environment: str) -> str:
    """Return the Python of an environment, which is built where it is not there yet."""
    if not environment:
        return sys.executable
    folder = HOUSE.parent / ".venv" / "peers" / environment
    wanted = HOUSE / "peers" / "requirements" / f"{environment}.txt"
    stamp, python = folder / ".complete", folder / "bin" / "python"
    if not stamp.exists() or stamp.read_text() != wanted.read_text():
        print(f"Installing {wanted.relative_to(HOUSE)}")
        venv.create(folder, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "-r", wanted], check=True)
        stamp.write_text(wanted.read_text())
    return str(python)


def n_libraries(python: str, family: str) -> int:
    """Return how many adapters a family has."""
    code = f"from peers.families.{family} import ADAPTERS; print(len(ADAPTERS))"
    # What it says of an import that fails stays visible.
    done = subprocess.run(
        [python, "-c", code], cwd=HOUSE, stdout=subprocess.PIPE, text=True, check=True
    )
    return int(done.stdout.split()[-1])


def results_of(python: str, family: str, number: int, limit: float = LIMIT) -> dict[str, Any]:
    """Return what became of all cases of one library, counted by topic."""
    every = questions()
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    reasons: dict[str, Counter[str]] = defaultdict(Counter)
    others = []
    found = answers(python, family, number, limit)
    about = next(found)
    for line in tqdm(found, about["name"], about["n_cases"], unit=" cases", leave=False):
        case, kind = every[line["case"]], line["verdict"]
        counts[case.topic][kind] += 1
        if kind == NOT_CLAIMED:
            reasons[case.topic][line["words"]] += 1
        if kind in (FAILED, POLICY):
            others.append({"case": str(case), "verdict": kind, "words": line["words"]})
    return {
        "name": about["name"],
        "versions": about["versions"],
        "documentation": about["documentation"],
        "topics": counts,
        "not claimed": reasons,
        "cases": others,
    }


def main() -> None:
    """Run the chosen families, and write results and page."""
    parser = argparse.ArgumentParser(prog="python -m peers", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    for family in parser.parse_args().only:
        python = python_of(FAMILIES[family])
        libraries = [results_of(python, family, n) for n in range(n_libraries(python, family))]
        store({"machine": machine(), "libraries": libraries}, RESULTS / f"{family}.json")
        programs.store(python, family)
    tables.write()


if __name__ == "__main__":
    main()
