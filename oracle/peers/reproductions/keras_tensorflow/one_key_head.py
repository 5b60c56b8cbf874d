import os

os.environ["KERAS_BACKEND"] = "tensorflow"
from keras import ops

query, key = ops.ones((1, 3, 6, 4)), ops.ones((1, 3, 1, 4))
try:
    print(ops.dot_product_attention(query, key, key).shape)
except Exception as error:
    print(type(error).__name__)
