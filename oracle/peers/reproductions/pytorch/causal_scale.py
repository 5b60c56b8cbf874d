import torch
from torch.nn.functional import scaled_dot_product_attention as attention

x = torch.ones(1, 1, 2, 4)
print(attention(x, x, x, is_causal=True, scale=0.0)[0, 0, 0].tolist())
