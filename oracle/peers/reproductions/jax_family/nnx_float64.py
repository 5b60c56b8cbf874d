import jax
import jax.numpy as jnp
from flax import nnx

jax.config.update("jax_enable_x64", True)
key = jnp.array([0.0, 1.0]).reshape(1, 2, 1, 1)
result = nnx.dot_product_attention(jnp.ones((1, 1, 1, 1)), key, key)
print(result.dtype, "right to 10 digits:", abs(result.item() - 1 / (1 + jnp.exp(-1))) < 1e-10)
