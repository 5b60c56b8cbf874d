import torch
from torch.nn.functional import scaled_dot_product_attention as attention

query, key, value = torch.ones(1, 1, 2, 4), torch.ones(1, 1, 9, 4), torch.ones(1, 1, 8, 4)
print(attention(query, key, value)[0, 0, 0].tolist())
