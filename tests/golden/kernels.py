"""Which kernels ONNX Runtime runs: integer ones of DequantizeLinear, operator, QuantizeLinear."""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import onnxruntime

from tests.support.fusions import count_optimized_nodes

# QLinearConv, QGemm, MatMulIntegerToFloat, DynamicQuantizeMatMul, MatMulNBits, ...
_INTEGER = re.compile("QLinear|QGemm|QAttention|.*Integer|DynamicQuantize(?!Linear)|MatMulNBits")
# What is left real though there is an integer kernel for it; elementwise operators are left out
# of which the integer form is told from the other by types alone.
_REAL = re.compile(
    "(Fused)?(Conv|Gemm|MatMul)$|Add$|Mul$|(Global)?AveragePool$|Sigmoid$|LeakyRelu$|Softmax$"
)


@contextmanager
def as_assertion_error(refusal: str) -> Iterator[None]:
    """Make an AssertionError of whatever is raised: these errors have no class in common."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{refusal}: {error}") from error


def runtime() -> str:
    """Return what decides which nodes are fused: version of ONNX Runtime, and processor."""
    version = ".".join(onnxruntime.__version__.split(".")[:2])
    return f"onnxruntime {version} {platform.machine()}"


def kernels(model: bytes) -> dict[str, int]:
    """Return how many nodes of each type are in the graph that ONNX Runtime would run.

    Raises:
        AssertionError: it does not take the model.
    """
    with as_assertion_error("ONNX Runtime does not take it"):
        return dict(sorted(count_optimized_nodes(model).items()))


def integer(counts: Mapping[str, int]) -> int:
    """Return the number of integer kernels."""
    return sum(count for name, count in counts.items() if _INTEGER.match(name))


def count_real_kernels(counts: Mapping[str, int]) -> int:
    """Return the number of kernels that compute in real numbers what others do in integers."""
    return sum(count for name, count in counts.items() if _REAL.match(name))


def portable(counts: Mapping[str, int]) -> Counter[str]:
    """Return the counts without what the width of the processor's vectors decides.

    Real convolutions are computed in blocks of 8 or 16 channels where these are as many: then
    activations are fused with them in another way, and Reorder nodes surround them.
    """
    names = {name: re.sub("^Fused(?=Conv)", "", name) for name in counts}
    left = [name for name in counts if name not in ("ReorderInput", "ReorderOutput")]
    return sum((Counter({names[name]: counts[name]}) for name in left), Counter())
