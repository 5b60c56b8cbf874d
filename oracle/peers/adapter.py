"""What an adapter is, and how it says that its library does not claim something."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from attncheck import Also, Kernel

Attention = Callable[..., Any]


class NotClaimed(Exception):  # noqa: N818, it is an answer and not an error
    """Say that the library does not offer what a case asks for."""


@dataclass(frozen=True)
class Adapter:
    """A library's attention with the signature of `scaled_dot_product_attention`.

    A keyword more says more: `causal_align`, `window`, `sinks`, `softcap`, and `return_lse`, with
    which it returns the log-sum-exp (…, H, L) beside the output.

    Attributes:
        name: What is called, as its users write it.
        packages: The packages whose versions are stored with the results, the library's own first.
        documentation: Where the library says what the function does.
        attention: The function. A keyword that it lacks is not claimed.
        arrays: The kind of arrays it takes, one of `peers.backends.KINDS`.
        without: Topics of `attncheck` that the library does not claim, with the reason.
        gradients: Whether it can be differentiated.
    """

    name: str
    packages: tuple[str, ...]
    documentation: str
    attention: Attention
    arrays: str = "torch"
    without: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    gradients: bool = True

    def kernel(self, function: Attention) -> Kernel:
        """Return what is claimed, for a function that calls the library as `attention` does."""
        words = inspect.signature(self.attention).parameters
        sinks, softcap = (word if word in words else None for word in ("sinks", "softcap"))
        lse = Also(function, always={"return_lse": True}) if "return_lse" in words else None
        return Kernel(
            function, gradients=self.gradients, lse=lse, sinks=sinks, softcap=softcap,
            not_claimed=self.without,
        )


def claim(condition: object, reason: str) -> None:
    """Raise NotClaimed with the reason where the condition does not hold."""
    if not condition:
        raise NotClaimed(reason)


def adapters(
    into: list[Adapter], name: str, *packages: str, documentation: str, **more: Any
) -> Callable[[Attention], Attention]:
    """Return a decorator that puts a function, as an adapter of this name, into a list."""

    def keep(attention: Attention) -> Attention:
        into.append(Adapter(name, packages, documentation, attention, **more))
        return attention

    return keep
