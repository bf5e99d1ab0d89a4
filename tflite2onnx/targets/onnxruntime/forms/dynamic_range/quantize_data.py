"""Convolutions with float data and integer weights quantize the data like LiteRT's kernels.

The kernel determines which data share a scale (docs/quantization.md, "Dynamic range"):

1. CONV_2D of single pixels, which LiteRT computes as a matrix product with a scale for each pixel,
   becomes FULLY_CONNECTED that keeps the axes, if a product of integers is faster than a
   convolution of floats (`explain_floats`);
2. other CONV_2D become INTEGER_CONV_2D on the same condition;
3. a convolution for which this is faster on processors with VNNI only has both forms, between
   which the model chooses at load (`choose_products`);
4. TRANSPOSE_CONV becomes such a convolution of blocks, if this is faster (convolve_transposed.py);
5. `round_data` rounds the data of the others, if none of them is a convolution of single pixels;
6. FULLY_CONNECTED of positive rows and convolutions of positive images are told so, which halves
   the nodes that quantize rows, and images of a dynamic batch.

Products of integers need channels last, and other convolutions channels first. So the convolutions
of floats in a network of both take their data in any order: ONNX Runtime makes one node of the
Transpose and of the ReorderInput that stores the data in blocks.

The integers of several positive pixels have the zero point 0, and negative numbers become 0 as
well. So an activation RELU is removed if only products of 1 read its output. One pixel is quantized
by DynamicQuantizeLinear, whose zero point follows from the data.
"""

from dataclasses import replace
from functools import cached_property

from tflite2onnx.graph import Graph, Op
from tflite2onnx.made_options import DenseOptions, WindowOptions
from tflite2onnx.op.common.hybrid import is_hybrid
from tflite2onnx.op.vision.conv import Conv2D, TransposeConv
from tflite2onnx.passes.operands import find_positive
from tflite2onnx.passes.patterns.rules import log_loss
from tflite2onnx.passes.rewriter import Rewriter, make_like
from tflite2onnx.passes.stored_numbers.round_data import find_rounding_convolutions, round_data
from tflite2onnx.targets.onnxruntime.costs import explain_floats
from tflite2onnx.targets.onnxruntime.forms.dynamic_range.convolve_transposed import (
    convolve_transposed,
)
from tflite2onnx.targets.onnxruntime.forms.products.multiply_pixels import make_pixel_product
from tflite2onnx.targets.onnxruntime.operators.blocks import LastChannelsOptions
from tflite2onnx.targets.onnxruntime.operators.convolution import AnyOrderOptions
from tflite2onnx.tensor import Tensor

_PIXEL = (1, 1)  # the height and width of a single pixel


def quantize_data(graph: Graph) -> Graph:
    """Return the graph in which the data of convolutions are quantized at run time."""
    return _quantize(graph, chooses=False)


def choose_products(graph: Graph) -> Graph:
    """Return the same graph, in which processors choose between integers and floats."""
    return _quantize(graph, chooses=True)


def _quantize(graph: Graph, *, chooses: bool) -> Graph:
    quantizer = _Quantizer(graph, chooses=chooses)
    rounded = round_data(quantizer.rename_unlimited(graph.rewrite(quantizer.rewrite)))
    return rounded.rewrite(quantizer.mark_positive)


class _Quantizer:
    """Rewrites the convolutions that multiply integers."""

    def __init__(self, graph: Graph, *, chooses: bool) -> None:
        self._graph, self._chooses = graph, chooses
        self._convolutions = find_rounding_convolutions(graph)

    @cached_property
    def _positive(self) -> set[Tensor]:
        return find_positive(self._graph)

    @cached_property
    def _products(self) -> set[Op]:
        """The convolutions that multiply integers on all processors."""
        return {op for op in self._convolutions if self._prefers_integers(op, vnni=False)}

    @cached_property
    def _choices(self) -> set[Op]:
        """The other convolutions that multiply integers on processors with VNNI."""
        others = (op for op in self._convolutions if self._chooses and op not in self._products)
        return {op for op in others if self._prefers_integers(op, vnni=True)}

    def _prefers_integers(self, op: Op, *, vnni: bool) -> bool:
        operator = self._convolutions[op]
        if not isinstance(operator, Conv2D):
            return False
        signed = op.inputs[0] not in self._positive
        loss = explain_floats(operator, signed=signed, vnni=vnni)
        form = "product of integers with VNNI" if vnni else "product of integers"
        if loss:
            log_loss(op, form, loss)
        return not loss

    @cached_property
    def _redundant_relus(self) -> set[Tensor]:
        """The outputs of RELU that only products with a scale for each pixel read."""
        products = {*filter(self._multiplies_pixels, self._convolutions)}
        return {
            tensor
            for op in self._graph.walk_ops()
            if op.activation == "RELU"
            for tensor in op.outputs
            if products and self._graph.readers.are_among(products, tensor)
            if tensor.symbols or tensor.elements > tensor.shape[-1]
        }

    def _multiplies_pixels(self, op: Op) -> bool:
        """Return whether a convolution becomes a product with a scale for each pixel."""
        operator = self._convolutions[op]
        is_pixel = isinstance(operator, Conv2D) and operator.quantizes_pixels
        return is_pixel and op in self._products

    def _keeps_channels_last(self, op: Op) -> bool:
        """Return whether an operator keeps the channels last, as products of integers do.

        These are DEPTH_TO_SPACE after a product, and MUL that scales the channels of an image that
        only products read: the move of channels costs nothing after a convolution in ONNX Runtime,
        but it does after MUL.
        """
        if op.is_builtin("DEPTH_TO_SPACE"):
            x = op.operand(0)
            return self._graph.producers.find(x) in self._products and x.symbols.keys() <= {0}
        if not op.is_builtin("MUL"):
            return False
        (y,), sizes = op.outputs, [t.shape[1:3] for t in op.present]
        scales = _PIXEL in sizes and y.shape[1:3] != _PIXEL
        return scales and self._graph.readers.are_among(self._products, y)

    def rewrite(self, op: Op) -> list[Op]:
        """Return the operators that replace an operator, the operator itself if none."""
        operator = self._convolutions.get(op)
        is_product, is_choice = op in self._products, op in self._choices
        if not self._redundant_relus.isdisjoint(op.outputs):
            op = op.with_activation("NONE")
        if self._keeps_channels_last(op):
            return [replace(op, made=op.read_made(LastChannelsOptions).replace(channels_last=True))]
        if isinstance(operator, TransposeConv):
            made = convolve_transposed(op, operator)
            if not isinstance(made, str):
                return made
            log_loss(op, "CONV_2D of blocks", made)
        if not isinstance(operator, Conv2D) or op.code != "CONV_2D":
            return [op]
        if is_product:
            return [self._multiply_integers(op, operator)]
        if is_choice:
            return self._choose(op, operator)
        return [_take_any_order(op) if self._products and self._chooses else op]

    def _multiply_integers(self, op: Op, operator: Conv2D) -> Op:
        if not operator.quantizes_pixels:
            return replace(op, code="INTEGER_CONV_2D")
        made = DenseOptions(data_are_positive=op.inputs[0] in self._positive)
        return replace(make_pixel_product(op), made=made)

    def _choose(self, op: Op, operator: Conv2D) -> list[Op]:
        """Return both forms of a convolution, and the choice between them."""
        names, (y,) = ("exact", "inexact"), op.outputs
        exact, inexact = (replace(op, outputs=(make_like(y, name),)) for name in names)
        rw = Rewriter(op)
        rw.op("EXACT_CHOICE", *exact.outputs, *inexact.outputs, output=y)
        return [self._multiply_integers(exact, operator), _take_any_order(inexact), *rw.ops]

    def mark_positive(self, op: Op) -> list[Op]:
        """Return an operator; if it quantizes positive data, it knows that they are positive."""
        made: DenseOptions | WindowOptions
        if op.is_builtin("FULLY_CONNECTED"):
            made, quantizes = op.read_made(DenseOptions), True
        elif op.is_builtin("CONV_2D", "DEPTHWISE_CONV_2D", "INTEGER_CONV_2D"):
            made = op.read_made(WindowOptions)
            quantizes = made.rounds_data or op.code == "INTEGER_CONV_2D"
        else:
            return [op]
        x = op.operand(0)
        if not quantizes or x not in self._positive or not is_hybrid(x, op.operand(1)):
            return [op]
        return [replace(op, made=made.replace(data_are_positive=True))]

    def rename_unlimited(self, graph: Graph) -> Graph:
        """Return the graph with other names for the results of operators that lost their RELU.

        These results have negative numbers, which the tensors of the file do not have.
        """
        names = {tensor: make_like(tensor, "before_relu") for tensor in self._redundant_relus}
        return graph.replace_tensors(names) if names else graph


def _take_any_order(op: Op) -> Op:
    return replace(op, made=op.read_made(AnyOrderOptions).replace(any_order=True))
