"""Ask other people's implementations of attention what `attncheck` asks of ours.

A family is a module in `peers/families`: libraries that live in one environment, each with an
adapter that turns a call of `scaled_dot_product_attention` into a call of the library. `make peers`
builds the environments, asks the cases in a process that may crash (`worker`), and stores what came
out in `peers/results`. `python -m peers.tables` writes the stored results into the book's page.
"""
