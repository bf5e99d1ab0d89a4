"""The error of a network whose samples depend on each other."""

from collections.abc import Sequence

from tflite2onnx.errors import OperatorError
from tflite2onnx.utils.dimension import BroadcastError, Dim


class MixedSamplesError(OperatorError):
    """An operator computes one sample from several samples, or may do so.

    `dims` are the dimensions that must be equal, if unequal sizes are the reason. `broadcasts` is
    set if one of the dimensions may also be 1.
    """

    def __init__(self, reason: str, place: str = "", cause: OperatorError | None = None) -> None:
        self.dims: Sequence[Dim] = getattr(cause, "dims", ())
        self.broadcasts = isinstance(cause, BroadcastError) or getattr(cause, "broadcasts", False)
        super().__init__(reason, place)
