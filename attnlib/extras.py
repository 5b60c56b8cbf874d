"""What is not installed by default: packages that come with an extra, as in attnlib[torch]."""

from __future__ import annotations

import importlib

# The extra that brings a package: pip install "attnlib[figures]".
EXTRAS = {
    "torch": "torch",
    "triton": "triton",
    "matplotlib": "figures",
    "transformers": "models",
}


def needs(module: str, package: str) -> None:
    """Import a package for a module. Where it is missing, the error says which extra brings it."""
    try:
        importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        what = f"{module} needs {package}, which is not installed"
        how = f'pip install "attnlib[{EXTRAS[package]}]"'
        raise ModuleNotFoundError(f"{what}: {how}", name=package) from error
