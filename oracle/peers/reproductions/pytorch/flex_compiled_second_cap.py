import torch
from torch.nn.attention.flex_attention import flex_attention

x, attention = torch.ones(1, 1, 2, 4), torch.compile(flex_attention)
for cap in (2.0, 3.0):
    try:
        capped = attention(x, x, x, lambda score, *_, cap=cap: cap * torch.tanh(score / cap))
        print(cap, capped[0, 0, 0].tolist())
    except RuntimeError as error:
        print(cap, type(error).__name__, "unbacked_bindings" in str(error))
