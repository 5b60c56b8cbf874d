import jax.numpy as jnp
from flax.nnx import dot_product_attention as attention

query, key = jnp.ones((1, 1, 1, 1)), jnp.ones((1, 2, 1, 1))
value = jnp.array([1.0, 3.0]).reshape(1, 2, 1, 1)
print(attention(query, key, value, mask=jnp.zeros((1, 1, 1, 2), bool)).item())
