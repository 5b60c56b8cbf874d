"""The operator Attention of ONNX, in the format's reference evaluator and in ONNX Runtime.

Each call becomes a model of one node. The operator takes arrays of 4 axes, and its groups from the
numbers of heads. Its causal mask begins at the top left. The last query stands at the last key when
a cache says so: `past_key` from opset 23 on, `nonpad_kv_seqlen` from opset 24 on. Opset 25 brings
windows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnxruntime as runtime
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, checker, helper
from onnx.reference import ReferenceEvaluator

from peers.adapter import Adapter, Attention, adapters, claim

ADAPTERS: list[Adapter] = []
OPERATOR = "https://onnx.ai/onnx/operators/onnx__Attention.html"
INPUTS = ("query", "key", "value", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")

Array = NDArray[Any]
Window = tuple[int | None, int | None]  # the numbers of keys before and after a query's own
Arrays = dict[str, Array]
Run = Callable[[ModelProto, Arrays], Any]


def model(opset: int, arrays: Arrays, attributes: dict[str, Any]) -> ModelProto:
    """Return a model with one node, Attention, for these arrays."""
    names = INPUTS[: 1 + max(map(INPUTS.index, arrays))]
    outputs = ["output", "present_key", "present_value"][: 3 if "past_key" in arrays else 1]
    node = helper.make_node(
        "Attention", [name if name in arrays else "" for name in names], outputs, **attributes
    )
    types = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in arrays.items()}
    given = [helper.make_tensor_value_info(n, types[n], x.shape) for n, x in arrays.items()]
    axes = [None] * arrays["query"].ndim
    output = helper.make_tensor_value_info("output", types["query"], axes)
    graph = helper.make_graph([node], "attention", given, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=11)


def reference(one: ModelProto, arrays: Arrays) -> Any:
    """Check a model, and run it in the reference evaluator."""
    checker.check_model(one, full_check=True)
    return ReferenceEvaluator(one).run(["output"], arrays)[0]


def cpu_provider(one: ModelProto, arrays: Arrays) -> Any:
    """Run a model in ONNX Runtime, on the CPU."""
    types = {array.dtype.name for array in arrays.values()}
    claim("bfloat16" not in types, "no bfloat16 on a CPU")
    batches = {arrays[name].shape[0] for name in ("query", "key", "value")}
    claim(len(batches) == 1 or 1 not in batches, "query, key and value have one batch size")
    sizes = (*arrays["query"].shape, arrays["value"].shape[-1])
    claim(0 not in sizes, "refuses axes of length 0, which the operator's text leaves open")
    options = runtime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = runtime.InferenceSession(
        one.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(["output"], arrays)[0]


def attended(
    run: Run, opset: int, arrays: Arrays, attn_mask: Array | None, is_causal: bool,
    scale: float | None, softcap: float | None, **sizes: int,
) -> Any:
    """Return what a runtime gives for a call."""
    query, key, value = (arrays[name] for name in ("query", "key", "value"))
    ranks = {array.ndim for array in (query, key, value)}
    claim(ranks == {4} or 1 in ranks, "query, key and value have 4 axes")
    claim(query.dtype != key.dtype or key.dtype == value.dtype, "a value may have another dtype")
    claim(scale is None or not scale < 0, "the operator takes the root of the scale")
    if attn_mask is not None:
        claim(not is_causal, "a mask beside is_causal is allowed: both apply")
        claim(attn_mask.dtype.kind != "i", "a mask of integers is allowed")
        padded = opset > 23 and attn_mask.shape[-1] < key.shape[-2]
        claim(not padded, "a mask with fewer keys is padded with -∞, also where it has one")
        arrays["attn_mask"] = attn_mask
    attributes: dict[str, Any] = {"is_causal": 1} if is_causal else {}
    attributes |= {} if scale is None else {"scale": float(scale)}
    attributes |= {} if softcap is None else {"softcap": softcap}
    # The dtype in which the weights add up is for the caller to choose.
    attributes |= {"softmax_precision": TensorProto.FLOAT} if query.dtype.itemsize == 2 else {}
    return run(model(opset, arrays, attributes | sizes), arrays)


def opset_23(
    run: Run, query: Array, key: Array, value: Array, attn_mask: Array | None = None,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    causal_align: str = "top-left", softcap: float | None = None,
) -> Any:
    """Ask, with the keys before the first query's as a cache for the other alignment."""
    arrays = {"query": query, "key": key, "value": value}
    if is_causal and causal_align == "bottom-right":
        n_past = key.shape[-2] - query.shape[-2]
        claim(n_past >= 0, "a cache has the keys that came before the queries")
        for name in ("key", "value"):
            arrays[f"past_{name}"], arrays[name] = np.split(arrays[name], [n_past], axis=-2)
    return attended(run, 23, arrays, attn_mask, is_causal, scale, softcap)


def opset_24(
    run: Run, query: Array, key: Array, value: Array, attn_mask: Array | None = None,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    causal_align: str = "top-left", softcap: float | None = None,
) -> Any:
    """Ask, with the number of keys in a cache for the other alignment."""
    arrays = {"query": query, "key": key, "value": value}
    if is_causal and causal_align == "bottom-right":
        arrays["nonpad_kv_seqlen"] = np.full(len(query), key.shape[-2])
    return attended(run, 24, arrays, attn_mask, is_causal, scale, softcap)


def opset_25(
    run: Run, query: Array, key: Array, value: Array, attn_mask: Array | None = None,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    causal_align: str = "top-left", window: Window | None = None, softcap: float | None = None,
) -> Any:
    """Ask, with the number of keys in a cache, and -1 where a window has no end."""
    arrays = {"query": query, "key": key, "value": value}
    if causal_align == "bottom-right":
        arrays["nonpad_kv_seqlen"] = np.full(len(query), key.shape[-2])
    sides = zip(("left", "right"), window or (), strict=False)
    sizes = {f"{side}_window_size": -1 if size is None else size for side, size in sides}
    return attended(run, 25, arrays, attn_mask, is_causal, scale, softcap, **sizes)


def family() -> None:
    """Put each opset on each runtime into the list."""
    opsets: dict[int, Attention] = {23: opset_23, 24: opset_24, 25: opset_25}
    for run, name, packages in (
        (reference, "ONNX reference", ("onnx",)),
        (cpu_provider, "ONNX Runtime, CPU", ("onnxruntime", "onnx")),
    ):
        for opset, attention in opsets.items():
            adapters(
                ADAPTERS, f"{name}, opset {opset}", *packages, arrays="numpy", gradients=False,
                documentation=f"{OPERATOR}#l-onnx-op-attention-{opset}",
            )(partial(attention, run))


family()
