import torch
from x_transformers.attend import Attend

query, key = torch.ones(1, 1, 1, 1), torch.tensor([[[[1.0], [3.0]]]])
sees_one = torch.tensor([[[[True, False]]]])
bias = torch.where(sees_one, 0.0, -torch.inf)
attend = Attend(softclamp_logits=True, logit_softclamp_value=1.0)
print("a boolean mask:", attend(query, key, key, mask=sees_one)[0].item())
print("a bias of 0 and -∞:", attend(query, key, key, attn_bias=bias)[0].item())
