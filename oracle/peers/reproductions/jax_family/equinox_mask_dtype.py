import equinox as eqx
import jax
import jax.numpy as jnp

layer = eqx.nn.MultiheadAttention(1, 2, key=jax.random.key(0))
x, mask = jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([[-1, 0], [-1, 0]])
print(jnp.allclose(layer(x, x, x, mask=mask), layer(x, x, x, mask=mask != 0)))
