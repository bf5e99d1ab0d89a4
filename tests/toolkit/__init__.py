"""What the tests stand on: TFLite models built in the test, and LiteRT against ONNX Runtime."""

from tests.toolkit.build import Build, Subgraph
from tests.toolkit.compare import Converted, check, difference
from tests.toolkit.inputs import random_inputs
from tests.toolkit.pack import pack
from tests.toolkit.runtimes import run_onnx, run_signature, run_tflite
from tests.toolkit.sparse import sparsify
from tests.toolkit.tensor import Tensor

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
