import jax.numpy as jnp
from flax import nnx

x, value = jnp.ones((1, 1, 1, 2)), jnp.ones((1, 1, 1, 3))
try:
    print(nnx.dot_product_attention(x, x, value).shape)
except ValueError as error:
    print(error)
