"""A converted model beside its original: `verify` and what it reports."""

from tflite2onnx.verification.api import SAMPLES, verify
from tflite2onnx.verification.difference import Difference
from tflite2onnx.verification.findings import Report, Verdict
from tflite2onnx.verification.tensors import Compared

__all__ = ["SAMPLES", "Compared", "Difference", "Report", "Verdict", "verify"]
