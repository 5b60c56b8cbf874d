import torch
from torch.nn.attention.flex_attention import flex_attention

x, nothing = torch.ones(2, 3, 5, 13), torch.ones(2, 3, 5, 0)
for name, call in (("value", (x, x, nothing)), ("query and key", (nothing, nothing, x))):
    try:
        print(name, tuple(torch.compile(flex_attention)(*call).shape))
    except Exception as error:
        print(name, type(error).__name__, str(error).splitlines()[0])
