"""Groups of 4 channels are merged to groups of 16, by filters of zeros, for ONNX Runtime.

ONNX Runtime computes a convolution with groups in blocks of channels if each group reads and makes
whole blocks: 16 channels with AVX-512, 8 with AVX2. Otherwise it copies the image, and computes the
groups one by one. Four groups as one have four times the multiplications. Three convolutions of 32
groups (ResNeXt), each with one of 1x1 filters behind it, take 0.65 of the time with AVX-512, and
0.88 with AVX2. With AVX2, groups of 8 and of 24 channels as groups of 16 and 48 would take 1.11 and
1.6 times as long, and groups of 12 as groups of 48 1.1 times.

A convolution is replaced if its filters are constant and float32, and its channels and those of the
image are multiples of 16 for each four groups. An infinite channel gives NaN in the other groups
that are merged with its own.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tflite2onnx.graph import Op
from tflite2onnx.passes.operands import is_float
from tflite2onnx.passes.patterns.matching import Activated, Match
from tflite2onnx.passes.patterns.rules import Rule, Rules
from tflite2onnx.passes.rewriter import make_constant

_FEW, _BLOCK = 4, 16  # channels of a group, and of a block


def _merge(found: Match) -> Op | None:
    op, x, w = found.last, found.x, found.tensors["filters#"]
    merged, rest = divmod(x.shape[-1], _BLOCK)
    if not is_float(w) or w.shape[-1] != _FEW or rest or w.shape[0] % (merged * _BLOCK):
        return None
    filters = np.zeros((*w.shape[:-1], _BLOCK), np.float32)
    groups = np.arange(w.shape[0]) * (x.shape[-1] // _FEW) // w.shape[0]
    for i in range(_BLOCK // _FEW):
        rows = groups % (_BLOCK // _FEW) == i
        filters[rows, :, :, i * _FEW : (i + 1) * _FEW] = w.values[rows]
    return replace(op, inputs=(x, make_constant(f"{w.name}/merged", filters, w), *op.inputs[2:]))


merge_groups = Rules(
    Rule(
        "convolution with groups of 4 channels",
        "CONV_2D with groups of 16",
        Activated(("CONV_2D", "x", "filters#", ...)),
        _merge,
    ),
)
