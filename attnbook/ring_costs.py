"""What a ring costs: the scores that each device computes, and the bytes that it sends."""

from __future__ import annotations

from collections.abc import Sequence

from attnlib.torch_ring import Span, layout


def work(
    n_tokens: int, n_devices: int, is_causal: bool = True, balance: str = "zigzag"
) -> list[list[int]]:
    """Return how many scores of one head each device computes in each step of the ring.

    Returns:
        One list for each device, with one number for each step.

    Example:
        With c = n_tokens / (2 n_devices), zigzag gives every device 2 c² + c scores in step 0 and
        2 c² in each later step. The contiguous layout leaves device 0 without work in step 1.

        >>> work(8, 2)
        [[10, 8], [10, 8]]
        >>> work(8, 2, balance="contiguous")
        [[10, 0], [10, 16]]
    """
    spans = layout(n_tokens, n_devices, balance)

    def count(rank: int, source: int) -> int:
        return sum(
            len(range(k.start, min(k.stop, i + 1) if is_causal else k.stop))
            for q in spans[rank]
            for i in range(*q)
            for k in spans[source]
        )

    return [[count(rank, rank - step) for step in range(n_devices)] for rank in range(n_devices)]


def bytes_sent(spans: Sequence[Sequence[Span]], rank: int, bytes_per_token: int) -> tuple[int, int]:
    """Return how many bytes a device sends, forward and backward.

    Forward, a device sends its own keys and values on, and those that it received but the last.
    Backward, it sends these once more, and the gradients of all keys and values. (Gradients of half
    precision are sent in float32 and take twice the bytes that are counted here.)

    Args:
        spans: What `layout` returned.
        rank: The device.
        bytes_per_token: The bytes of keys and values of one token: B · H_kv · (d_k + d_v) numbers.

    Example:
        Shards of equal length: (P - 1) shards forward, and (2 P - 1) backward.

        >>> bytes_sent(layout(8, 4), rank=0, bytes_per_token=100)
        (600, 1400)
    """
    lengths = [sum(stop - start for start, stop in own) for own in spans]
    keys = sum(lengths[rank - step] for step in range(len(spans) - 1))
    gradients = sum(lengths) if len(spans) > 1 else 0
    return keys * bytes_per_token, (keys + gradients) * bytes_per_token
