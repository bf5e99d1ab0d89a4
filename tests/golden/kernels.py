"""Which kernels ONNX Runtime runs: integer ones of DequantizeLinear, operator, QuantizeLinear."""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
import onnxruntime

# QLinearConv, QGemm, MatMulIntegerToFloat, DynamicQuantizeMatMul, MatMulNBits, ...
_INTEGER = re.compile("QLinear|QGemm|QAttention|.*Integer|DynamicQuantize(?!Linear)|MatMulNBits")
# What is left real though there is an integer kernel for it; elementwise operators are left out
# of which the integer form is told from the other by types alone.
_REAL = re.compile(
    "(Fused)?(Conv|Gemm|MatMul)$|Add$|Mul$|(Global)?AveragePool$|Sigmoid$|LeakyRelu$|Softmax$"
)


@contextmanager
def accepted(refusal: str) -> Iterator[None]:
    """Make an AssertionError of whatever is raised: these errors have no class in common."""
    try:
        yield
    except Exception as error:
        message = f"{refusal}: {error}"
        raise AssertionError(message) from error


def runtime() -> str:
    """Return what decides which nodes are fused: version of ONNX Runtime, and processor."""
    version = ".".join(onnxruntime.__version__.split(".")[:2])
    return f"onnxruntime {version} {platform.machine()}"


def kernels(model: bytes) -> dict[str, int]:
    """Return how many nodes of each type are in the graph that ONNX Runtime would run.

    Raises:
        AssertionError: it does not take the model.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / "optimized.onnx"
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(path)
        options.log_severity_level = 3
        with accepted("ONNX Runtime does not take it"):
            onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
        nodes = onnx.load_model(path, load_external_data=False).graph.node
    return dict(sorted(Counter(node.op_type for node in nodes).items()))


def integer(counts: Mapping[str, int]) -> int:
    """Return the number of integer kernels."""
    return sum(count for name, count in counts.items() if _INTEGER.match(name))


def real(counts: Mapping[str, int]) -> int:
    """Return the number of kernels that compute in real numbers what others do in integers."""
    return sum(count for name, count in counts.items() if _REAL.match(name))
