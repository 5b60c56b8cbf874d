"""KernelBench's shape: a causal block with weights, and a new one that reads them all at once."""

import torch
from torch import nn

SIZE, N_HEADS = 32, 4


class Model(nn.Module):
    def __init__(self, size, n_heads):
        super().__init__()
        self.project, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.n_heads = n_heads

    def heads(self, x):
        return (
            part.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for part in self.project(x).chunk(3, dim=-1)
        )

    def forward(self, x):
        query, key, value = self.heads(x)
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        scores = (query @ key.mT * key.shape[-1] ** -0.5).masked_fill(future, -torch.inf)
        return self.out((torch.softmax(scores, dim=-1) @ value).transpose(1, 2).flatten(2))


class ModelNew(Model):
    def forward(self, x):
        query, key, value = self.heads(x)
        heads = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(heads.transpose(1, 2).flatten(2))


def get_inputs():
    return [torch.rand(2, 24, SIZE)]


def get_init_inputs():
    return [SIZE, N_HEADS]
