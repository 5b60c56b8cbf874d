import torch
from torch.nn.attention.flex_attention import flex_attention

x = torch.ones(1, 1, 2, 4)
print(torch.compile(flex_attention)(x * torch.nan, x, x)[0, 0, 0].tolist())
