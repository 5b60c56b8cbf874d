from tinygrad import Tensor

query, key = Tensor([[1.0]]), Tensor([[0.1 * n] for n in range(3)])
value = Tensor([[3.4e38]] * 3)
print(query.scaled_dot_product_attention(key, value).numpy().ravel())
