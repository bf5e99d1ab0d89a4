"""The fused integer kernels that ONNX Runtime runs, and the float nodes that it does not fuse."""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import onnx
import onnxruntime

from tests.golden.saturation import assume_exact_products
from tests.support.fusions import count_optimized_nodes

# Matches QLinearConv, QGemm, MatMulIntegerToFloat, DynamicQuantizeMatMul, MatMulNBits, ...
_INTEGER = re.compile("QLinear|QGemm|QAttention|.*Integer|DynamicQuantize(?!Linear)|MatMulNBits")
# Float nodes for which an integer kernel exists. Elementwise operators are not listed if only the
# types distinguish their integer node from their float node.
_REAL = re.compile(
    "(Fused)?(Conv|Gemm|MatMul)$|Add$|Mul$|(Global)?AveragePool$|Sigmoid$|LeakyRelu$|Softmax$"
)


@contextmanager
def as_assertion_error(refusal: str) -> Iterator[None]:
    """Convert any exception to AssertionError: the errors of ONNX Runtime share no class."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{refusal}: {error}") from error


def runtime() -> str:
    """Return the version of ONNX Runtime and the processor, which decide the fused nodes."""
    version = ".".join(onnxruntime.__version__.split(".")[:2])
    return f"onnxruntime {version} {platform.machine()}"


def kernels(model: bytes) -> dict[str, int]:
    """Return how many nodes of each type are in the graph that ONNX Runtime would run.

    A model that chooses by the processor chooses the nodes for one with VNNI, on each processor.

    Raises:
        AssertionError: ONNX Runtime rejects the model.
    """
    with as_assertion_error("ONNX Runtime does not take it"):
        chosen = assume_exact_products(onnx.load_from_string(model))
        return dict(sorted(count_optimized_nodes(chosen).items()))


def integer(counts: Mapping[str, int]) -> int:
    """Return the number of integer kernels."""
    return sum(count for name, count in counts.items() if _INTEGER.match(name))


def count_real_kernels(counts: Mapping[str, int]) -> int:
    """Return the number of float kernels for which an integer kernel exists."""
    return sum(count for name, count in counts.items() if _REAL.match(name))


def portable(counts: Mapping[str, int]) -> Counter[str]:
    """Return the counts without the nodes that depend on the vector width of the processor.

    Float convolutions with enough channels are computed in blocks of 8 or 16 channels. Then
    activations are fused with them differently, and Reorder nodes surround them, of which a
    Transpose may become a part.
    """
    names = {name: re.sub("^Fused(?=Conv)", "", name) for name in counts}
    reorders = {"ReorderInput", "ReorderOutput"}
    dependent = reorders if reorders.isdisjoint(counts) else {*reorders, "Transpose"}
    left = [name for name in counts if name not in dependent]
    return sum((Counter({names[name]: counts[name]}) for name in left), Counter())
