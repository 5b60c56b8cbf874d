import torch
from x_transformers.attend import Attend

query, value = torch.zeros(1, 1, 1, 4).double(), torch.tensor([[[[1.0], [0.0], [0.0]]]]).double()
print(Attend()(query, torch.zeros(1, 1, 3, 4).double(), value)[0].item())
