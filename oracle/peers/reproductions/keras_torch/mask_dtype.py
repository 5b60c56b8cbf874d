import os

os.environ["KERAS_BACKEND"] = "torch"
from keras import ops

x, key = ops.ones((1, 1, 1, 1)), ops.ones((1, 2, 1, 1))
value = ops.reshape(ops.array([1.0, 3.0]), (1, 2, 1, 1))
mask = ops.reshape(ops.array([-1, 0]), (1, 1, 1, 2))
print(ops.dot_product_attention(x, key, value, mask=mask).item())
