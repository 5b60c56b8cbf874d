import torch
from torch.nn.attention.flex_attention import flex_attention

x = torch.ones(1, 1, 2, 4, dtype=torch.int64)
print(flex_attention(x, x, x)[0, 0, 0].tolist())
