"""Write cases to a file of safetensors, for kernels that Python cannot call.

EXPORT.md says what is in the file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attncheck import Seed, _definition, _everything, seed_of
from attncheck._backends import Backend, stored
from attncheck._calls import Call, Case, Given
from attncheck._claims import Kernel
from attncheck._comparison import gradient_limits, lse_limit, output_limit
from attncheck._table import tabled
from attncheck._types import Array, scale_of

SCHEMA = "1"
NAMES = {
    "bool": "BOOL", "int64": "I64", "float16": "F16", "bfloat16": "BF16",
    "float32": "F32", "float64": "F64",
}
# What is said of a call that a reader of a few lines can make.
PLAIN = {"topic", "dtype", "keywords", "untouched"}
# A line of the plain cases: what the names say, L and S for the queries and keys, and the place of
# each array in the file, in bytes.
COLUMNS = (
    "dtype", "heads", "L", "S", "E", "E_v", "is_causal", "scale",
    "query", "key", "value", "expected/output", "bound/output", "id",
)
Stored = tuple[str, Array]  # the name of a dtype, and what lies in the file


def export(cases: Sequence[Case], file: str | Path, backend: Backend) -> int:
    """Write cases, what must come out and how far it may be off, and return how many.

    Cases of torch.compile are left out, which no other language has, and those that need gigabytes;
    so are cases of a dtype in which the backend cannot measure how far plain attention is off.
    """
    there = backend.dtypes()
    arrays: dict[str, Stored] = {}
    about = {"schema": SCHEMA}
    plain = {}
    for case in cases:
        call = case.call
        if call.compiled or call.memory or case.topic == "large masks" or case.dtype not in there:
            continue
        said = _said(case, call)
        if "plain" in said:
            plain[case.id] = call
        about[case.id] = json.dumps(said, allow_nan=False, separators=(",", ":"))
        arrays |= {f"{case.id}/{name}": own for name, own in _arrays(call, backend)}
    places = write(file, arrays, about)
    lines = [" ".join(COLUMNS), *(_line(own, call, places) for own, call in plain.items())]
    Path(f"{file}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return len(about) - 1


def _line(own: str, call: Call, places: dict[str, int]) -> str:
    """Return a plain case as a line: its dtype, its shapes, and where its arrays begin."""
    query, key, value = (call.given[name].numbers.shape for name in ("query", "key", "value"))
    heads, (n_queries, d), n_keys = math.prod(query[:-2]), query[-2:], key[-2]
    scale = scale_of(call.options.get("scale"), d)
    begins = (places[f"{own}/{name}"] for name in COLUMNS[8:13])
    said = [heads, n_queries, n_keys, d, value[-1], int(bool(call.options.get("is_causal"))), scale]
    return " ".join(map(str, [call.given["query"].dtype, *said, *begins, own]))


def everything(kind: str, *, seed: Seed = 7, **choice: Any) -> list[Case]:
    """Return all cases that there are, with those of functions that stand beside a kernel's own.

    `choice` is `only`, `without` and `dtypes` of `check`.
    """
    return tabled(Kernel.of(_everything), kind, seed=seed_of(seed), **choice)


def _said(case: Case, call: Call) -> dict[str, Any]:
    """Return what is known of a case beside its arrays; what it does not need is left out."""
    said: dict[str, Any] = {"topic": case.topic, "dtype": case.dtype, "keywords": _named(call)}
    if call.neighbour is not None:
        return said | {"refused": True, "accepted": _named(call.neighbour)}
    if call.documents is not None:
        said["documents"] = call.documents._asdict()
    if call.pages is not None:
        said["lengths"] = call.pages.lengths
    if call.split is not None:
        said["split"] = call.split
    arguments = dict(call.given)
    if call.upstream is not None:
        arguments["upstream/output"] = call.upstream
    strides = {
        name: given.layout(stored(given.numbers, given.dtype)).strides
        for name, given in arguments.items() if given.layout is not None
    }
    if strides:
        said["strides"] = strides
    if call.watched:
        said["untouched"] = [*arguments]
    leading = {given.numbers.shape[:-2] for given in call.given.values()}
    others = {*call.given, *call.options} - {"query", "key", "value", "is_causal", "scale"}
    if said.keys() <= PLAIN and len(leading) == 1 and not others and call.upstream is None:
        said["plain"] = True
    return said


def _named(call: Call) -> dict[str, Any]:
    """Return the keywords of a call; JSON has no NaN and no ∞, so that they are words."""
    return {
        name: str(own) if isinstance(own, float) and not np.isfinite(own) else own
        for name, own in call.options.items()
    }


def _arrays(call: Call, backend: Backend) -> Iterator[tuple[str, Stored]]:
    """Yield the arrays of a call by name."""
    for name, given in call.given.items():
        yield name, _stored(given)
    if call.neighbour is not None:
        for name, given in call.neighbour.given.items():
            yield f"accepted/{name}", _stored(given)
        return
    if call.pages is not None:
        yield "table", ("int64", np.asarray(call.pages.table, np.int64))
    for name, above in (("output", call.upstream), ("lse", call.lse_upstream)):
        if above is not None:
            yield f"upstream/{name}", _stored(above)
    for name, truth, limit in _results(call, backend):
        yield f"expected/{name}", ("float64", truth)
        yield f"bound/{name}", ("float64", np.broadcast_to(limit, truth.shape))


def _stored(given: Given) -> Stored:
    return given.dtype, stored(given.numbers, given.dtype)


def _results(call: Call, backend: Backend) -> Iterator[tuple[str, Array, Any]]:
    """Yield the names of what must come out, the truths, and how far they may be off."""
    if call.upstream is not None:
        found = _definition.gradients(call)
        limits = gradient_limits(call, found, backend)
        for name in call.wanted:
            yield f"d_{name}", found[name], limits[name]
        return
    truth = _definition.output(call)
    yield "output", truth, output_limit(call, truth, backend)
    if call.lse or call.split is not None:
        truth = _definition.attention(_definition.problem(call))[1]
        yield "lse", truth, lse_limit(call, truth)


def write(file: str | Path, arrays: dict[str, Stored], about: dict[str, str]) -> dict[str, int]:
    """Write a file of safetensors: the length of a header in 8 bytes, the header, the numbers.

    Return the byte at which each array begins.

    The package safetensors takes bfloat16 from other packages alone; the format is short. Longer
    numbers come first, so that each array begins where its dtype may be read from.
    """
    header: dict[str, Any] = {"__metadata__": about}
    parts, end = [], 0
    for name, (dtype, own) in sorted(arrays.items(), key=lambda item: -item[1][1].itemsize):
        part = own.astype(own.dtype.newbyteorder("<")).tobytes()
        offsets = [end, end := end + len(part)]
        header[name] = {"dtype": NAMES[dtype], "shape": own.shape, "data_offsets": offsets}
        parts.append(part)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    Path(file).write_bytes(b"".join([len(text).to_bytes(8, "little"), text, *parts]))
    begin = 8 + len(text)
    return {name: begin + header[name]["data_offsets"][0] for name in arrays}
