import torch
from x_transformers.attend import Attend

x, values = torch.ones(1, 1, 2, 4), torch.full((1, 1, 2, 4), 3.4e38)
print(Attend(flash=True)(x, x, values)[0][0, 0, 0].tolist())
