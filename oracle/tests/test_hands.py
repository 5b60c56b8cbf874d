"""Kernels as people have them in hand: a right one and a faulty one in the shape of each."""

from __future__ import annotations

import json
import re
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
import torch
from faulty_kernels import at_one, flash_functions

import attncheck
from attncheck import cases, check, judged
from attncheck.__main__ import found, main
from attncheck._data import mapped, redrawn, tensors
from attncheck._pairs import Pair
from attncheck._record import record_beside
from attncheck._references import InHand

HERE = Path(__file__).with_name("hands")
DECODE = json.loads((HERE / "decode.json").read_text(encoding="utf-8"))
README = (HERE.parents[1] / "README.md").read_text(encoding="utf-8")
NATURAL = json.loads((HERE / "decode_natural.json").read_text(encoding="utf-8"))


@pytest.fixture(autouse=True)
def imports(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave the imports as they were: a task's files have names that others have."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in {"task", "utils", "reference"} & (set(sys.modules) - before):
        del sys.modules[name]


@dataclass
class Run:
    status: int
    said: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    def run(name: str, *options: str) -> Run:
        try:
            status = main([name, *options])
        except SystemExit as ended:
            status = int(str(ended.code))
        came = capsys.readouterr()
        return Run(status, came.out + came.err)

    return run


# -- a right one and a faulty one, in each shape ---------------------------------------------------


@pytest.mark.parametrize(
    ("name", "faulty", "said"),
    [
        ("kernelbench:sdpa.py", "",
         "Model is attention (BHSD): ModelNew is asked by the definition"),
        ("kernelbench:sdpa.py:sdpa_without_a_tail.py", "more than 16 keys",
         "ModelNew is asked by the definition"),
        ("kernelbench:block.py", "", "ModelNew is asked against Model, and not by the definition"),
        ("kernelbench:block.py:block_by_eights.py",
         "failed  axis 1 of 23 in place of 24, standard deviation 1.5: entry (0, 16, 0)",
         "the file's own numbers do not show it"),
        ("gpumode:contest/submission.py", "", "passed  prefill=31, standard deviation 1.5"),
        ("gpumode:contest/rounded.py", "failed  prefill=31, standard deviation 1.5: entry (0,",
         "the file's own numbers do not show it"),
        ("flashinfer-bench:decode.json:decode_right.json", "",
         "is attention (BSHD, log-sum-exp to base 2): the solution is asked by the definition"),
        ("flashinfer-bench:decode.json:decode_natural.json", "7 cases of lse, merge: other numbers",
         "the log-sum-exp: entry"),
    ],
)
def test_each_shape_is_asked_by_its_name(
    name: str, faulty: str, said: str, run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(HERE)
    only = ["--only", "lse", "pages", "merge"] if "decode" in name else []
    came = run(name, *only)
    assert came.status == bool(faulty), came.said
    assert faulty in came.said
    assert said in came.said
    if not only:
        told(name, came)


def told(name: str, came: Run) -> None:
    """Require that the README says of a name how many cases passed, or failed."""
    counts = re.findall(r"^all +(\d+) +(\d+) ", came.said, re.MULTILINE)
    passed, failed = map(int, counts[0]) if counts else (
        len(re.findall(rf"^{word} ", came.said, re.MULTILINE)) for word in ("passed", "failed"))
    row = next(own for own in README.splitlines() if f" `{name}` |" in own)
    assert (f"| {failed} fail" if failed else f"| {passed} of {passed} pass") in row, came.said


@pytest.mark.slow
@pytest.mark.parametrize("solution", ["right", "natural"])
def test_the_readme_says_what_comes_out_of_a_definition(
    solution: str, run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(HERE)
    name = f"flashinfer-bench:decode.json:decode_{solution}.json"
    told(name, run(name))


# -- KernelBench and GPU MODE ----------------------------------------------------------------------


def task(folder: Path, reference: str, submission: str, inputs: str = "") -> str:
    """Write a task of GPU MODE, and return its name."""
    drawn = "*(torch.randn(1, 2, size, 16, generator=g) for _ in range(3))"
    head = "import math\nimport torch\nattend = torch.nn.functional.scaled_dot_product_attention\n"
    (folder / "reference.py").write_text(
        f"{head}def generate_input(size, seed):\n"
        f"    g = torch.Generator().manual_seed(seed)\n    return {inputs or f'({drawn},)'}\n"
        f"def ref_kernel(data):\n    {reference}\n"
        "def check_implementation(data, output):\n"
        "    good = torch.allclose(output, ref_kernel(data), rtol=0.02, atol=0.02)\n"
        "    return '' if good else 'mismatch found!'\n"
    )
    (folder / "submission.py").write_text(f"{head}def custom_kernel(data):\n    {submission}\n")
    (folder / "task.yml").write_text('lang: "py"\n\ntests:\n  - {"size": 32, "seed": 1}\n')
    return f"gpumode:{folder / 'submission.py'}"


CAUSAL = "return attend(*data, is_causal=True)"
SQUARE = "q, k, v = data\n    s = (q @ k.mT / q.shape[-1]**.5).tril() + torch.full("
SQUARE += "(q.shape[2],) * 2, -math.inf).triu(1)\n    return s.softmax(-1) @ v"
STEPS = "{'x': torch.randn(2, size, 8, generator=g), 'n': size, 'table': torch.arange(size)}"
NARROW = "return torch.from_numpy(data['x'].numpy().astype('f2'))"
PLAIN = "return data['x'].cumsum(1)"


@pytest.mark.parametrize(
    ("reference", "submission", "inputs", "status", "said"),
    [
        (CAUSAL, CAUSAL, "", 0, "ref_kernel is attention (BHSD, causal at the top left)"),
        (CAUSAL, "return attend(*data)", "", 1, "26 cases of causal, bottom-right, layouts"),
        (SQUARE, CAUSAL, "", 0, "causal at the top left, as many queries as keys)"),
        ("return attend(*data, scale=2.0)", "return attend(*data, scale=2.0)", "", 0,
         "ref_kernel is no attention of its three inputs (entry"),
        ("return attend(*data)", "assert data[1].shape[2] % 8 == 0, 'eights'\n    "
         "return attend(*data)", "", 0, "custom_kernel refuses lengths other than the file's"),
        (PLAIN, "assert data['n'] % 8 == 0, 'eights'\n    return data['x'].cumsum(1)", STEPS, 0,
         "not asked: size=31, the file's own numbers; size=31, standard deviation 1.5"),
        (PLAIN, "raise ZeroDivisionError('again')", STEPS, 1,
         "failed  the file's own numbers: expected a result, but ZeroDivisionError: again"),
        (PLAIN, "data['x'] += 1\n    return (data['x'] - 1).cumsum(1)", STEPS, 1,
         "inputs that are left as they are"),
        ("data['x'] += 1\n    return data['x'] - 1", "data['x'] += 1\n    return data['x'] - 1",
         STEPS, 0, "passed  the file's own numbers"),
        (PLAIN, "global own\n    out = data['x'].cumsum(1)\n    if 'own' in globals() and "
         "own.shape == out.shape:\n        return own.copy_(out)\n    own = out\n    return own",
         STEPS, 1, "expected a result that stays, but the next call changed it"),
        (PLAIN, "return data['x'].cumsum(1).double()", STEPS, 1, "'float64')]"),
        ("return data['x'].log()", "return data['x'].log()", STEPS, 1, "gives NaN or ∞"),
        ("return torch.nn.functional.dropout(data['x'])", "return data['x']", STEPS, 1,
         "(ref_kernel gives another result each time)"),
        ("if data['n'] < 32: raise ValueError('small')\n    return data['x']", "return data['x']",
         STEPS, 0, "(ref_kernel gave ValueError: small)"),
        ("return torch.tensor(data['x'].float().tolist(), dtype=torch.half)",
         "return data['x'].half()", STEPS, 0, "passed  size=31, standard deviation 6"),
        (NARROW, NARROW, STEPS, 0, "is not to be had in float64 (its result is float16)"),
        (NARROW, "return data['x'].half() + 1", STEPS, 1, "mismatch found!"),
        ("assert data['x'].dtype == torch.float32, 'narrow'\n    return data['x']",
         "return data['x']", STEPS, 0, "to be had in float64 (AssertionError: narrow)"),
        ("return data['x'], data['table']", "return data['x'], data['table'] + 1", STEPS, 1,
         "result 2: entry (0,): expected 0, got 1"),
        (PLAIN, PLAIN, "{'x': torch.randn(8, size + 0 * (1 // (size > 31)), generator=g)}", 0,
         "not asked: size=31 (its inputs gave ZeroDivisionError"),
        (PLAIN, PLAIN, "(lambda x: {'x': x, 'copy': x.clone()})(torch.randn(2, size, 8, "
         "generator=g))", 0, "(one input may be computed from another)"),
    ],
)
def test_a_submission_is_asked_beside_its_reference(
    reference: str, submission: str, inputs: str, status: int, said: str, tmp_path: Path,
    run: Callable[..., Run],
) -> None:
    came = run(task(tmp_path, reference, submission, inputs))
    assert (came.status, said in came.said) == (status, True), came.said


def test_data_are_changed_within_all_that_holds_them() -> None:
    @dataclass(frozen=True)
    class Config:
        n: int
        weight: torch.Tensor

    both = namedtuple("both", "a b")
    one = torch.ones(2)
    data = {"a": both(one, 3), "b": [Config(1, one)], "c": torch.nn.Linear(1, 1), "d": Config}
    doubled = mapped(data, torch.Tensor.double)
    assert [x.dtype for x in tensors(doubled)] == [torch.float64] * 4
    assert doubled["a"].b == 3 and doubled["b"][0].n == 1 and doubled["d"] is Config
    assert {x.dtype for x in tensors(data)} == {torch.float32}


def test_what_two_seeds_give_alike_is_not_drawn_anew_and_weights_keep_their_size() -> None:
    same = torch.linspace(0, 1, 8)
    first, second = ([same, torch.randn(400), torch.randn(400) / 50] for _ in range(2))
    table, x, weight = redrawn(first, second, 6.0, 1)
    assert torch.equal(table, same)
    assert 5 < x.std() < 7
    assert 0.015 < weight.std() < 0.025
    quantised = [[*own, (own[1] * 10).to(torch.int8)] for own in (first, second)]
    assert redrawn(*quantised, 6.0, 1) is None


def test_long_axes_are_cut_on_a_cpu_where_the_reference_takes_others() -> None:
    def pair(reference: Any, kernel: Any) -> str:
        inputs = (lambda: [torch.rand(16, 2000, 70)],)
        return str(Pair(reference, kernel, reference, *inputs, ("Model", "ModelNew"), "").check(""))

    def whole(x: list[torch.Tensor]) -> torch.Tensor:
        if x[0].shape[1] != 2000:
            raise ValueError("2000")
        return x[0] * 2

    def double(x: list[torch.Tensor]) -> torch.Tensor:
        return x[0] * 2

    cut = "axis 0 of 2 in place of 16, axis 1 of 64 in place of 2000, the file's own numbers"
    assert f"passed  {cut}\n" in pair(double, double)
    assert "passed  axis 1 of 63 in place of 64, the" in pair(double, double)
    assert "passed  the file's own numbers" in pair(double, whole)  # it refuses all others
    assert "passed  axis 0 of 2 in place of 16, axis 0 of 1" not in pair(whole, double)


def test_inputs_of_kernelbench_may_need_their_numbers(
    tmp_path: Path, run: Callable[..., Run]
) -> None:
    source = (HERE / "sdpa.py").read_text().replace("torch.rand(2, 3, 64, 32) for", "made() for")
    more = "\n\ndef made():\n    x = torch.rand(2, 3, 64, 32)\n    return x * float(x.max() > 0)\n"
    (tmp_path / "own.py").write_text(source + more)
    came = run(f"kernelbench:{tmp_path / 'own.py'}", "--only", "dtypes")
    assert "Model is attention" in came.said


def test_a_model_that_rounds_is_asked_in_float64_and_one_that_leaves_torch_is_not(
    tmp_path: Path, run: Callable[..., Run]
) -> None:
    source, softmax = (HERE / "block.py").read_text(), "torch.softmax(scores, dim=-1)"
    out = "(torch.softmax(scores, dim=-1) @ value).transpose(1, 2).flatten(2)"
    for written, changed, said in (
        (softmax, "torch.softmax(scores.half(), dim=-1).float()", "standard deviation 6"),
        (softmax, f"{softmax}.to(torch.bfloat16).to(value.dtype)", "standard deviation 6"),
        (f"self.out({out})", f"torch.from_numpy(self.out({out}).numpy().astype('f4'))",
         "Model is not to be had in float64 (its result is float32): its own results"),
    ):
        assert written in source
        (tmp_path / "own.py").write_text(source.replace(written, changed))
        came = run(f"kernelbench:{tmp_path / 'own.py'}")
        assert (came.status, said in came.said) == (0, True), came.said


def test_a_call_of_too_many_numbers_is_not_asked() -> None:
    kernel = InHand(lambda query, key, value: None, "BHSD", head_dims=[8], heads=(64, 64))
    names = [case.name for case in cases(kernel=kernel, only=["values"])]
    assert "queries: 7, keys: 17" in names and "a batch of 65,537" not in names


# -- flashinfer-bench ------------------------------------------------------------------------------

RAGGED = """import math
import torch

def run(q, k, v, qo_indptr, kv_indptr, sm_scale):
    out, lse = torch.zeros_like(q), torch.full(q.shape[:2], -math.inf)
    for b in range(len(qo_indptr) - 1):
        rows, keys = (slice(int(x[b]), int(x[b + 1])) for x in (qo_indptr, kv_indptr))
        K, V = (x[keys].float().repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
        s = torch.einsum("qhd,khd->qhk", q[rows].float(), K) * sm_scale
        late = len(K) - len(s)
        future = torch.ones(len(s), len(K), dtype=torch.bool).triu(1 + late)
        s = s.masked_fill(future[:, None], -math.inf)
        lse[rows] = s.logsumexp(-1)
        out[rows] = torch.einsum("qhk,khd->qhd", s.softmax(-1).nan_to_num(), V).to(q.dtype)
    return out, lse
"""
PAGED = """import torch

def run(q, k_cache, v_cache, qo_indptr, kv_indptr, kv_indices, last_page_len, sm_scale):
    out = torch.zeros_like(q)
    for b, pages in enumerate(kv_indices.tensor_split(kv_indptr[1:-1].long())):
        n = (len(pages) - 1) * k_cache.shape[1] + last_page_len[b]
        K, V = (x[pages.long()].flatten(0, 1)[:n].float() for x in (k_cache, v_cache))
        K, V = (x.repeat_interleave(q.shape[1] // K.shape[1], 1) for x in (K, V))
        rows = slice(int(qo_indptr[b]), int(qo_indptr[b + 1]))
        s = torch.einsum("qhd,khd->qhk", q[rows].float(), K) * sm_scale
        out[rows] = torch.einsum("qhk,khd->qhd", s.softmax(-1), V).to(q.dtype)
    return out
"""


def trace(folder: Path, reference: str, solution: str, **more: Any) -> str:
    """Write a definition over what its reference takes, and a solution; return their name."""
    names = reference.split("run(")[1].split(")")[0].split(", ")
    axes: dict[str, dict[str, Any]] = {
        name: {"type": "var"} for name in ("t", "n", "qo", "kv", "pages")
    } | {name: {"type": "const", "value": n} for name, n in (("d", 16), ("page", 4))}
    heads = {"shape": ["t", "qo", "d"], "dtype": "float32"}
    keys = {"shape": ["pages", "page", "kv", "d"] if "kv_indices" in names else ["n", "kv", "d"]}
    whole = {"q": heads, **dict.fromkeys(("k", "v", "k_cache", "v_cache"), keys)}
    places = {"shape": ["n"], "dtype": "int32"}
    definition = {
        "name": "own", "axes": axes | more.pop("axes", {}), "reference": reference,
        "inputs": {name: whole.get(name, places) for name in names},
        "outputs": {"output": heads} | ({"lse": places} if "lse" in reference else {}),
    } | more
    solved = NATURAL | {"definition": "own", "sources": [{"path": "main.py", "content": solution}]}
    (folder / "definition.json").write_text(json.dumps(definition))
    (folder / "solution.json").write_text(json.dumps(solved))
    return f"flashinfer-bench:{folder / 'definition.json'}:{folder / 'solution.json'}"


AXES = {"qo": {"type": "const", "value": 4}, "kv": {"type": "const", "value": 2}}


@pytest.mark.parametrize(
    ("reference", "change", "axes", "status", "said"),
    [
        (RAGGED, ("", ""), {}, 0, "(BSHD, causal at the bottom right, log-sum-exp to base e)"),
        (RAGGED, ("", ""), AXES, 0, "more than 2 query heads for a key head"),
        # Heads in another order show although no case has as many.
        (RAGGED, ("repeat_interleave(q.shape[1] // k.shape[1], 1)", "repeat(1, 2, 1)"), AXES, 1,
         "other numbers"),
        (RAGGED, ("late = len(K) - len(s)", "late = 0"), {}, 1,
         "every one has another number of queries than of keys"),
        (RAGGED, ("return out, lse", "return {'output': out, 'lse': lse}"), {}, 0, "documents"),
        (PAGED, ("", ""), {}, 0, "pages "),
        (PAGED, ("+ last_page_len[b]", "+ 4"), {}, 1, "NaN"),
        (PAGED, ("    return out", "    global own\n    if 'own' not in globals():\n        own = "
                 "out.new_zeros(2**16)\n    return own[:out.numel()].view_as(out).copy_(out)"), {},
         1, "a result that stays, but the next call changed it"),
    ],
)
def test_a_solution_is_asked_what_its_definition_says(
    reference: str, change: tuple[str, str], axes: dict[str, Any], status: int, said: str,
    tmp_path: Path, run: Callable[..., Run],
) -> None:
    name = trace(tmp_path, reference, reference.replace(*change) if change[0] else reference,
                 axes=axes)
    came = run(name, "--only", "documents", "pages", "lse", "groups", "dtypes")
    assert (came.status, said in came.said) == (status, True), came.said


LATENT = """import torch

def run(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale):
    out, lse = torch.empty_like(q_nope), torch.empty(q_nope.shape[:2])
    for b, slots in enumerate(kv_indices.tensor_split(kv_indptr[1:-1].long())):
        K, P = (x[slots.long(), 0].float() for x in (ckv_cache, kpe_cache))
        s = (q_nope[b].float() @ K.mT + q_pe[b].float() @ P.mT) * sm_scale
        lse[b], out[b] = s.logsumexp(-1), (s.softmax(-1) @ K).to(out.dtype)
    return out, lse
"""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("return out, lse", "return out, lse"), ""),
        ((", sm_scale):", ", sm_scale, output, lse):"), ""),
        (("slots.long(), 0]", "torch.arange(len(slots)), 0]"), "failed  standard deviation 1.5"),
        ((" + q_pe[b].float() @ P.mT", ""), "failed  length=36, standard deviation 1.5"),
    ],
)
def test_latent_attention_is_asked_beside_its_reference(
    change: tuple[str, str], said: str, tmp_path: Path, run: Callable[..., Run]
) -> None:
    def spec(dtype: str, *shape: str) -> dict[str, Any]:
        return {"shape": list(shape) or None, "dtype": dtype}

    inputs = {
        "q_nope": spec("bfloat16", "batch_size", "h", "ckv"),
        "q_pe": spec("bfloat16", "batch_size", "h", "kpe"),
        "ckv_cache": spec("bfloat16", "num_pages", "page_size", "ckv"),
        "kpe_cache": spec("bfloat16", "num_pages", "page_size", "kpe"),
        "kv_indptr": spec("int32", "len_indptr"), "kv_indices": spec("int32", "num_kv_indices"),
        "sm_scale": spec("float32"),
    }
    axes = {name: {"type": "const", "value": n} for name, n in (("h", 4), ("ckv", 32), ("kpe", 8))}
    axes["page_size"] = {"type": "const", "value": 1}
    outputs = {"output": inputs["q_nope"], "lse": spec("float32", "batch_size", "h")}
    own = LATENT.replace(*change)
    if "output" in own:
        own = own.replace("    return out, lse", "").replace(
            "out, lse = torch.empty_like(q_nope), torch.empty(q_nope.shape[:2])", "out = output")
    came = run(trace(tmp_path, LATENT, own, axes=axes, inputs=inputs, outputs=outputs))
    assert (came.status, said in came.said) == (bool(said), True), came.said
    assert "the solution is asked against the reference" in came.said


# -- the hub ---------------------------------------------------------------------------------------


class Hub:
    """The package kernels, with one kernel."""

    def __init__(self, **functions: Any) -> None:
        self.asked: dict[str, Any] = {}
        self.module = SimpleNamespace(**functions)

    def get_kernel(self, name: str, **which: Any) -> Any:
        if name == "me/none":
            raise FileNotFoundError("no such kernel")
        self.asked = {"name": name, **which}
        return self.module


def test_a_kernel_of_the_hub_is_flash_attn_by_its_functions(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    own = flash_functions()["flash_attn"]
    hub = Hub(**own)
    monkeypatch.setitem(sys.modules, "kernels", hub)
    kernel: Any = found("hub:kernels-community/flash-attn2@2")
    assert hub.asked == {"name": "kernels-community/flash-attn2", "version": 2}
    assert kernel.pages.table == "block_table"
    assert check(at_one(kernel), only=["bottom-right", "lse"]).passed
    fault = "is_causal stands at the other corner"
    hub.module = SimpleNamespace(**flash_functions(fault)["flash_attn"])
    report = check(at_one(found("hub:kernels-community/flash-attn2@main")), only=["bottom-right"])
    assert hub.asked["revision"] == "main"
    assert len(report.failed) > 5 and "bottom-right: other numbers" in str(report)


def test_what_a_kernel_of_the_hub_lacks_is_not_claimed(
    monkeypatch: pytest.MonkeyPatch, run: Callable[..., Run]
) -> None:
    def flash_attn_func(q, k, v, softmax_scale=None, causal=False, window_size=(-1, -1)):
        raise NotImplementedError

    def flash_attn_with_kvcache(q, k_cache, v_cache, cache_seqlens=None, page_table=None):
        raise NotImplementedError

    monkeypatch.setitem(sys.modules, "kernels", Hub(flash_attn_func=flash_attn_func))
    kernel: Any = found("hub:me/old")
    assert (kernel.lse, kernel.documents, kernel.pages, kernel.softcap) == (None,) * 4
    both = Hub(flash_attn_func=flash_attn_func, flash_attn_with_kvcache=flash_attn_with_kvcache)
    monkeypatch.setitem(sys.modules, "kernels", both)
    newer: Any = found("hub:me/new")
    assert newer.pages.table == "page_table"
    torchs = Hub(attention=torch.nn.functional.scaled_dot_product_attention)
    monkeypatch.setitem(sys.modules, "kernels", torchs)
    assert "54       0        0" in run("hub:me/mine@1:attention", "--only", "values").said
    for name, said in (
        ("hub:me/mine@1:other", "expected other in me/mine@1; got no other among attention"),
        ("hub:me/mine@1", "expected flash_attn_func in me/mine@1, or hub:me/mine@1:FUNCTION with"),
        ("hub:me/none", "expected a kernel of the hub; me/none gave FileNotFoundError: no such"),
    ):
        came = run(name)
        assert (came.status, said in came.said) == (2, True), came.said
    monkeypatch.setitem(sys.modules, "kernels", None)
    assert "hub: needs the package kernels, but " in run("hub:me/mine").said


# -- what is missing is named ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("kernelbench:", "expected kernelbench:FILE[:FILE]; got 'kernelbench:'"),
        ("gpumode:a:b", "expected gpumode:FILE; got 'gpumode:a:b'"),
        ("flashinfer-bench:a", "expected flashinfer-bench:DEFINITION:SOLUTION; got"),
        ("kernelbench:none.py", "expected a file of Python; none.py is not there"),
        ("kernelbench:decode.json", "expected a file of Python; got decode.json"),
        ("kernelbench:sdpa_without_a_tail.py",
         "expected Model, get_inputs, get_init_inputs, ModelNew in sdpa_without_a_tail.py; got no "
         "Model, get_inputs, get_init_inputs among torch, nn, ModelNew"),
        ("kernelbench:sdpa.py:block_by_nines.py", "block_by_nines.py is not there"),
        ("gpumode:sdpa.py", "reference.py is not there"),
        ("flashinfer-bench:decode.json:sdpa.py", "expected a solution in JSON; sdpa.py gave "),
        ("flashinfer-bench:none.json:decode_right.json", "expected a definition in JSON; none.js"),
        ("flashinfer-bench:decode_right.json:decode_right.json",
         "expected a definition with name, axes, inputs, outputs, reference in decode_right.json; "
         "got no axes, inputs, outputs, reference"),
    ],
)
def test_what_is_missing_is_named(
    name: str, said: str, run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(HERE)
    came = run(name)
    assert (came.status, said in came.said) == (2, True), came.said


def test_what_cannot_be_run_is_named(tmp_path: Path, run: Callable[..., Run]) -> None:
    (tmp_path / "half.py").write_text("def (")
    assert "half.py gave SyntaxError" in run(f"kernelbench:{tmp_path / 'half.py'}").said
    whole = task(tmp_path, "return data", "return data", "1 / 0")
    assert "generate_input(size=32, seed=1) to run; got ZeroDivisionError" in run(whole).said
    source = (HERE / "sdpa.py").read_text()
    for written, changed, said in (
        ("torch.rand(2, 3, 64, 32)", "torch.ones(2) @ torch.ones(3)", "get_inputs() to run; got"),
        ("class ModelNew(nn.Module):", "class ModelNew(nn.Module):\n    def __init__(self, n): ...",
         "ModelNew(*get_init_inputs()) to run; got TypeError"),
    ):
        (tmp_path / "own.py").write_text(source.replace(written, changed))
        assert said in run(f"kernelbench:{tmp_path / 'own.py'}").said
    (tmp_path / "task.yml").write_text("tests:\n\ntests:\n  - {size: 3}\n  - {1}\n")
    assert 'such as - {"size": 64, "seed": 1}; got none' in run(whole).said
    (tmp_path / "task.yml").write_text("name: empty\n")
    assert 'such as - {"size": 64, "seed": 1}; got none' in run(whole).said
    (tmp_path / "task.yml").unlink()
    assert "expected a task.yml with tests; " in run(whole).said


@pytest.mark.parametrize(
    ("definition", "solution", "said"),
    [
        ({}, {"definition": "other"}, "expected a solution of gqa_paged_decode_h8_kv4_d32_ps1 in"),
        ({"inputs": {"q": {"shape": ["other"], "dtype": "int8"}}}, {},
         "expected axes among batch_size, total_q, "),
        ({"reference": "def run(q, k, v, a, b, c):\n    return q, q[..., 0].float()"}, {},
         "expected a reference that is attention in "),
        ({}, {"spec": {"entry_point": "main.cu::run"}},
         "expected an entry point in Python, such as main.py::run, in "),
        ({}, {"spec": {"entry_point": "main.py::walk"}}, "expected walk in "),
        ({}, {"sources": [{"path": "main.py", "content": "def run(q, k):\n    return q"}]},
         "a function of q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale, and of the outputs"),
    ],
)
def test_a_definition_or_a_solution_that_cannot_be_asked_is_named(
    definition: Any, solution: Any, said: str, tmp_path: Path, run: Callable[..., Run]
) -> None:
    (tmp_path / "definition.json").write_text(json.dumps(DECODE | definition))
    (tmp_path / "solution.json").write_text(json.dumps(NATURAL | solution))
    both = f"{tmp_path / 'definition.json'}:{tmp_path / 'solution.json'}"
    came = run(f"flashinfer-bench:{both}", *([] if "inputs" in definition else ["--only", "pages"]))
    assert came.status and said in came.said, came.said


def test_a_pair_takes_no_topics(run: Callable[..., Run]) -> None:
    came = run(f"kernelbench:{HERE / 'block.py'}", "--only", "masks", "--search", "3")
    words = "expected --device, --seed and --json alone beside a reference that is asked itself"
    assert (came.status, f"{words}; got --only, --search" in came.said) == (2, True)


# -- the other ways to ask -------------------------------------------------------------------------

SCHEMA = json.loads((Path(attncheck.__file__).parent / "schema.json").read_text("utf-8"))


def test_the_record_of_a_pair_has_the_schema_of_all(
    tmp_path: Path, run: Callable[..., Run]
) -> None:
    file, block = tmp_path / "result.json", HERE / "block.py"
    came = run(f"kernelbench:{block}:{HERE / 'block_by_eights.py'}", "--json", str(file))
    own = json.loads(file.read_text("utf-8"))
    jsonschema.validate(own, SCHEMA)
    assert (came.status, own["passed"], own["judged"]) == (1, False, False)
    assert own["score"]["asked"] == len(own["cases"]) == own["there"] == 6
    assert own["groups"] == [{
        "kind": "NaN", "condition": "", "cases": 3,
        "smallest": "axis 1 of 23 in place of 24, the file's own numbers",
    }]
    for case in own["cases"]:
        assert f"{'passed' if case['passed'] else 'failed'}  {case['id']}" in came.said
        assert case["message"] in came.said and (case["group"] is None) == case["passed"]
    assert run(f"kernelbench:{block}", "--json", str(file)).status == 0
    assert json.loads(file.read_text("utf-8"))["score"]["score"] == 1.0


@pytest.mark.parametrize(
    ("fault", "kind", "sort"),
    [
        ("return (data * 2, data.sub_(1))[0]", "an input is modified", "unsafe"),
        ("return kept.copy_(data * 2)", "expected a result that stays, but the next call "
         "changed it", "unsafe"),
        ("return data[:1] * 2", "another shape or dtype", "wrong numbers"),
        ("return data * 3", "other numbers", "wrong numbers"),
        ("raise OSError('no')", "raised: OSError: no", "wrong numbers"),
    ],
)
def test_what_is_wrong_with_a_pair_has_a_kind_and_a_class(fault: str, kind: str, sort: str) -> None:
    there: dict[str, Any] = {"kept": torch.zeros(2, 3)}
    exec(f"def kernel(data):\n    {fault}", there)

    def right(data: Any) -> Any:
        return data * 2

    pair = Pair(right, there["kernel"], right, lambda: torch.randn(2, 3), ("a", "b"), "")
    report = pair.check("mine")
    own = record_beside(report)
    jsonschema.validate(own, SCHEMA)
    first = next(case for case in own["cases"] if not case["passed"])
    assert (first["kind"], first["class"]) == (kind, sort), str(report)


def test_a_judge_asks_no_kernel_that_runs_beside_its_reference(run: Callable[..., Run]) -> None:
    came = run(f"kernelbench:{HERE / 'sdpa.py'}", "--judge")
    assert came.status == 2 and "whose kernel and reference run in one process" in came.said


def test_a_kernel_of_the_hub_can_be_judged(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(
        "import torch\n"
        "class Found:\n"
        "    attention = staticmethod(torch.nn.functional.scaled_dot_product_attention)\n"
        "def get_kernel(name, revision):\n    return Found\n"
    )
    case = "values[scale-2-float32-d13]"
    report = judged("hub:me/mine@main:attention", case=[case], folder=tmp_path)
    assert report.passed and len(report.results) == 1, str(report)
