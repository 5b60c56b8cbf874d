import torch
from transformers.models.llama.modeling_llama import eager_attention_forward as attention

layer = torch.nn.Module().eval()
layer.num_key_value_groups = 1
x, value = torch.ones(1, 1, 2, 1), torch.tensor([[[[1.0], [3.0]]]])
mask = torch.tensor([[[[1, 0], [1, 0]]]])
print([round(y, 4) for y in attention(layer, x, x, value, mask, 1.0)[0].flatten().tolist()])
