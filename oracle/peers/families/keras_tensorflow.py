"""Keras on TensorFlow."""

from peers.families._keras import family

NO_STRIDES = {"layouts": "tensors of TensorFlow have no strides"}
ADAPTERS = family("tensorflow", "tensorflow-cpu", arrays="tensorflow", without=NO_STRIDES)
