import os

os.environ["KERAS_BACKEND"] = "tensorflow"
import numpy as np
from keras import ops

query, key = np.ones((1, 1, 1, 65), "float16"), np.zeros((1, 2, 1, 65), "float16")
key[0, 0, 0] = [2048] + [1] * 64  # a score of 2112, which float16 can hold
key[0, 1, 0, 0] = 2110  # and one of 2110
value = np.repeat([[1], [3]], 65, axis=1).reshape(key.shape).astype("float16")
found = ops.dot_product_attention(query, key, value, scale=1.0).numpy()
print(found[0, 0, 0, 0], "instead of", (1 + 3 * np.exp(-2)) / (1 + np.exp(-2)))
