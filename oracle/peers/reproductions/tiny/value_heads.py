from tinygrad import Tensor

query = Tensor.zeros(6, 1, 1)
key = Tensor.zeros(3, 1, 1)
value = Tensor([[[1.0]], [[2.0]]])
print(query.scaled_dot_product_attention(key, value, enable_gqa=True).numpy().ravel())
