import torch
from x_transformers.attend import Attend

x = torch.ones(1, 1, 2, 4)
print(Attend(scale=float("nan"))(x, x, x)[0][0, 0, 0].tolist())
