import torch
from torch.nn.functional import scaled_dot_product_attention as attention

x, mask = torch.ones(1, 1, 2, 4), torch.tensor([True, False])
try:
    print(attention(x, x, x, attn_mask=mask))
except IndexError as error:
    print("IndexError:", error)
