import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward as attention

query, key, value = torch.ones(1, 1, 2, 4), torch.ones(1, 1, 9, 4), torch.ones(1, 1, 8, 4)
y, _ = attention(torch.nn.Module(), query, key, value, None, is_causal=False)
print(y[0, 0, 0].tolist())
