import torch
from transformers.models.llama.modeling_llama import eager_attention_forward as attention

layer = torch.nn.Module().eval()
layer.num_key_value_groups = 1
query, value = torch.zeros(1, 1, 1, 4).double(), torch.tensor([[[[1.0], [0.0], [0.0]]]]).double()
print(attention(layer, query, torch.zeros(1, 1, 3, 4).double(), value, None, 0.5)[0].item())
