import os

os.environ["KERAS_BACKEND"] = "jax"
import keras

x = keras.ops.full((1, 1, 4), 200.0, "float16")  # a score of 4 · 200², more than 65,504
result = keras.layers.Attention(dtype="float16")([x, x])
print(keras.ops.convert_to_numpy(result).ravel().tolist())
