"""Nodes for operators that browsers refuse."""

from tflite2onnx.op.vision.detection import DetectionPostProcess
from tflite2onnx.tensor import DType


class DetectionInFloat32(DetectionPostProcess):
    """TFLite_Detection_PostProcess: browsers load no model with float64."""

    precision = DType.FLOAT32


PATHS = {"TFLite_Detection_PostProcess": __name__}
