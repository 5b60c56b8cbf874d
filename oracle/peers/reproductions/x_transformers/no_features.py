import torch
from x_transformers.attend import Attend

query, value = torch.ones(1, 1, 2, 0), torch.ones(1, 1, 2, 4)
try:
    print(Attend()(query, query, value)[0].flatten().tolist())
except ZeroDivisionError as error:
    print("ZeroDivisionError:", error)
