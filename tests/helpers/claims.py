"""What an implementation here claims beyond its signature, and one call judged by `attncheck`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from implementations import Implementation
from inputs import drawn
from tolerance import HALF

from attncheck import Also, Call, Case, Given, Kernel, _definition, backend_for, judge
from attnlib import serving, torch_decoding


def claims(form: Implementation) -> Kernel:
    """Return the kernel of a form: log-sum-exps, and what `attnlib.serving` makes of any form."""
    attend = form.function()
    with_lse = form.function("scaled_dot_product_attention_with_lse")

    def attention(
        query: Any, key: Any, value: Any, *, sinks: Any = None, softcap: Any = None, **options: Any
    ) -> Any:
        if softcap is not None:
            return serving.with_soft_cap(attend, query, key, value, softcap, **options)
        if sinks is not None:
            return serving.with_sinks(*with_lse(query, key, value, **options), sinks)[0]
        return attend(query, key, value, **options)

    def over_pages(
        query: Any, key: Any, value: Any, table: Any, lengths: Any, **options: Any
    ) -> Any:
        return serving.over_pages(attend, query, key, value, table, lengths, **options)

    over_documents = partial(serving.over_documents, attend)
    return Kernel(
        attention,
        lse=Also(with_lse),
        merge=torch_decoding.merge if form.on_tensors else None,
        documents=Also(over_documents, axes="HTD", starts=("starts", "key_starts")),
        pages=Also(over_pages, axes="PSHD", table="table", lengths="lengths", page=4),
        sinks="sinks",
        softcap="softcap",
    )


def hold(form: Implementation, call: Call) -> None:
    """Hold output, log-sum-exp and gradients against the definition, as `attncheck` does.

    The gradients are those of the output and, but for half precision, of the log-sum-exp, by each
    argument of the call's dtype.
    """
    dtype = call.given["query"].dtype
    asked = [replace(call, lse=True)]
    if form.on_tensors:
        shape = _definition.output(call).shape
        numbers = drawn(shape, shape[:-1], dtype=dtype, seed=11)
        above, of_lse = (Given(x.astype(float), dtype) for x in numbers)
        more: dict[str, Any] = {} if dtype in HALF else {"lse": True, "lse_upstream": of_lse}
        wanted = tuple(name for name, own in call.given.items() if own.dtype == dtype)
        asked.append(replace(call, upstream=above, wanted=wanted, **more))
    for one in asked:
        case = Case("values", "as drawn", lambda _, one=one: one, dtype=dtype)
        result = judge(case, claims(form), backend_for(form.kind, form.device))
        assert result.passed, str(result)
