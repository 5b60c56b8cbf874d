import torch
from torch import nn

layer, x, values = (
    nn.MultiheadAttention(1, 1, bias=False),
    torch.ones(2, 1),
    torch.full((2, 1), 3e38),
)
for weight in layer.parameters():
    nn.init.ones_(weight)
for need_weights in (True, False):
    print(need_weights, layer(x, x, values, need_weights=need_weights)[0].flatten().tolist())
