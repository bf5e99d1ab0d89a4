"""A convolution with 1x1 filters beside a TRANSPOSE becomes FULLY_CONNECTED on each pixel.

CONV_2D is pinned to channels first. FULLY_CONNECTED that keeps the axes of an image is a MatMul in
channels-last order, or a Conv in channels-first order: the planner chooses the order that moves
fewer bytes. MLP mixers apply convolutions to images and to transposed images in turn; with
MediaPipe's network of face blendshapes, the planner saves 9 of 11 Transposes. A convolution is
replaced if

1. it has one group, constant filters of one pixel, strides and dilations 1, and no padding;
2. its operands are float32;
3. operators other than convolutions connect its input or output with a TRANSPOSE of an image.
   Elsewhere no Transpose can be saved, and MatMul is slower than Conv between convolutions.

If no other convolution is left, the products get `MatrixOptions.as_matrix`: images with channels
first are multiplied by Gemm, not by Conv. ONNX Runtime computes Conv in blocks of channels, but not
the rest of a mixer. Without the moves into blocks and out of them the network of face blendshapes
takes 0.94 of the time.

This is no rule (`rules.py`): what a convolution becomes depends on all other convolutions.
"""

from dataclasses import replace

from tflite2onnx.graph import ABSENT, Graph, Op
from tflite2onnx.made_options import WindowOptions
from tflite2onnx.op import find_convolved
from tflite2onnx.passes.operands import has_unit_steps, is_float
from tflite2onnx.passes.patterns.rules import log_loss
from tflite2onnx.passes.rewriter import as_builtin
from tflite2onnx.targets.onnxruntime.operators.dense import MatrixOptions
from tflite2onnx.tensor import Tensor
from tflite2onnx.utils.disjoint_sets import DisjointSets

_IMAGE = 4  # axes


def multiply_pixels(graph: Graph) -> Graph:
    """Return the graph with FULLY_CONNECTED in place of convolutions beside a TRANSPOSE."""
    near, ops = _find_tensors_near_transpose(graph), [*graph.walk_ops()]
    fitting = [op for op in ops if _has_one_pixel(op)]
    found = {
        op: make_pixel_product(op)
        for op in fitting
        if not near.isdisjoint((op.operand(0), *op.outputs))
    }
    others = [op for op in fitting if op not in found]
    for op in others[:1]:
        log_loss(op, "FULLY_CONNECTED of pixels", "no TRANSPOSE is beside it", len(others) - 1)
    if all(find_convolved(op) is ABSENT for op in ops if op not in found):
        made = MatrixOptions(as_matrix=True)
        found = {op: replace(new, made=made) for op, new in found.items()}
    return graph.rewrite(lambda op: (found.get(op, op),)) if found else graph


def _find_tensors_near_transpose(graph: Graph) -> set[Tensor]:
    """Return the images that operators other than convolutions connect with a TRANSPOSE."""
    connected, images = DisjointSets[Tensor](), {op: _list_images(op) for op in graph.walk_ops()}
    for op, tensors in images.items():
        if tensors and find_convolved(op) is ABSENT:
            connected.join(tensors)
    turned = [tensors for op, tensors in images.items() if op.is_builtin("TRANSPOSE")]
    found = {connected.find(t) for tensors in turned for t in tensors}
    return {t for tensors in images.values() for t in tensors if connected.find(t) in found}


def _list_images(op: Op) -> list[Tensor]:
    operands = (*op.present[:_IMAGE], *op.outputs)
    return [t for t in operands if t.rank == _IMAGE and not t.has_data]


def _has_one_pixel(op: Op) -> bool:
    """Return whether an operator is a convolution for which conditions 1 and 2 hold."""
    x, filters = op.operand(0), op.operand(1)
    floats = op.is_builtin("CONV_2D") and is_float(x) and is_float(filters) and filters.has_data
    is_pixel = floats and filters.shape[1:] == (1, 1, x.shape[-1]) and has_unit_steps(op)
    return is_pixel and not any(op.read_made(WindowOptions).pads)


def make_pixel_product(op: Op) -> Op:
    """Return FULLY_CONNECTED that keeps the axes in place of CONV_2D with constant 1x1 filters."""
    x, filters, *bias = op.present
    weights = filters.reshape_constant((filters.shape[0], filters.shape[-1]))
    return as_builtin(
        op,
        "FULLY_CONNECTED",
        *(x, weights, *bias),
        fused_activation_function=op.activation,
        weights_format="DEFAULT",
        keep_num_dims=True,
        asymmetric_quantize_inputs=False,
    )
