from tinygrad import Tensor

query, key = Tensor([[0.0]]), Tensor([[0.0], [0.0]])
value, mask = Tensor([[1.0], [3.0]]), Tensor([[1, 0]])
print(query.scaled_dot_product_attention(key, value, mask).numpy().ravel().round(4))
print(query.scaled_dot_product_attention(key, value, mask.bool()).numpy().ravel())
