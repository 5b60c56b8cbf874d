import os

os.environ["KERAS_BACKEND"] = "tensorflow"
from keras import ops

key = ops.reshape(ops.array([0, 1]), (1, 2, 1, 1))
found = ops.dot_product_attention(ops.ones((1, 1, 1, 1), "int64"), key, key)
print(found.dtype.name, found.numpy().item())  # 1 / (1 + exp(-1)) is 0.73
