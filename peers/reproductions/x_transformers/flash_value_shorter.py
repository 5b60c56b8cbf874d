import torch
from x_transformers.attend import Attend

query, key, value = torch.ones(1, 1, 2, 4), torch.ones(1, 1, 9, 4), torch.ones(1, 1, 8, 4)
print(Attend(flash=True)(query, key, value)[0][0, 0, 0].tolist())
