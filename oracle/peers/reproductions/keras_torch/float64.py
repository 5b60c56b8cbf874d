import os

os.environ["KERAS_BACKEND"] = "torch"
from keras import ops

x = ops.ones((1, 1, 1, 1), "float64")
print(x.dtype, ops.dot_product_attention(x, x, x).dtype)
