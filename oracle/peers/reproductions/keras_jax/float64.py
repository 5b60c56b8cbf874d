import os

os.environ["KERAS_BACKEND"] = "jax"
import jax
from keras import ops

jax.config.update("jax_enable_x64", True)
x = ops.ones((1, 1, 1, 1), "float64")
print(x.dtype, ops.dot_product_attention(x, x, x).dtype)
