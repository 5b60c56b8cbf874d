import torch
from torch.nn.functional import scaled_dot_product_attention as attention

query, key, value = torch.ones(6, 2, 4), torch.ones(3, 2, 4), torch.ones(2, 2, 4)
print(tuple(attention(query, key, value, enable_gqa=True).shape))
