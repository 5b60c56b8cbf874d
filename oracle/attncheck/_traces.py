"""A definition and a solution of flashinfer-bench, which are files of JSON.

A definition has axes, which are constant or vary, inputs and outputs over them, and a reference in
Python. Texts in a row (`qo_indptr`, `kv_indptr`) and pages (`kv_indices`) are asked, with the heads
and head dimensions that the axes have; which attention it is, the reference shows.
"""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from attncheck._claims import Also
from attncheck._operation import NAMES, OURS, Operation, starts
from attncheck._pairs import Pair
from attncheck._references import InHand, recognised
from attncheck._types import FLOATING
from attncheck.hands import module_of, required

# Axes that vary, beside those of the heads, and integers that say where what is.
AXES = ("batch_size", "total_q", "total_kv", "total_tokens", "len_indptr", "num_pages",
        "num_kv_indices")
PLACES = ("qo_indptr", "kv_indptr", "seq_indptr", "kv_indices", *NAMES["last"])


def kernel_of(definition: str, solution: str, device: str = "cpu") -> Any:
    """Return a solution as a kernel, with the claims that its definition makes.

    Where a definition has other inputs than query, key and value, as latent attention has, it is a
    `Pair`: its reference on texts of some lengths, whose pages are in no order.

    Raises:
        ValueError: a file that is not there, or is no definition or no solution; a reference that
            takes query, key and value, and is not attention.
    """
    said = _read(definition, ("name", "axes", "inputs", "outputs", "reference"), "definition")
    own = _read(solution, ("definition", "spec", "sources"), "solution")
    if own["definition"] != said["name"]:
        words = f"expected a solution of {said['name']} in {solution}"
        raise ValueError(f"{words}; got one of {own['definition']}")
    source = [{"path": "main.py", "content": said["reference"]}]
    reference = Operation(said, _function(source, "main.py::run", definition))
    entry = str(own["spec"].get("entry_point", ""))
    solved = Operation(said, _function(own["sources"], entry, solution))
    others = [name for name in said["inputs"] if name not in OURS]
    known = {OURS.get(name) for name in said["inputs"]}
    dtype = said["inputs"].get("q", {}).get("dtype")
    if others or {"query", "key", "value", "k_starts"} - known or dtype not in FLOATING:
        names = "the reference", "the solution"
        why = f"its inputs are {', '.join(said['inputs'])}"
        inputs = functools.partial(_drawn, said)
        functions = reference.called, solved.called, reference.called
        return Pair(*functions, inputs, names, why, {"n_texts": 3, "length": 37, "seed": 1})
    with_lse, in_pages = len(said["outputs"]) > 1, "kv_indices" in said["inputs"]
    first = reference.with_lse if with_lse else reference.dense
    found = recognised(first, ["BSHD"], solved.dtype, solved.head_dims, device, with_lse)
    if isinstance(found, str):
        raise ValueError(f"expected a reference that is attention in {definition}; {found}")
    lse = Also(solved.with_lse, "BSH", found.base, differentiable=False) if with_lse else None
    texts = Also(solved.texts, "THD", starts=("q_starts", "k_starts"))
    pages = Also(solved.paged, "PSHD", table="table", lengths="lengths", page=solved.page)
    nothing = {"errors": "invalid calls", "numbers": "NaN", "gradients": "gradients"}
    return InHand(
        solved.dense, axes="BSHD", head_dims=[solved.head_dims], dtypes=[solved.dtype], mask=None,
        causal=[found.always_causal or "bottom-right"], groups="by shape", gradients=False,
        lse=lse, documents=None if in_pages else texts, pages=pages if in_pages else None,
        not_claimed={topic: f"nothing is said of {words}" for topic, words in nothing.items()},
        always_causal=found.always_causal, square=found.square, heads=solved.heads,
        one_query=in_pages and "qo_indptr" not in said["inputs"],
        said=f"the reference of {said['name']} is attention ({found}): the solution is asked by "
        "the definition",
    )


def _read(file: str, names: tuple[str, ...], what: str) -> dict[str, Any]:
    """Return a file of JSON, which must have these names."""
    try:
        found = dict(json.loads(Path(file).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"expected a {what} in JSON; {file} gave {error}") from error
    missing = [name for name in names if name not in found]
    if missing:
        words = f"expected a {what} with {', '.join(names)} in {file}"
        raise ValueError(f"{words}; got no {', '.join(missing)}")
    return found


def _function(sources: list[dict[str, str]], entry: str, file: str) -> Callable[..., Any]:
    """Return the function that an entry point such as main.py::run names."""
    path, _, name = entry.partition("::")
    if not (path.endswith(".py") and name):
        words = f"expected an entry point in Python, such as main.py::run, in {file}"
        raise ValueError(f"{words}; got {entry!r}")
    folder = Path(tempfile.mkdtemp(prefix="attncheck_"))  # Triton reads a kernel's source again
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for source in sources:
        place = folder / source["path"]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(source["content"], encoding="utf-8")
    function: Callable[..., Any] = required(module_of(folder / path), (name,), file)[0]
    return function


def _drawn(definition: Mapping[str, Any], n_texts: int, length: int, seed: int) -> list[Any]:
    """Return inputs of a definition: texts of this length and of others, in pages in no order."""
    inputs, axes = definition["inputs"], definition["axes"]
    page = axes.get("page_size", {}).get("value") or 1
    keys = [length, 1, length // 2, *[5] * n_texts][:n_texts]
    decoding = not {"qo_indptr", "seq_indptr"} & set(inputs)
    queries = [1] * n_texts if decoding else keys if "seq_indptr" in inputs else [
        min(n, 3) for n in keys]
    used = [-(-n // page) for n in keys]
    sizes = dict(zip(AXES, (
        n_texts, sum(queries), sum(keys), sum(keys), n_texts + 1, sum(used) + 2, sum(used),
    ), strict=True))
    sizes |= {name: own["value"] for name, own in axes.items() if own.get("value") is not None}
    whole = torch.randperm(sizes["num_pages"], generator=torch.Generator().manual_seed(0))
    key_starts = used if "kv_indices" in inputs else keys
    lengths = {"qo_indptr": queries, "seq_indptr": keys, "kv_indptr": key_starts}
    places = {name: starts(own, "cpu") for name, own in lengths.items()}
    places["kv_indices"] = whole[: sum(used)].int()
    for name in NAMES["last"]:
        places[name] = torch.tensor([(n - 1) % page + 1 for n in keys]).int()
    rows = [own["shape"] for name, own in inputs.items() if name[0] == "q" and name not in places]
    features = sum(sizes.get(shape[-1], 0) for shape in rows) or 1
    generator, found = torch.Generator().manual_seed(seed), []
    for name, own in inputs.items():
        unknown = [axis for axis in own["shape"] or () if axis not in sizes]
        if unknown or (own["shape"] and own["dtype"] not in FLOATING and name not in places):
            known = f"axes among {', '.join(AXES)} and integers among {', '.join(PLACES)}"
            raise ValueError(f"expected {known}; got {name} of {own['shape']}, {own['dtype']}")
        if name in places or not own["shape"]:
            found.append(places.get(name, features**-0.5))
        else:
            shape = [sizes[axis] for axis in own["shape"]]
            found.append(torch.randn(shape, generator=generator).to(getattr(torch, own["dtype"])))
    return found
