"""Keras on JAX."""

from peers.families._keras import family

ADAPTERS = family("jax", "jax", arrays="jax", without={"layouts": "arrays of JAX have no strides"})
