"""How the arrays of each library are made, read and differentiated.

The cases of `attnlib.conformance` hold float64 numbers. A kind of hands turns them into the arrays
of one library, and its results back. What half precision costs is measured with torch for all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attnlib._checks import Array
from attnlib.conformance._arrays import Arrays, of_dtype
from attnlib.conformance._case import Given, WrongResultError
from attnlib.conformance._tensors import Tensors


class Numpy(Tensors):
    """Arrays of NumPy, which have no gradients (`verdict` says so)."""

    def give(self, given: Given) -> Any:
        """Return the argument as an array."""
        return Arrays().give(given)

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


class Unwritable(Numpy):
    """Arrays that no program can write to, so that shared memory harms nobody."""

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

        return jnp.asarray(of_dtype(given.numbers, given.dtype))

    def gradients(self, attention: Any, own: Any, upstream: Any, wanted: Any, options: Any) -> Any:
        """Return the gradients by jax.vjp."""
        import jax

        _, back = jax.vjp(
            lambda leaves: attention(**(own | leaves), **options), {n: own[n] for n in wanted}
        )
        return back(upstream)[0]


class Tensorflow(Unwritable):
    """Tensors of TensorFlow."""

    def give(self, given: Given) -> Any:
        """Return the argument as a tensor."""
        import tensorflow as tf

        return tf.constant(of_dtype(given.numbers, given.dtype))

    def gradients(self, attention: Any, own: Any, upstream: Any, wanted: Any, options: Any) -> Any:
        """Return the gradients from a tape."""
        import tensorflow as tf

        leaves = [own[name] for name in wanted]
        with tf.GradientTape() as tape:
            tape.watch(leaves)
            result = attention(**own, **options)
        found = tape.gradient(result, leaves, output_gradients=upstream)
        return dict(zip(wanted, found, strict=True))


class Tinygrad(Unwritable):
    """Tensors of tinygrad, which has no bfloat16 in NumPy."""

    def give(self, given: Given) -> Any:
        """Return the argument as a tensor."""
        from tinygrad import Tensor, dtypes

        if given.dtype != "bfloat16":
            return Tensor(np.ascontiguousarray(of_dtype(given.numbers, given.dtype)))
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

    def gradients(self, attention: Any, own: Any, upstream: Any, wanted: Any, options: Any) -> Any:
        """Return the gradients by Tensor.gradient."""
        leaves = [own[name] for name in wanted]
        result = attention(**own, **options)
        found = result.gradient(*leaves, gradient=upstream)
        return dict(zip(wanted, found, strict=True))


KINDS = {
    "torch": Tensors,
    "numpy": Numpy,
    "jax": Jax,
    "tensorflow": Tensorflow,
    "tinygrad": Tinygrad,
}
