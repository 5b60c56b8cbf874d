import torch
from torch.nn.functional import scaled_dot_product_attention as attention

x = torch.ones(1, 1, 2, 4)
print(attention(x * torch.nan, x, x)[0, 0, 0].tolist())
