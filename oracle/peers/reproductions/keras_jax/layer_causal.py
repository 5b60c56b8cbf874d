import os

os.environ["KERAS_BACKEND"] = "jax"
import keras

query, key = [[[1e6], [1e6]]], [[[-1e6], [0.0]]]  # the first score is -1e12
value = [[[1.0], [5.0]]]
inputs = [keras.ops.array(x) for x in (query, value, key)]
result = keras.layers.Attention()(inputs, use_causal_mask=True)
print(keras.ops.convert_to_numpy(result).ravel().tolist())
