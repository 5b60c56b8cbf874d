import jax.numpy as jnp
from flax import linen

x, mask = jnp.ones((1, 4, 1, 2)), jnp.ones((3, 1, 4, 4), bool)
print(linen.dot_product_attention(x, x, x, mask=mask).shape)  # a batch of 1, a mask for 3
