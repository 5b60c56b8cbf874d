import torch
from torch.nn.attention.flex_attention import flex_attention

key, memory = torch.ones(1, 1, 9, 4), torch.ones(1, 1, 9, 4)
memory[:, :, 8] = 100.0  # behind the value, which has 8 tokens
value = memory[:, :, :8]
print(torch.compile(flex_attention)(key, key, value)[0, 0, 0].tolist())
