"""What an implementation here claims beyond its signature, as a `Kernel` of attncheck."""

from __future__ import annotations

from functools import partial
from typing import Any

from implementations import Implementation

from attncheck import Also, Kernel
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
