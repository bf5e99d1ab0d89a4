"""Comparison of a converted model with its original: `verify` and its report."""

from tflite2onnx.verification.api import SAMPLES, verify
from tflite2onnx.verification.inner_tensors import TensorComparison
from tflite2onnx.verification.results import Report, Verdict
from tflite2onnx.verification.tolerance import Difference

__all__ = ["SAMPLES", "Difference", "Report", "TensorComparison", "Verdict", "verify"]
