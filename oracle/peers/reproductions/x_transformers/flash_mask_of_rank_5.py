import torch
from x_transformers.attend import Attend

x, mask = torch.ones(1, 1, 2, 4), torch.ones(3, 1, 1, 2, 2).bool()
try:
    print(tuple(Attend(flash=True)(x, x, x, mask=mask)[0].shape))
except AssertionError as error:
    print("AssertionError:", repr(str(error)))
