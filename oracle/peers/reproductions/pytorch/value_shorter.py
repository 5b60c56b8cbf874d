import torch
from torch.nn.functional import scaled_dot_product_attention as attention

query, key = torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 3, 2)
value = torch.tensor([[[[1.0, 10.0], [4.0, 40.0]]]])  # two values for three keys
print(attention(query, key, value)[0, 0, 0].tolist())  # the third key is dropped
