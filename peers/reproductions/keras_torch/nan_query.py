import os

os.environ["KERAS_BACKEND"] = "torch"
from keras import ops

x, nan = ops.ones((1, 1, 1, 4)), ops.full((1, 1, 1, 4), float("nan"))
print(ops.dot_product_attention(nan, x, x).ravel().tolist())
