import torch
from torch.nn.attention.flex_attention import flex_attention

x, attention = torch.ones(1, 1, 2, 4), torch.compile(flex_attention)
for scale in (2, 3):
    try:
        print(scale, attention(x, x, x, scale=scale)[0, 0, 0].tolist())
    except Exception as error:
        print(scale, type(error).__name__, "C++ compile error" in str(error))
