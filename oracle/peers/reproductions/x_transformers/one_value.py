import torch
from x_transformers.attend import Attend

x = torch.ones(1, 1, 2, 4)
print(tuple(Attend()(x, x, x[:, :, :1])[0].shape))
