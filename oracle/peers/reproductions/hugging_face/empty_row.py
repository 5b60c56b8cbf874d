import torch
from transformers.models.llama.modeling_llama import eager_attention_forward as attention

layer = torch.nn.Module().eval()
layer.num_key_value_groups = 1
x, value = torch.ones(1, 1, 2, 1), torch.tensor([[[[1.0], [3.0]]]])
mask = torch.full((1, 1, 2, 2), torch.finfo(torch.float32).min)  # as eager_mask writes False
print(attention(layer, x, x, value, mask, 1.0)[0].flatten().tolist())
