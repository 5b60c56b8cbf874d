import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward as attention

x = torch.ones(0, 1, 2, 4)
try:
    print(tuple(attention(torch.nn.Module(), x, x, x, None)[0].shape))
except RuntimeError as error:
    print(error)
