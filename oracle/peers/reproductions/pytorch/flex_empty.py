import torch
from torch.nn.attention.flex_attention import flex_attention

for name, shape, n_keys in (("no keys", (1, 1, 2, 4), 0), ("no heads", (1, 0, 2, 4), 2)):
    query, key = torch.ones(shape), torch.ones(*shape[:2], n_keys, shape[3])
    try:
        print(name, tuple(flex_attention(query, key, key).shape))
    except Exception as error:
        print(name, type(error).__name__, error)
