"""Nodes for operators that OpenVINO computes wrongly."""

from tflite2onnx.made_options import HardSigmoidOptions
from tflite2onnx.op.base import Builder, Value, View
from tflite2onnx.op.elementwise.activation import HardSigmoid

_ALMOST_0 = 1e-30  # no sum of float32 from 1e-22 on changes by it


class HardSigmoidWithoutZeros(HardSigmoid):
    """HARD_SIGMOID: OpenVINO 2026.4 reads an attribute of 0 as the default, 0.2 or 0.5."""

    def emit(self, g: Builder, y: View, *xs: View) -> Value:
        made = self.op.read_made(HardSigmoidOptions)
        return g.HardSigmoid(*xs, alpha=made.alpha or _ALMOST_0, beta=made.beta or _ALMOST_0)


PATHS = {"HARD_SIGMOID": __name__}
