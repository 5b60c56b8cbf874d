import os

os.environ["KERAS_BACKEND"] = "torch"
from keras import ops

x = ops.ones((1, 2, 1, 1))
try:
    ops.dot_product_attention(x, x, x, mask=ops.ones(2, "bool"))
except IndexError as error:
    print(error)
