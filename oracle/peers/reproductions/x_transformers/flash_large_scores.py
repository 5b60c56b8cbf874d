import torch
from x_transformers.attend import Attend

query, key = torch.full((1, 1, 1, 4), 1e38), torch.ones(1, 1, 1, 4)
key[..., 1:] = 0  # the score is 3e38
for flash in False, True:
    print(f"flash={flash}:", Attend(scale=3.0, flash=flash)(query, key, key)[0].flatten().tolist())
