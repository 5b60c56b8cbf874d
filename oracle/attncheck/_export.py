"""Write cases to a file, for kernels that Python cannot call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attncheck import _definition
from attncheck._backends import Backend
from attncheck._calls import Case
from attncheck._comparison import output_limit


def export(cases: Sequence[Case], file: str | Path, backend: Backend) -> int:
    """Write cases, their outputs and bounds to an .npz file, and return how many.

    For a case with the id `i` the file holds `i/query`, `i/key`, `i/value` and, where the call has
    them, `i/attn_mask` and `i/sinks`; `i/output` and `i/bound`, how far each entry may be off,
    or one number for all; and where they are asked, `i/upstream` with `i/d_query` and so on, and
    `i/lse`. All numbers are float64 (masks may be boolean), and such as the case's dtype can hold.
    `cases` is a JSON text: for each id its dtype and its keywords. Invalid calls, documents and
    pages are left out.
    """
    arrays: dict[str, Any] = {}
    about = {}
    for case in cases:
        call = case.call
        if call.refused or call.documents or call.pages or call.split is not None:
            continue
        parts = {name: own.numbers for name, own in call.given.items()}
        if call.upstream is None:
            truth = _definition.output(call)
            parts["bound"] = np.asarray(output_limit(call, truth, backend))
            parts["output"] = truth
            if call.lse:
                parts["lse"] = _definition.attention(_definition.problem(call))[1]
        else:
            parts["upstream"] = call.upstream.numbers
            found = _definition.gradients(call)
            parts |= {f"d_{name}": found[name] for name in call.wanted}
        arrays |= {f"{case.id}/{name}": own for name, own in parts.items()}
        about[case.id] = {"dtype": case.dtype, "keywords": dict(call.options)}
    np.savez_compressed(file, cases=np.array(json.dumps(about)), **arrays)
    return len(about)
