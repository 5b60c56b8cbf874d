import torch
from torch.nn.attention.flex_attention import flex_attention

x, values = torch.ones(1, 1, 2, 4), torch.full((1, 1, 2, 4), 3.4e38)
print(torch.compile(flex_attention)(x, x, values)[0, 0, 0].tolist())
