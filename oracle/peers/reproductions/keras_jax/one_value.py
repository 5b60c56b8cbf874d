import os

os.environ["KERAS_BACKEND"] = "jax"
from keras import ops

query, key, value = ops.ones((1, 1, 1, 4)), ops.ones((1, 3, 1, 4)), ops.ones((1, 1, 1, 4))
print(ops.dot_product_attention(query, key, value).shape)  # 3 keys, 1 value
