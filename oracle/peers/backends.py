"""How the arrays of each library are made, read and differentiated.

The cases of `attncheck` hold float64 numbers. A backend turns them into the arrays of one
library, and its results back. What half precision costs is measured with torch for all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attncheck import Backend, Call, Given, WrongResultError, backend_for

Array = NDArray[Any]


def torch_backend() -> Backend:
    """Return the backend for tensors on the CPU."""
    return backend_for("torch")


class Numpy(Backend):
    """Arrays of NumPy, which have no gradients (`verdict` says so)."""

    def __init__(self) -> None:
        self.numpy, self.torch = backend_for("numpy"), backend_for("torch")

    def give(self, given: Given) -> Any:
        """Return the argument as an array."""
        return self.numpy.give(given)

    def bits(self, own: Any) -> bytes:
        """Return what an array holds."""
        return np.asarray(own).tobytes()

    def take(self, result: Any) -> tuple[Array, str]:
        """Return a result in float64, and the name of its dtype."""
        if not hasattr(result, "shape"):
            raise WrongResultError(f"expected an array, got {type(result).__qualname__}")
        own = np.asarray(result)
        return own.astype(np.float64), own.dtype.name

    def shares(self, result: Any, own: Any) -> bool:
        """Return whether a result lies in the memory of an argument."""
        return bool(np.may_share_memory(np.asarray(result), np.asarray(own)))

    def peer(self, call: Call) -> Array:
        """Return plain attention by torch, every step in the inputs' dtype."""
        return self.torch.peer(call)

    def peer_gradients(self, call: Call) -> dict[str, Array]:
        """Return the gradients of plain attention by torch, every step in the inputs' dtype."""
        return self.torch.peer_gradients(call)


class Unwritable(Numpy):
    """Arrays that no program can write to, so that shared memory harms nobody.

    They have no layouts either.
    """

    def contiguous(self, given: Given) -> Array:
        """Return the argument as an array of NumPy, without its layout."""
        contiguous: Array = self.numpy.give(given._replace(layout=None))
        return contiguous

    def shares(self, result: Any, own: Any) -> bool:
        """Return False."""
        return False


class Jax(Unwritable):
    """Arrays of JAX, in float64 where a case asks for it."""

    def __init__(self) -> None:
        super().__init__()
        import jax

        jax.config.update("jax_enable_x64", True)

    def give(self, given: Given) -> Any:
        """Return the argument as an array of JAX."""
        import jax.numpy as jnp

        return jnp.asarray(self.contiguous(given))

    def gradients(self, attention: Any, own: Any, upstream: Any, wanted: Any) -> Any:
        """Return the gradients by jax.vjp."""
        import jax

        _, back = jax.vjp(lambda leaves: attention(**(own | leaves)), {n: own[n] for n in wanted})
        return back(upstream)[0]


class Tensorflow(Unwritable):
    """Tensors of TensorFlow."""

    def give(self, given: Given) -> Any:
        """Return the argument as a tensor."""
        import tensorflow as tf

        return tf.constant(self.contiguous(given))

    def gradients(self, attention: Any, own: Any, upstream: Any, wanted: Any) -> Any:
        """Return the gradients from a tape."""
        import tensorflow as tf

        leaves = [own[name] for name in wanted]
        with tf.GradientTape() as tape:
            tape.watch(leaves)
            result = attention(**own)
        found = tape.gradient(result, leaves, output_gradients=upstream)
        return dict(zip(wanted, found, strict=True))


class Tinygrad(Unwritable):
    """Tensors of tinygrad, which has no bfloat16 in NumPy."""

    def give(self, given: Given) -> Any:
        """Return the argument as a tensor."""
        from tinygrad import Tensor, dtypes

        if given.dtype != "bfloat16":
            return Tensor(np.ascontiguousarray(self.contiguous(given)))
        return Tensor(np.ascontiguousarray(given.numbers, np.float32)).cast(dtypes.bfloat16)

    def bits(self, own: Any) -> bytes:
        """Return what a tensor holds."""
        return self.take(own)[0].tobytes()

    def take(self, result: Any) -> tuple[Array, str]:
        """Return a result in float64, and the name of its dtype."""
        names = {"half": "float16", "__bf16": "bfloat16", "float": "float32", "double": "float64"}
        name = names.get(result.dtype.name, result.dtype.name)
        own = result.float() if name == "bfloat16" else result
        return own.numpy().astype(np.float64), name

    def gradients(self, attention: Any, own: Any, upstream: Any, wanted: Any) -> Any:
        """Return the gradients by Tensor.gradient."""
        leaves = [own[name] for name in wanted]
        result = attention(**own)
        found = result.gradient(*leaves, gradient=upstream)
        return dict(zip(wanted, found, strict=True))


KINDS: dict[str, Callable[[], Backend]] = {
    "torch": torch_backend,
    "numpy": Numpy,
    "jax": Jax,
    "tensorflow": Tensorflow,
    "tinygrad": Tinygrad,
}
