"""A limit of the memory of constants that the file does not contain.

A few bytes of a file can declare axes of any size, and many operators can read one constant. One
constant has at most MOST_ELEMENTS, which is checked before it is made; all constants of a model
have a `ConstantBudget`.
"""

from typing import NamedTuple

from tflite2onnx.errors import OperatorError

MOST_ELEMENTS = 1 << 24


class SizeLimit(NamedTuple):
    """A limit of a size: a multiple of the stored size, plus a number for any file."""

    times: int
    more: int

    def compute(self, stored: int) -> int:
        """Return the limit for a stored size."""
        return self.times * stored + self.more


# A multiple of the stored bytes: int2 elements take 16 times the bytes as float32.
_LIMIT = SizeLimit(times=16, more=1 << 28)


class ConstantBudget:
    """Counts the bytes of all constants of a model; the file contains `stored` bytes of them."""

    def __init__(self, stored: int = 0) -> None:
        self.stored = stored
        self._left = _LIMIT.compute(stored)

    def spend(self, size: int) -> None:
        """Count the bytes of a constant; OperatorError if they are too many."""
        self._left -= size
        if self._left < 0:
            raise OperatorError(
                "the computed constants of the model must not take far more memory than its file"
            )
