"""KernelBench's shape: a model that is attention, and a new one by blocks of keys."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, Q, K, V):
        return nn.functional.scaled_dot_product_attention(Q, K, V)


class ModelNew(nn.Module):
    def forward(self, Q, K, V):
        running = Q.new_full(Q.shape[:-1], -torch.inf)
        total, output = torch.zeros_like(running), torch.zeros_like(Q)
        for start in range(0, K.shape[-2], 32):
            keys, values = K[..., start : start + 32, :], V[..., start : start + 32, :]
            scores = Q @ keys.mT * Q.shape[-1] ** -0.5
            highest = torch.maximum(running, scores.amax(-1))
            old, powers = torch.exp(running - highest), torch.exp(scores - highest[..., None])
            total = total * old + powers.sum(-1)
            output = output * old[..., None] + powers @ values
            running = highest
        return output / total[..., None]


def get_inputs():
    return [torch.rand(2, 3, 64, 32) for _ in range(3)]


def get_init_inputs():
    return []
