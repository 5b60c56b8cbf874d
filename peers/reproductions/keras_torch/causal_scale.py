import os

os.environ["KERAS_BACKEND"] = "torch"
from keras import ops

x = ops.ones((1, 2, 1, 4))
print(ops.dot_product_attention(x, x, x, scale=0.0, is_causal=True)[0, 0, 0].tolist())
