"""Convolutions with float data and integer weights quantize the data, as LiteRT's kernels do.

Which data have one scale follows from the kernel (docs/quantization.md, "Dynamic range"):

1. CONV_2D of single pixels, which LiteRT computes as a matrix product with a scale for each pixel,
   becomes FULLY_CONNECTED that keeps the axes;
2. CONV_2D of one image gets the option `quantizes_data` "integers" if products of integers in
   channels-last order are faster than a convolution of floats (`Conv2D.gains_from_integers`);
3. other convolutions get "images": they multiply the numbers that the integers stand for.

With `--forms canonical` only 3 applies: 1 and 2 are no Conv in ONNX, and the data of 1 stay floats.
"""

from __future__ import annotations

from dataclasses import replace

from tflite2onnx.graph import Graph, Op, Options
from tflite2onnx.op import rules_for
from tflite2onnx.op.vision.conv import Conv2D, Convolution
from tflite2onnx.passes.patterns.multiply_pixels import make_pixel_product
from tflite2onnx.tensor import Tensor

# Operators whose outputs are not negative, and operators that keep numbers so.
_POSITIVE = ("ABS", "EXP", "LOGISTIC", "RELU", "RELU6", "RELU_0_TO_1", "SOFTMAX")
_KEEPING = (
    *("AVERAGE_POOL_2D", "CONCATENATION", "MAX_POOL_2D", "MEAN", "RESHAPE"),
    *("RESIZE_NEAREST_NEIGHBOR", "TRANSPOSE"),
)
_POSITIVE_ACTIVATIONS = ("RELU", "RELU6", "RELU_0_TO_1")


def quantize_data(graph: Graph, *, fastest: bool) -> Graph:
    """Return the graph in which the data of convolutions are quantized at run time."""
    quantizer = _Quantizer(graph, fastest=fastest)
    return graph.rewrite(quantizer.rewrite)


class _Quantizer:
    """Rewrites convolutions, in order of execution."""

    def __init__(self, graph: Graph, *, fastest: bool) -> None:
        self._graph, self._fastest = graph, fastest
        self._positive: dict[Tensor, bool] = {}

    def rewrite(self, op: Op) -> list[Op]:
        """Return the operators that replace an operator, the operator itself if none."""
        if not op.is_builtin("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"):
            return [op]
        converter = rules_for(op)
        if not isinstance(converter, Convolution) or not converter.is_hybrid:
            return [op]
        if isinstance(converter, Conv2D) and converter.quantizes_pixels:
            return [self._multiply_pixels(op) if self._fastest else op]
        gains = isinstance(converter, Conv2D) and converter.gains_from_integers
        choice = "integers" if self._fastest and gains else "images"
        return [replace(op, options=Options({**op.options, "quantizes_data": choice}))]

    def _multiply_pixels(self, op: Op) -> Op:
        product = make_pixel_product(op)
        x = op.inputs[0]
        if x is not None and self._is_positive(x):
            options = Options({**product.options, "data_are_positive": True})
            return replace(product, options=options)
        return product

    def _is_positive(self, tensor: Tensor) -> bool:
        """Return whether no element of a tensor is negative, by the operators that compute it."""
        if tensor not in self._positive:
            self._positive[tensor] = False  # in a loop
            self._positive[tensor] = self._find_sign(tensor)
        return self._positive[tensor]

    def _find_sign(self, tensor: Tensor) -> bool:
        op = self._graph.producers.get(tensor)
        if op is None or op.custom:
            return False
        if op.is_builtin(*_POSITIVE) or op.activation in _POSITIVE_ACTIVATIONS:
            return True
        data = [t for t in op.inputs if t is not None and t.dtype is tensor.dtype]
        keeps = op.is_builtin(*_KEEPING) or (
            op.is_builtin("ADD", "MUL") and op.activation == "NONE"
        )
        return keeps and all(t.data is None and self._is_positive(t) for t in data)
