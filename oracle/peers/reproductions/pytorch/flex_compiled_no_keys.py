import subprocess
import sys

program = """
import torch
from torch.nn.attention.flex_attention import flex_attention
x = torch.ones(1, 1, 2, 4)
torch.compile(flex_attention)(x, x[:, :, :0], x[:, :, :0])
"""
print(subprocess.run([sys.executable, "-c", program], stderr=subprocess.DEVNULL).returncode)
