"""Cases of the topics large masks and compiled, which a kernel claims by a field of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from attncheck._calls import E_V, B, Call, Case, Draw, E, Given, H, L, S, Setting
from attncheck._draws import case, changed, heads, qkv, random_bias, random_mask, shaped, with_mask
from attncheck._gradients import with_upstream
from attncheck._tolerance import epsilon, forward_size, masked_scores, softmax
from attncheck._types import BOTTOM_RIGHT, CAUSAL, GROUPED, Array, Problem

FAR = 2**31 + 8  # entries: what counts in 32 bits wraps round
# Queries and keys, more than 2³¹ scores together. A kernel may need this memory for them.
MANY_QUERIES, MANY_KEYS = 2**15 + 1, 2**16
MEMORY = 16 * MANY_QUERIES * MANY_KEYS


def far_apart(array: Array) -> Array:
    """The parts along the first axis lie 2³¹ entries apart; memory between them is not touched."""
    holder = np.zeros((array.shape[0] - 1) * FAR + array[0].size, dtype=array.dtype)
    inner = np.empty(array.shape[1:], array.dtype).strides
    view: Array = np.lib.stride_tricks.as_strided(
        holder, array.shape, (FAR * array.itemsize, *inner)
    )
    view[...] = array
    return view


def alike(array: Array) -> Array:
    """All rows of queries are one row in memory, with a stride of 0."""
    return np.broadcast_to(array[..., :1, :].copy(), array.shape)


def large_masks() -> Iterator[Case]:
    """Yield the cases of the topic large masks."""
    name = "a batch whose masks lie more than 2³¹ entries apart"
    yield case(name, _far, "masks", kinds=("torch",))
    name = "more than 2³¹ entries, of which the memory has one row"
    yield case(name, _many, "masks", kinds=("torch",))


def _far(setting: Setting) -> Call:
    call = with_mask(random_mask((B, 1, L, S)))(setting)
    mask = call.given["attn_mask"]._replace(layout=far_apart)
    return replace(call, given=call.given | {"attn_mask": mask})


def _many(setting: Setting) -> Call:
    """All queries are alike, and the mask keeps few keys: the truth is that of one query."""
    query, key, value = qkv(setting, (1, 1, 1, E), (1, 1, 5, E), (1, 1, 5, E)).values()
    where = np.array([0, 1, 40_000, MANY_KEYS - 2, MANY_KEYS - 1])
    mask: Array = np.zeros((1, 1, 1, MANY_KEYS), dtype=bool)
    mask[..., where] = True
    wide = []
    for few in (key.numbers, value.numbers):
        many = np.zeros((1, 1, MANY_KEYS, few.shape[-1]))
        many[..., where, :] = few
        wide.append(many)
    problem = Problem(query.numbers, key.numbers, value.numbers)
    truth = softmax(masked_scores(problem)[0]) @ value.numbers
    n = MANY_QUERIES
    queries, rows, truths = (
        np.broadcast_to(x, (1, 1, n, x.shape[-1])) for x in (query.numbers, mask, truth)
    )
    given = {
        "query": Given(queries, setting.dtype, alike),
        "key": Given(wide[0], setting.dtype), "value": Given(wide[1], setting.dtype),
        "attn_mask": Given(rows, "bool", alike),
    }
    # The zeros between the keys add nothing, whatever their order. Plain attention would need all
    # scores at once, so that in half precision one rounding of a value stands for its error.
    size = 4 * float(forward_size(problem).max())
    peer = truth + epsilon(setting.dtype) * np.abs(value.numbers).max()
    return Call(given, truth=truths, peer=peer, size=size, memory=MEMORY)


def free_memory() -> int:
    """Return the bytes of memory that are free here, which Linux says; 0 elsewhere."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":", 1) for line in file)
        return 1024 * int(lines["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return 0


def compiled() -> Iterator[Case]:
    """Yield the cases of the topic compiled: calls of other topics, under torch.compile."""

    def own(name: str, draw: Draw, *needs: str) -> Case:
        return case(name, changed(draw, compiled=True), *needs, kinds=("torch",))

    yield own("a batch of heads", shaped())
    yield own("scale=-0.7", heads(options={"scale": -0.7}))
    yield own("1 query, 131 keys", heads(1, 131))
    yield own("causal, 70 queries and keys", heads(70, 70, CAUSAL), "causal")
    draw = heads(L, S, CAUSAL | BOTTOM_RIGHT)
    yield own("causal at the bottom right", draw, "causal", "bottom-right")
    yield own("window=(2, 0)", heads(L, L, {"window": (2, 0)} | CAUSAL), "windows", "causal")
    yield own("a boolean mask", with_mask(random_mask((B, 1, L, S))), "masks")
    yield own("a floating mask", with_mask(random_bias((B, H, L, S))), "masks")
    draw = shaped((1, 6, L, E), (1, 2, S, E), (1, 2, S, E), GROUPED)
    yield own("6 query heads, 2 key heads", draw, "groups")
    yield own("gradients", with_upstream(shaped()), "gradients")
    draw = with_upstream(shaped((1, B, L, E), (1, B, L, E), (1, B, L, E_V), CAUSAL))
    yield own("gradients, causal", draw, "gradients", "causal")
