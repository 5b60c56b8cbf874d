import equinox as eqx
import jax
import jax.numpy as jnp

layer = eqx.nn.MultiheadAttention(1, 2, key=jax.random.key(0))
x = jnp.array([[1.0, 2.0], [3.0, 4.0]])
hidden = layer(x, x, x, mask=jnp.zeros((2, 2), bool))
print(jnp.allclose(hidden, layer(0 * x, x, x)))  # what equal weights give
