import torch
from torch.nn.functional import scaled_dot_product_attention as attention

x, value = torch.ones(1, 1, 2, 1), torch.tensor([[[[1.0], [3.0]]]])
mask = torch.tensor([[True, True], [False, True]])
print(attention(x, x, value, attn_mask=mask, is_causal=True).flatten().tolist())
