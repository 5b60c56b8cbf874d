"""What the pages of the book draw and measure with; it comes in one wheel with `attnlib`.

    compiled      what Triton's compiler makes of a kernel (needs Triton, and no GPU)
    costs         operations and what is kept, counted
    examples      the numbers that every chapter uses, and the published ones that chapter 6 checks
    experiments   what the scale does to scores, weights and gradients, measured
    figures       every drawing (needs Matplotlib)
    lab           grades an attention in seven stages (needs torch)
    models        attention modules of today's models (needs transformers)
    ranks         a function on several processes, also one of a notebook (needs torch)
    states        what layers with a state have around their rule (needs transformers)
    trained       the model of chapter 19: where it is, and sentences to try it on

`attnbook` is not part of the public, versioned API: a release may change it in any way that the
pages need. `attnlib` never imports it. Importing `attnbook` loads none of its modules; Matplotlib
is loaded with `attnbook.figures`.
"""
