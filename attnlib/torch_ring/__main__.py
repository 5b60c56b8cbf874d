"""Ring attention under torchrun: train one step on a sequence that is spread over the ranks.

    torchrun --nproc-per-node 2 -m attnlib.torch_ring

On CPUs the ranks talk by gloo. Where every rank has a GPU of its own, they talk by NCCL. Each rank
compares its shard with torch's attention over the whole sequence.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch.nn.functional import scaled_dot_product_attention

from attnlib.torch_ring import layout, ring_attention, shard

N_TOKENS, N_HEADS, N_FEATURES = 1001, 4, 32


def main() -> None:
    """Run on one rank."""
    local, n_local = (int(os.environ[name]) for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    has_gpu = torch.cuda.device_count() >= n_local
    device = torch.device("cuda", local) if has_gpu else torch.device("cpu")
    if has_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if has_gpu else "gloo")

    # The same numbers on all ranks. A model would only ever have the shard of its rank.
    generator = torch.Generator().manual_seed(0)
    shape = (4, 1, N_HEADS, N_TOKENS, N_FEATURES)
    query, key, value, upstream = torch.randn(shape, generator=generator).to(device)
    whole = [x.clone().requires_grad_() for x in (query, key, value)]
    truth = scaled_dot_product_attention(whole[0], whole[1], whole[2], is_causal=True)
    gradients = torch.autograd.grad(truth, whole, upstream)

    spans = layout(N_TOKENS, dist.get_world_size())[dist.get_rank()]
    own = [shard(x, spans).requires_grad_() for x in (query, key, value)]
    output = ring_attention(own[0], own[1], own[2], is_causal=True, n_tokens=N_TOKENS)
    found = torch.autograd.grad(output, own, shard(upstream, spans))

    for ours, theirs in zip((output, *found), (truth, *gradients), strict=True):
        torch.testing.assert_close(ours, shard(theirs, spans), rtol=1e-4, atol=1e-4)
    name = f"rank {dist.get_rank()} of {dist.get_world_size()}"
    print(f"{name}: tokens {spans}, output and gradients as those of torch", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
