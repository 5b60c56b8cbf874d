import jax
import jax.numpy as jnp

query, key = jnp.ones((1, 1, 1, 1)), jnp.array([1.0, 3.0]).reshape(1, 2, 1, 1)


def lse(query: jax.Array) -> jax.Array:
    """Return log(exp(query) + exp(3 · query))."""
    return jax.nn.dot_product_attention(query, key, key, return_residual=True)[1].sum()


print(lse(query), "and after a step of 0.01", lse(query + 0.01))
print("gradient:", jax.grad(lse)(query).item())
