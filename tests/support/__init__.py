"""Helpers of the tests: builders of TFLite models, and comparison of LiteRT with ONNX Runtime."""

from tests.support.build import Build, Subgraph
from tests.support.compare import Converted, check, difference
from tests.support.inputs import random_inputs
from tests.support.pack import pack
from tests.support.runtimes import run_onnx, run_signature, run_tflite
from tests.support.sparse import sparsify
from tests.support.tensor import Tensor

__all__ = [
    "Build",
    "Converted",
    "Subgraph",
    "Tensor",
    "check",
    "difference",
    "pack",
    "random_inputs",
    "run_onnx",
    "run_signature",
    "run_tflite",
    "sparsify",
]
