import os

os.environ["KERAS_BACKEND"] = "tensorflow"
from keras import ops

x = ops.ones((1, 1, 1, 1))
print(ops.dot_product_attention(x, x, x, scale=float("nan")).numpy().item())
