"""Nodes for operators that browsers refuse: they load no model with float64."""

from tflite2onnx.op.elementwise.fake_quant import Quantize
from tflite2onnx.op.vision.detection import DetectionPostProcess
from tflite2onnx.tensor import DType


class DetectionInFloat32(DetectionPostProcess):
    """TFLite_Detection_PostProcess, with boxes that are decoded in float32."""

    precision = DType.FLOAT32


class QuantizeInFloat32(Quantize):
    """QUANTIZE: results of int32 over 2 ** 24 are rounded to 24 bits."""

    precision = DType.FLOAT32


PATHS = dict.fromkeys(("QUANTIZE", "TFLite_Detection_PostProcess"), __name__)
