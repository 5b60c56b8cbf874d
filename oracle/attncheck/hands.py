"""Kernels as people have them in hand, each by one name.

    python -m attncheck kernelbench:model.py                 Model, ModelNew, get_inputs in a file
    python -m attncheck kernelbench:model.py:model_new.py    the same in two files
    python -m attncheck gpumode:submission.py                beside its reference.py and task.yml
    python -m attncheck flashinfer-bench:definition.json:solution.json
    python -m attncheck hub:kernels-community/flash-attn2@2  a version of it, or a revision
    python -m attncheck hub:my-name/my-kernel@main:attention a function with torch's signature

flash-attn, FlashInfer, xformers and torch's `varlen_attn` are in `adapters`. A kernel beside a
reference is asked in one of two ways, and the report says in which. Where the reference is
attention of query, key and value, as calls of it show, the definition is asked, with the axes,
dtype and head dimensions of the file's inputs. Any other reference, such as a block with weights,
is asked against itself in float64 (`_pairs`). All files are run, as importing them would, in this
process: of these names, a judge takes hub: alone.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from attncheck._claims import Kernel

ORDERS = {3: ("HSD", "SHD"), 4: ("BHSD", "BSHD")}  # of axes, by their number


def in_hand(name: str, device: str = "cpu") -> Any:
    """Return what a name stands for: a `Kernel`, or a `Pair` where the definition says nothing.

    References are asked on the device on which the kernel will be.

    Raises:
        ValueError: a file that is not there or lacks something, in words.
    """
    prefix, _, rest = name.partition(":")
    parts, (build, least, words) = rest.split(":"), SHAPES[prefix]
    if not (all(parts) and least <= len(parts) <= 1 + words.count(":")):
        raise ValueError(f"expected {prefix}:{words}; got {name!r}")
    return build(device, *parts)


def module_of(file: str | Path, name: str = "") -> ModuleType:
    """Return a file as a module, run anew.

    Raises:
        ValueError: a file that is not there, or that cannot be run.
    """
    path = Path(file)
    if not path.is_file():
        raise ValueError(f"expected a file of Python; {path} is not there")
    name = name or f"attncheck_hand_{path.stem}"
    spec: Any = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise ValueError(f"expected a file of Python; got {path}")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
        raise ValueError(f"expected a file that can be run; {path} gave {words}") from error
    return module


def required(module: ModuleType, names: tuple[str, ...], where: str | Path) -> list[Any]:
    """Return what a module has under these names; it must have all of them."""
    missing = [name for name in names if not hasattr(module, name)]
    if missing:
        there = [own for own in vars(module) if not own.startswith("_")]
        words = f"no {', '.join(missing)} among {', '.join(there) or 'nothing'}"
        raise ValueError(f"expected {', '.join(names)} in {where}; got {words}")
    return [getattr(module, name) for name in names]


def _given(name: str, function: Callable[..., Any], **arguments: Any) -> Any:
    """Return what a function of a file returns; what it raises is told in words."""
    try:
        return function(**arguments)
    except Exception as error:
        words = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise ValueError(f"expected {name} to run; got {words}") from error


# Two models in KernelBench's shape ----------------------------------------------------------------


def _kernelbench(device: str, file: str, new: str = "") -> Any:
    """Return ModelNew: each model is made after the same seed, as KernelBench does."""
    from attncheck._data import seeded
    from attncheck._pairs import Pair

    module, names = module_of(file), ("Model", "get_inputs", "get_init_inputs")
    model, get_inputs, get_init_inputs, *own = required(
        module, names if new else (*names, "ModelNew"), file
    )
    model_new = own[0] if own else required(module_of(new), ("ModelNew",), new)[0]
    both: list[Any] = []
    said = "Model", "ModelNew"
    for word, one in zip(said, (model, model_new), strict=True):
        named = {"of": one, "inputs": get_init_inputs, "device": device}
        with seeded(0):
            both.append(_given(f"{word}(*get_init_inputs())", _module, **named))
    asked = _attention(_quiet(both[0]), _quiet(both[1]), _shapes_of(get_inputs), said, device)
    if isinstance(asked, Kernel):
        return asked
    modules = (*both, copy.deepcopy(both[0]).double())
    reference, kernel, exact = ((lambda data, f=own: f(*data)) for own in modules)
    return Pair(reference, kernel, exact, lambda: list(get_inputs()), said, asked)


def _module(of: Callable[..., Any], inputs: Callable[[], Any], device: str) -> Any:
    return of(*inputs()).to(device)


def _shapes_of(get_inputs: Callable[[], Any]) -> list[Any]:
    """Return the inputs, without their numbers where torch can do without them."""
    torch: Any = importlib.import_module("torch")
    try:
        with torch.device("meta"):
            return list(get_inputs())
    except Exception:
        return list(_given("get_inputs()", get_inputs))


# A submission in GPU MODE's shape -----------------------------------------------------------------


def _gpumode(device: str, file: str) -> Any:
    """Return custom_kernel, beside the files of its task: reference, task, utils and task.yml."""
    from attncheck._pairs import Pair

    path = Path(file).resolve()
    folder = path.parent
    sys.path[:0] = [str(folder), str(folder.parent)]  # utils.py may lie one folder up
    for name in ("task", "utils", "reference"):
        sys.modules.pop(name, None)
    names = ("generate_input", "ref_kernel", "check_implementation")
    reference = module_of(folder / "reference.py", "reference")
    generate, ref_kernel, check = required(reference, names, folder / "reference.py")
    (custom,) = required(module_of(path), ("custom_kernel",), path)
    test = _smallest_test(folder / "task.yml")
    given = ", ".join(f"{name}={own!r}" for name, own in test.items())
    data = _given(f"generate_input({given})", generate, **test)
    said, asked = ("ref_kernel", "custom_kernel"), "data is no tuple of three tensors"
    if isinstance(data, (tuple, list)):
        of = type(data)
        both = ((lambda *qkv, f=own: f(of(qkv))) for own in (ref_kernel, custom))
        asked = _attention(_quiet(next(both)), _quiet(next(both)), list(data), said, device)
    if isinstance(asked, Kernel):
        return asked
    return Pair(ref_kernel, custom, ref_kernel, generate, said, asked, test, check)


def _smallest_test(file: Path) -> dict[str, Any]:
    """Return the smallest of the tests in a task.yml, each of which stands on a line."""
    if not file.is_file():
        raise ValueError(f"expected a task.yml with tests; {file} is not there")
    _, _, rest = file.read_text(encoding="utf-8").partition("\ntests:")
    lines = re.findall(r"^ *- *(\{.*\})", re.split(r"\n(?=\w)", rest)[0], re.MULTILINE)
    try:
        tests = [json.loads(line) for line in lines]
    except json.JSONDecodeError:
        tests = []
    if not tests:
        raise ValueError(f'expected tests in {file}, such as - {{"size": 64, "seed": 1}}; got none')
    return min(tests, key=lambda own: sum(n for n in own.values() if isinstance(n, int)))


# Both are attention, or they are not --------------------------------------------------------------


def _quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that keeps nothing for gradients, and takes is_causal for what it is."""
    torch: Any = importlib.import_module("torch")

    def quiet(query: Any, key: Any, value: Any, is_causal: bool = False) -> Any:
        with torch.no_grad():
            return function(query, key, value)

    return quiet


def _attention(
    reference: Callable[..., Any], kernel: Callable[..., Any], inputs: list[Any],
    names: tuple[str, str], device: str,
) -> Any:
    """Return the kernel to be asked by the definition; or why it cannot be, in words."""
    from attncheck._references import InHand, recognised, refusal
    from attncheck._types import FLOATING

    kinds = {(str(getattr(x, "dtype", "")), getattr(x, "ndim", 0)) for x in inputs}
    dtype, rank = kinds.pop()[0][6:], getattr(inputs[0], "ndim", 0)
    if len(inputs) != 3 or kinds or dtype not in FLOATING or rank not in ORDERS:
        return f"{names[0]} takes something else than three tensors of one dtype with 3 or 4 axes"
    dims = inputs[0].shape[-1], inputs[2].shape[-1]
    found = recognised(reference, ORDERS[rank], dtype, dims, device)
    if isinstance(found, str):
        return f"{names[0]} is no attention of its three inputs ({found})"
    if no := refusal(kernel, found, dtype, dims, device):
        return f"{names[1]} refuses lengths other than the file's ({no})"
    claims: dict[str, Any] = {
        "axes": found.axes, "head_dims": [dims], "dtypes": [dtype], "mask": None, "groups": None,
        "causal": [found.always_causal or "top-left"], "gradients": False,
        "not_claimed": {
            "errors": "nothing is said of invalid calls",
            "gradients": "nothing is said of gradients",
            "empty": "the file's inputs have no axis of length 0",
            "numbers": "the file's inputs have no NaN",
        },
    }
    how = f"{names[0]} is attention ({found}): {names[1]} is asked by the definition"
    return InHand(
        kernel, **claims, always_causal=found.always_causal, square=found.square,
        reference=Kernel(reference, **claims), said=how, device=device,
    )


# A definition of flashinfer-bench, and a kernel of the hub ----------------------------------------


def _flashinfer_bench(device: str, definition: str, solution: str) -> Any:
    from attncheck._traces import kernel_of

    return kernel_of(definition, solution, device)


def _hub(device: str, repository: str, function: str = "") -> Kernel:
    """Return a kernel of Hugging Face's hub: flash-attn's functions, or one by its name."""
    from attncheck.adapters import of_flash_attn

    try:
        kernels: Any = importlib.import_module("kernels")
    except ImportError as error:
        raise ValueError(f"hub: needs the package kernels, but {error}") from error
    name, _, version = repository.partition("@")
    which = {"version": int(version)} if version.isdigit() else {"revision": version or "main"}
    try:
        module = kernels.get_kernel(name, **which)
    except Exception as error:
        words = f"{type(error).__name__}: {error}"
        raise ValueError(f"expected a kernel of the hub; {repository} gave {words}") from error
    if function:
        return Kernel(required(module, (function,), repository)[0])
    if hasattr(module, "flash_attn_func"):
        return of_flash_attn(module)
    there = [own for own in dir(module) if callable(getattr(module, own)) and own[0] != "_"]
    raise ValueError(
        f"expected flash_attn_func in {repository}, or hub:{repository}:FUNCTION with torch's "
        f"signature; got {', '.join(there) or 'no functions'}"
    )


# What makes a kernel of each prefix, how many parts it needs at least, and their names.
SHAPES: dict[str, tuple[Callable[..., Any], int, str]] = {
    "kernelbench": (_kernelbench, 1, "FILE[:FILE]"),
    "gpumode": (_gpumode, 1, "FILE"),
    "flashinfer-bench": (_flashinfer_bench, 2, "DEFINITION:SOLUTION"),
    "hub": (_hub, 1, "OWNER/NAME@VERSION[:FUNCTION]"),
}
