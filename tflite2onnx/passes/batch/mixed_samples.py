"""The error of a network whose samples depend on each other."""

from tflite2onnx.passes.shape_walk import ClashError


class MixedSamplesError(ClashError):
    """An operator computes one sample from several samples, or may do so."""
