"""Run a function on several ranks: processes of this machine that talk by torch.distributed.

    launch        `run` starts the processes, and says which of them failed and why
    process       what happens in the process of a rank
    notebook      `on_ranks` runs a function that is defined in a notebook

To run a script on ranks, on several machines or with GPUs, there is `torchrun`.
"""

from attnlib import needs

needs(__name__, "torch")

from attnbook.ranks.launch import run
from attnbook.ranks.notebook import on_ranks

__all__ = ["on_ranks", "run"]
