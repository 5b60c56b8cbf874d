import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward as attention

x, values = torch.ones(1, 1, 2, 4), torch.full((1, 1, 2, 4), 3.4e38)
y, _ = attention(torch.nn.Module(), x, x, values, None, is_causal=False)
print(y[0, 0, 0].tolist())
