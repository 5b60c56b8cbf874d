import jax.numpy as jnp
from jax.nn import dot_product_attention as attention

query, key = jnp.ones((1, 1, 1, 1)), jnp.ones((1, 2, 1, 1))
removes_both = jnp.zeros((1, 1, 1, 2), bool)
print(attention(query, key, key, mask=removes_both, return_residual=True)[1].item())
