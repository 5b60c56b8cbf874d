"""Keras on torch."""

from peers.families._keras import family

ADAPTERS = family("torch", "torch")
