"""Cases in a file, read in C; and the badge, as GitHub's action makes it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors import safe_open
from safetensors.torch import load_file

import attncheck
from attncheck import backend_for
from attncheck.__main__ import main
from attncheck._export import everything, export
from attnlib import numpy_dense

ORACLE = Path(attncheck.__file__).parents[1]


def said(file: Path) -> dict[str, Any]:
    with safe_open(file, "pt") as held:
        about: dict[str, str] = held.metadata()
    assert about.pop("schema") == "1"
    return {own: json.loads(text) for own, text in about.items()}


def test_a_file_has_what_the_table_asks(tmp_path: Path) -> None:
    """Another reader of safetensors finds the numbers of each case, in their dtype."""
    file, backend = tmp_path / "cases.safetensors", backend_for("torch")
    every = [case for case in everything("torch") if case.topic not in ("large masks", "compiled")]
    chosen = every[::5] + [case for case in every if case.topic in ("errors", "pages", "merge")]
    assert export(chosen, file, backend) == len({case.id for case in chosen})
    arrays, about = load_file(file), said(file)
    assert {own["topic"] for own in about.values()} == {case.topic for case in every}
    for case in chosen:
        call, own = case.call, about[case.id]
        given = {name: (x, f"{case.id}/{name}") for name, x in call.given.items()}
        if call.neighbour is not None:
            assert own["refused"]
            for name, x in call.neighbour.given.items():
                given[f"accepted {name}"] = x, f"{case.id}/accepted/{name}"
        for x, name in given.values():
            want = backend.give(x._replace(layout=None))
            assert torch.equal(arrays[name].nan_to_num(7), want.nan_to_num(7)), name
            assert arrays[name].dtype == want.dtype
        if call.neighbour is None:
            bounds = [name for name in arrays if name.startswith(f"{case.id}/bound/")]
            assert bounds, case.id
            for name in bounds:
                assert arrays[name].shape == arrays[name.replace("/bound/", "/expected/")].shape


def test_what_comes_out_is_right_within_the_bound(tmp_path: Path) -> None:
    file = tmp_path / "cases.safetensors"
    only = ["--only", "causal", "lse", "layouts", "errors"]
    assert main(["--export", str(file), *only]) == 0
    arrays, about = load_file(file), said(file)
    own = "causal[query-5-E-key-7-E-float32-d13]"
    plain = {"topic": "causal", "dtype": "float32", "keywords": {"is_causal": True}, "plain": True}
    assert about[own] == plain
    names, *lines = Path(f"{file}.txt").read_text(encoding="utf-8").splitlines()
    assert {line.split()[-1] for line in lines} == {n for n, x in about.items() if "plain" in x}
    line = next(line.split() for line in lines if line.endswith(own))
    told = dict(zip(names.split(), line, strict=True))
    assert line[:8] == ["float32", "1", "5", "7", "13", "11", "1", str(13**-0.5)]
    key = np.fromfile(file, "float32", 7 * 13, offset=int(told["key"]))
    assert (key == arrays[f"{own}/key"].numpy().ravel()).all()
    given = [arrays[f"{own}/{name}"].double().numpy() for name in ("query", "key", "value")]
    output = numpy_dense.scaled_dot_product_attention(*given, is_causal=True)
    error = np.abs(arrays[f"{own}/expected/output"].numpy() - output)
    assert (error < arrays[f"{own}/bound/output"].numpy()).all()
    own = "lse[a-batch-of-heads-float32-d13]"
    given = [arrays[f"{own}/{name}"].double().numpy() for name in ("query", "key", "value")]
    _, lse = numpy_dense.scaled_dot_product_attention_with_lse(*given)
    np.testing.assert_allclose(arrays[f"{own}/expected/lse"].numpy(), lse, rtol=1e-12)
    assert about["errors[scale-nan-float32-d13]"]["keywords"] == {"scale": "nan"}
    assert any("untouched" in own for own in about.values())
    assert any("strides" in own for own in about.values())


def test_what_cannot_be_measured_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    file = tmp_path / "cases.safetensors"
    assert main(["--export", str(file), "--kind", "numpy", "--only", "dtypes"]) == 0
    last = "cases of bfloat16 are left out: ml_dtypes is not installed"
    assert capsys.readouterr().out.splitlines()[-1] == last
    assert {own["dtype"] for own in said(file).values()} == {"float16", "float32", "float64"}


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_reader_in_c_finds_a_planted_fault(tmp_path: Path) -> None:
    file, reader = tmp_path / "cases.safetensors", tmp_path / "reader"
    only = ["--only", "values", "causal", "masks", "documents"]
    assert main(["--export", str(file), "--kind", "numpy", *only]) == 0
    source = str(ORACLE / "readers" / "reader.c")
    for fault in ([], ["-DWRONG_CORNER"]):
        warnings = ["-Wall", "-Wextra", "-Werror"]
        subprocess.run(["cc", "-O2", *warnings, *fault, "-o", reader, source, "-lm"], check=True)
        command = [reader, file, f"{file}.txt"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        *failed, last = done.stdout.splitlines()
        n_plain = sum("plain" in own and own["dtype"] == "float32" for own in said(file).values())
        assert last == f"{n_plain} asked, {len(failed)} failed" and n_plain > 50
        assert done.returncode == bool(fault) == bool(failed), done.stdout + done.stderr
        assert all(own.startswith("causal[") for own in failed)


KERNEL = """
from attnlib.numpy_dense import scaled_dot_product_attention as right

def blind(query, key, value, is_causal=False, scale=None):
    return right(query, key, value, scale=scale)
"""


@pytest.mark.parametrize(("name", "status", "color"), [("right", 0, "brightgreen"),
                                                       ("blind", 123, "red")])
def test_the_action_asks_a_kernel_and_makes_a_badge(
    name: str, status: int, color: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(KERNEL, encoding="utf-8")
    action = yaml.safe_load((ORACLE / "action.yml").read_text(encoding="utf-8"))
    install, ask = action["runs"]["steps"]
    assert install["run"] == 'python -m pip install "$GITHUB_ACTION_PATH"'
    inputs = {
        "KERNEL": f"mine:{name}", "BADGE": "a badge.json",
        "ARGUMENTS": '--kind numpy --only causal "soft cap"',
    }
    assert {*ask["env"]} == {*inputs}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    packages = os.pathsep.join([str(ORACLE), str(Path(numpy_dense.__file__).parents[1])])
    summary = tmp_path / "summary"
    rest = {"GITHUB_STEP_SUMMARY": str(summary), "RUNNER_TEMP": str(tmp_path)}
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", ask["run"]], cwd=tmp_path,
        env=os.environ | inputs | rest | {"PATH": path, "PYTHONPATH": packages},
        capture_output=True, text=True, check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    badge = json.loads((tmp_path / "a badge.json").read_text(encoding="utf-8"))
    line = f"{badge['label']}: {badge['message']}"
    assert line == done.stdout.splitlines()[-1] == summary.read_text(encoding="utf-8").strip()
    assert badge["color"] == color and line.startswith(f"attncheck {attncheck.__version__}: ")
    assert (" 0 failed" in line) == (status == 0) and "topics left out" in line


def test_a_badge_praises_nothing_that_was_not_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, own = tmp_path / "badge.json", "attnlib.numpy_dense:scaled_dot_product_attention"
    file.write_text("old", encoding="utf-8")
    for more in (["--case", "values[scale-2-float32-d13]"], ["--search", "3"]):
        with pytest.raises(SystemExit):
            main([own, "--kind", "numpy", "--badge", str(file), *more])
        assert "no --case and no --search beside --badge" in capsys.readouterr().err
        assert not file.exists()
