import jax
import jax.numpy as jnp

x, mask = jnp.ones((1, 1, 3, 1)), jnp.ones((1, 2, 1, 1), bool)
try:
    jax.nn.dot_product_attention(x, x, x, mask=mask)  # 3 heads, and a mask for 2
except AssertionError as error:
    print(repr(error))
