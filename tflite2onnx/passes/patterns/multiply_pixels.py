"""A convolution with 1x1 filters beside a TRANSPOSE becomes FULLY_CONNECTED on each pixel.

CONV_2D is pinned to channels first. FULLY_CONNECTED that keeps the axes of an image is a MatMul in
channels-last order, or a Conv in channels-first order: the planner chooses the order that moves
fewer bytes. MLP mixers apply convolutions to images and to transposed images in turn; with
MediaPipe's network of face blendshapes, the planner saves 9 of 11 Transposes. A convolution is
replaced if

1. it has one group, constant filters of one pixel, strides and dilations 1, and no padding;
2. its operands are float32;
3. its input or output depends on a TRANSPOSE of an image, or a TRANSPOSE depends on it, by
   operators other than convolutions. Elsewhere no Transpose can be saved, and MatMul is slower
   than Conv between other convolutions.

If no other convolution is left, the products have the option `as_matrix`: images in channels-first
order are multiplied by Gemm, not by Conv. ONNX Runtime computes Conv in blocks of channels, but not
the rest of a mixer. Without the moves into blocks and out of them the network of face blendshapes
takes 0.94 of the time.

This is no rule (`rules.py`): what a convolution becomes depends on all other convolutions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tflite2onnx.graph import ABSENT, Graph, Op, Options
from tflite2onnx.op import find_convolved
from tflite2onnx.passes.operands import has_unit_steps, is_float
from tflite2onnx.tensor import Tensor
from tflite2onnx.utils.disjoint_sets import DisjointSets

_IMAGE = 4  # axes


def multiply_pixels(graph: Graph) -> Graph:
    """Return the graph with FULLY_CONNECTED in place of convolutions beside a TRANSPOSE."""
    near = _find_tensors_near_transpose(list(graph.walk_ops()))
    changed = {op: _multiply_pixels(op, near) for op in graph.walk_ops()} if near else {}
    found = {op: new for op, new in changed.items() if new is not op}
    if all(find_convolved(op) is ABSENT for op in changed.values()):
        found = {op: new.with_options(as_matrix=True) for op, new in found.items()}
    return graph.rewrite(lambda op: (found.get(op, op),)) if found else graph


def _find_tensors_near_transpose(ops: Sequence[Op]) -> set[Tensor]:
    """Return the images that operators other than convolutions connect with a TRANSPOSE."""
    connected = DisjointSets[Tensor]()
    for op in ops:
        if find_convolved(op) is ABSENT and (images := _list_images(op)):
            connected.join(images)
    turned = [_list_images(op) for op in ops if op.is_builtin("TRANSPOSE")]
    found = {connected.find(t) for images in turned for t in images}
    return {t for op in ops for t in _list_images(op) if connected.find(t) in found}


def _list_images(op: Op) -> list[Tensor]:
    operands = (*op.present[:_IMAGE], *op.outputs)
    return [t for t in operands if t.rank == _IMAGE and not t.has_data]


def _multiply_pixels(op: Op, near: set[Tensor]) -> Op:
    """Return FULLY_CONNECTED; the operator itself unless the conditions hold."""
    x, filters = op.operand(0), op.operand(1)
    if not op.is_builtin("CONV_2D") or near.isdisjoint((x, *op.outputs)):
        return op
    if not filters.has_data or not is_float(filters):
        return op
    plain = has_unit_steps(op)
    pads = op.options.get("padding") == "EXPLICIT" and any(op.options.get("pads", ()))
    fits = filters.shape[1:] == (1, 1, x.shape[-1])
    if not (plain and fits and is_float(x)) or pads:
        return op
    return make_pixel_product(op)


def make_pixel_product(op: Op) -> Op:
    """Return FULLY_CONNECTED that keeps the axes in place of CONV_2D with constant 1x1 filters."""
    x, filters, *bias = op.present
    weights = filters.reshape_constant((filters.shape[0], filters.shape[-1]))
    options = Options(
        {
            "fused_activation_function": op.activation,
            "weights_format": "DEFAULT",
            "keep_num_dims": True,
            "asymmetric_quantize_inputs": False,
        }
    )
    return replace(op, code="FULLY_CONNECTED", inputs=(x, weights, *bias), options=options)
