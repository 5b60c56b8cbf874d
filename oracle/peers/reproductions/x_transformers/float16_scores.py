import torch
from x_transformers.attend import Attend

query, key = torch.full((2, 1, 1, 1, 4), 300.0).half()
print(Attend()(query, key, torch.ones_like(key))[0].flatten().tolist())
