"""Recognise normalizations of groups of channels, as Keras writes them, in an image.

    RESHAPE to [N, H, W, groups, C / groups]
    (x - mean) / sqrt(variance + epsilon) * scale + bias    over the axes 1, 2 and 4
    RESHAPE to [N, H, W, C]

The operators are those of `fuse_normalizations`. GROUP_NORMALIZATION, which no file contains,
replaces them if

1. the conditions of `fuse_normalizations` hold, but the scale and the bias have one element for
   each channel, or only one;
2. the first RESHAPE splits the channels of a float32 image into groups, and the last one, which
   applies to the result only, joins them.

ONNX Runtime computes it as InstanceNormalization of the groups: in 0.3 to 0.6 of the time with
channels first, and with Transposes on both sides as well. It has no kernel of GroupNormalization.
"""

from __future__ import annotations

import numpy as np

from tflite2onnx.graph import Op
from tflite2onnx.passes.operands import is_float
from tflite2onnx.passes.patterns.matching import Match, Named
from tflite2onnx.passes.patterns.normalizations.fuse_normalizations import NORMALIZED
from tflite2onnx.passes.patterns.rules import Rule, Rules
from tflite2onnx.passes.rewriter import as_builtin
from tflite2onnx.tensor import Tensor

_IMAGE, _GROUPED = 4, 5  # axes
_AXES = {1, 2, 4}


def _normalize_groups(found: Match) -> Op | None:
    x, epsilon = found.tensors["x"], found.number("epsilon#")
    op, groups = found.last, found.tensors["groups"]
    split = found.graph.producers.find(x)
    image = split.operand(0)
    if not split.is_builtin("RESHAPE") or image.rank != _IMAGE or not is_float(image):
        return None
    if epsilon is None or image.sizes != op.outputs[0].sizes or 0 in image.shape:
        return None
    if not (groups.rank == _GROUPED and x.sizes == groups.sizes and found.keeps_axes()):
        return None
    if x.sizes[:3] != image.sizes[:3] or found.find_axes("axes#", _GROUPED) != _AXES:
        return None
    names = [name for name in ("scale#", "bias#") if name in found.tensors]
    known = {name: _join_groups(found.tensors[name], x) for name in names}
    if None in known.values():
        return None
    options = {
        "groups": x.shape[3],
        "epsilon": epsilon,
        "fused_activation_function": found.graph.producers[groups].activation,
    }
    parameters = (known.get("scale#"), known.get("bias#"))
    return as_builtin(op, "GROUP_NORMALIZATION", image, *parameters, **options)


def _join_groups(tensor: Tensor, x: Tensor) -> Tensor | None:
    """Return a constant as [C], None if it varies along another axis than those of channels."""
    groups = x.shape[3:]
    if not tensor.has_data or not is_float(tensor) or any(size != 1 for size in tensor.shape[:-2]):
        return None
    last = (*(1 for _ in groups[tensor.rank :]), *tensor.shape)[-2:]
    if any(size not in (1, whole) for size, whole in zip(last, groups, strict=True)):
        return None
    vector = np.ascontiguousarray(np.broadcast_to(tensor.values.reshape(last), groups)).reshape(-1)
    return Tensor(tensor.name, vector.shape, tensor.dtype, vector)


fuse_group_normalizations = Rules(
    Rule(
        "group normalization as Keras has it",
        "GROUP_NORMALIZATION",
        ("RESHAPE", Named("groups", NORMALIZED), ...),
        _normalize_groups,
    ),
)
