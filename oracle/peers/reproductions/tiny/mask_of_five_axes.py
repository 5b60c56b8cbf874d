from tinygrad import Tensor

x = Tensor.ones(1, 1, 2, 1)
mask = Tensor.ones(3, 1, 1, 2, 2).bool()
print(x.scaled_dot_product_attention(x, x, mask).shape)
