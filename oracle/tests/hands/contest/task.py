"""What the data of this task are, in GPU MODE's shape."""

from typing import Any, TypeVar

input_t = TypeVar("input_t", bound=tuple[Any, Any, Any])
output_t = TypeVar("output_t")
