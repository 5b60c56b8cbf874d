from tinygrad import Tensor

query = Tensor([[1e6]] * 3)
key = Tensor([[-1e6], [-1e6], [0.0]])
value = Tensor([[1.0], [2.0], [3.0]])
print(query.scaled_dot_product_attention(key, value, is_causal=True).numpy().ravel())
