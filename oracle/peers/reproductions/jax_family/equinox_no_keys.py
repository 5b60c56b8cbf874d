import equinox as eqx
import jax
import jax.numpy as jnp

layer = eqx.nn.MultiheadAttention(1, 2, key=jax.random.key(0))
try:
    print(layer(jnp.ones((3, 2)), jnp.ones((0, 2)), jnp.ones((0, 2))).shape)
except ZeroDivisionError as error:
    print(repr(error))
