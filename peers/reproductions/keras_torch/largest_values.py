import os

os.environ["KERAS_BACKEND"] = "torch"
from keras import ops

query, key = ops.zeros((1, 1, 1, 1)), ops.zeros((1, 2, 1, 1))
value = ops.full((1, 2, 1, 1), 3e38)
print(ops.dot_product_attention(query, key, value).item())
