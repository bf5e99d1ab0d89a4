"""Recognise softmax and normalizations that a model spells out.

    SOFTMAX            exp(x - max(x)) / sum(exp(x - max(x)))
    LOG_SOFTMAX        x - max(x) - log(sum(exp(x - max(x))))
    NORMALIZATION      (x - mean) / sqrt(variance + epsilon) * scale + bias
    RMS_NORMALIZATION  x / sqrt(mean(x * x) + epsilon) * scale

No file contains the last two, and GROUP_NORMALIZATION: a NORMALIZATION of groups of channels, as
Keras writes it for an image, over the axes 1, 2 and 4 between two RESHAPE,

    RESHAPE to [N, H, W, groups, C / groups], ..., RESHAPE to [N, H, W, C]

The operators are replaced, in every grouping of the factors and terms that Keras, PyTorch's exports
and MediaPipe write (x * m - mean * m + bias, (x - mean) * m, (x - mean) / deviation, ...), if

1. all tensors are float32, the result has the shape of x, and x has no axis of size 0;
2. the reductions keep their axes, or RESHAPE restores them, except for softmax: litert-torch
   normalizes rows of [1, R, C]. The last axis is that of softmax and RMS, whose mean may be a SUM
   multiplied by or divided by the number of elements;
3. epsilon is one number; scale and bias are constants that vary along the last axis only (along the
   channels, of groups), or are missing;
4. no other operator reads the tensors between the operators.

Softmax without the maximum stays, because it overflows where SOFTMAX does not. Groups are computed
as InstanceNormalization, because runtimes have no kernel of GroupNormalization.
"""

from collections.abc import Collection, Sequence
from math import prod
from operator import contains

import numpy as np

from tflite2onnx.graph import Op
from tflite2onnx.made_options import NormalizationOptions
from tflite2onnx.op.facts import Fact
from tflite2onnx.passes.operands import has, is_float, normalize_axes, spread_over_channels
from tflite2onnx.passes.patterns.matching import (
    Activated,
    Match,
    Named,
    OneOf,
    Pattern,
    Through,
    maybe,
)
from tflite2onnx.passes.patterns.rules import Rule, Rules, replace_by, rule
from tflite2onnx.passes.rewriter import as_builtin
from tflite2onnx.tensor import DType, Tensor

_MOST = 1 << 16  # channels of a scale or a bias that is one number in the file
_CLOSE = 1e-6  # relative difference of numbers
_IMAGE, _GROUPED = 4, 5  # axes

_LARGEST: Pattern = ("REDUCE_MAX", "x", "axes#")
_BELOW: Pattern = ("SUB", "x", _LARGEST)
_POWERS: Pattern = ("SUM", ("EXP", _BELOW), "axes#")
_LOGARITHM = OneOf(
    ("SUB", _BELOW, ("LOG", _POWERS)),
    ("SUB", "x", ("ADD", ("LOG", _POWERS), _LARGEST)),
)

_MEAN = Through(("MEAN", "x", "axes#"))
_CENTRED: Pattern = ("SUB", "x", _MEAN)
_SQUARES = OneOf(
    *(("SQUARED_DIFFERENCE", "x", _MEAN), ("SQUARE", _CENTRED), ("MUL", _CENTRED, _CENTRED))
)
_SHIFTED = Through(("ADD", Through(("MEAN", _SQUARES, "axes#")), "epsilon#"))
_INVERSE = Through(("RSQRT", _SHIFTED))


def _multiply_terms(factor: Pattern) -> tuple[Pattern, Pattern, Pattern]:
    """Return x * factor, mean * factor, and the negative of that."""
    product: Pattern = ("MUL", _MEAN, factor)
    negative = Through(OneOf(("MUL", ("NEG", _MEAN), factor), ("SUB", 0, product)))
    return ("MUL", "x", factor), product, negative


def _subtract_mean(factor: Pattern) -> OneOf:
    x, mean, negative = _multiply_terms(factor)
    return OneOf(("SUB", x, mean), ("ADD", x, negative))


def _add_offset(factor: Pattern) -> Pattern:
    x, mean, negative = _multiply_terms(factor)
    return ("ADD", x, OneOf(("SUB", "bias#", mean), ("ADD", "bias#", negative)))


_SCALE: Pattern = ("MUL", _INVERSE, "scale#")
_RATIO = OneOf(
    ("MUL", _CENTRED, _INVERSE),
    ("DIV", _CENTRED, Through(("SQRT", _SHIFTED))),
    _subtract_mean(_INVERSE),
)
_SCALED = OneOf(maybe("MUL", _RATIO, "scale#"), ("MUL", _CENTRED, _SCALE), _subtract_mean(_SCALE))
# The names are x, axes#, epsilon#, scale#, bias#.
_NORMALIZED = Activated(
    OneOf(_add_offset(_SCALE), _add_offset(_INVERSE), maybe("ADD", _SCALED, "bias#"))
)

_OWN_SQUARES = OneOf(("MUL", "x", "x"), ("SQUARE", "x"), ("POW", "x", 2))
_SUM = Through(("SUM", _OWN_SQUARES, "axes#"))
_MEAN_SQUARE = Through(
    OneOf(("MEAN", _OWN_SQUARES, "axes#"), ("MUL", _SUM, "share#"), ("DIV", _SUM, "count#"))
)
_SUMMED = Through(("ADD", _MEAN_SQUARE, "epsilon#"))
_INVERSE_ROOT = OneOf(("RSQRT", _SUMMED), ("POW", _SUMMED, -0.5))
_BY_ROOT: Pattern = ("DIV", "x", ("SQRT", _SUMMED))
_BY_MEAN_SQUARE = OneOf(
    maybe("MUL", OneOf(("MUL", "x", _INVERSE_ROOT), _BY_ROOT), "scale#"),
    ("MUL", "x", ("MUL", _INVERSE_ROOT, "scale#")),
)

# Why a normalization stays as the file has it.
_UNLESS = "x must keep its elements, and the constants fit its channels"
_NOT_RESTORED = "operands must have the sizes of x, or 1 in each axis that is averaged"


def _keeps_elements(found: Match) -> bool:
    return found.keeps_shape() and 0 not in found.x.shape


def _find_axes(found: Match) -> set[int]:
    """Return the axes of the reductions, from 0 on; none if a constant lists no integers."""
    axes, rank = found.tensors["axes#"].values, found.x.rank
    return normalize_axes(axes, rank) if axes.dtype.kind == "i" and rank else set()


def _is_along_last_axis(found: Match) -> bool:
    reductions = (op for op in found.ops if has(op, Fact.REDUCES))
    keeps = all(op.options.get("keep_dims") for op in reductions)
    return keeps and _find_axes(found) == {found.x.rank - 1} and _keeps_elements(found)


@rule("normalization by mean and variance", "NORMALIZATION", _NORMALIZED)
def fuse_normalizations(found: Match) -> Op | str:
    """Return what replaces the match, or why nothing does."""
    x, epsilon, parameters = found.x, found.number("epsilon#"), _read_parameters(found, axes=1)
    reduced = _find_axes(found)
    if not _keeps_elements(found) or not reduced or epsilon is None or not parameters:
        return _UNLESS
    if not _restores_axes(found, reduced):
        return _NOT_RESTORED
    if any(op.code == "RESHAPE" for op in found.ops):
        reduced = {axis for axis in reduced if x.sizes[axis] != 1} or reduced
    made = NormalizationOptions(epsilon=epsilon, axes=tuple(sorted(reduced)))
    return _replace_by("NORMALIZATION", found.last, x, *parameters, made=made)


def _replace_by(code: str, last: Op, *inputs: Tensor | None, made: NormalizationOptions) -> Op:
    """Return an operator with the output and the activation of another."""
    activation = last.activation
    return as_builtin(last, code, *inputs, made=made, fused_activation_function=activation)


def _restores_axes(found: Match, reduced: Collection[int]) -> bool:
    """Return whether means stand beside the elements of x of which they are.

    Each operand has the axes of x, reduced or whole. RESHAPE may restore them, so that operands
    with fewer axes meet operands of the same axes, and single numbers, only.
    """
    axes = [{1, size} if axis in reduced else {size} for axis, size in enumerate(found.x.sizes)]
    for op in found.ops:
        operands = () if op.is_builtin("RESHAPE") or has(op, Fact.REDUCES) else op.present
        sizes = {t.sizes for t in operands if not t.has_data}
        fits = all(len(s) == len(axes) and all(map(contains, axes, s)) for s in sizes)
        constants = [t for t in operands if t.has_data]
        if not fits and (len(sizes) > 1 or any(t.elements > 1 for t in constants)):
            return False
    return True


@rule(
    "group normalization as Keras has it",
    "GROUP_NORMALIZATION",
    ("RESHAPE", Named("groups", _NORMALIZED), ...),
)
def fuse_group_normalizations(found: Match) -> Op | str:
    """Return what replaces the match, or why nothing does."""
    x, groups, epsilon = found.x, found.tensors["groups"], found.number("epsilon#")
    split, parameters = found.graph.producers.find(x), _read_parameters(found, axes=2)
    image = split.operand(0)
    if not split.is_builtin("RESHAPE") or image.rank != _IMAGE or not is_float(image):
        return "RESHAPE must split the channels of a float32 image"
    if epsilon is None or image.sizes != found.output.sizes or 0 in image.shape:
        return _UNLESS
    if groups.rank != _GROUPED or x.sizes != groups.sizes or x.sizes[:3] != image.sizes[:3]:
        return "the groups must have the batch, height and width of the image"
    reduced = _find_axes(found)
    if reduced != {1, 2, 4} or not _restores_axes(found, reduced):
        return _NOT_RESTORED
    activation = found.graph.producers[groups].activation
    if not parameters:
        return _UNLESS
    made = NormalizationOptions(epsilon=epsilon, num_groups=x.shape[3])
    last = found.last.with_activation(activation)
    return _replace_by("GROUP_NORMALIZATION", last, image, *parameters, made=made)


@rule("RMS normalization", "RMS_NORMALIZATION", Activated(_BY_MEAN_SQUARE))
def fuse_rms_normalizations(found: Match) -> Op | str:
    """Return what replaces the match, or why nothing does."""
    x, epsilon = found.x, found.number("epsilon#")
    one = Tensor("one", (1,), DType.FLOAT32, np.ones(1, np.float32))
    scale = _spread_over_channels(found.tensors.get("scale#", one), x, axes=1)
    if not scale or epsilon is None or not _keeps_elements(found):
        return _UNLESS
    count = found.number("count#", x.shape[-1])
    share = found.number("share#", 1 / count if count else 0) or 0
    averages = abs(share * x.shape[-1] - 1) <= _CLOSE
    last = _find_axes(found)
    if not averages or last != {x.rank - 1} or not _restores_axes(found, last):
        return "the squares must be averaged along the last axis, which stays"
    made = NormalizationOptions(epsilon=epsilon)
    return _replace_by("RMS_NORMALIZATION", found.last, x, scale, made=made)


def _read_parameters(found: Match, axes: int) -> Sequence[Tensor | None]:
    """Return the scale and the bias as [C], None for a missing one; empty if one does not fit."""
    given = [found.tensors.get(name) for name in ("scale#", "bias#")]
    spread = [t and _spread_over_channels(t, found.x, axes) for t in given]
    return spread if all(bool(a) == bool(b) for a, b in zip(given, spread, strict=True)) else ()


def _spread_over_channels(tensor: Tensor, x: Tensor, axes: int) -> Tensor | None:
    """Return a constant as [C], None if it varies along another axis than the last ones of x."""
    is_fixed = x.symbols.keys().isdisjoint(range(x.rank - axes, x.rank))
    if not is_float(tensor) or not is_fixed or prod(x.shape[-axes:]) > _MOST:
        return None
    data = spread_over_channels(tensor, x, axes)
    return Tensor(tensor.name, data.shape, tensor.dtype, data) if data.size else None


_NOT_LAST = "the sum and the maximum must be along the last axis, which stays"
_SOFTMAX: Pattern = ("DIV", ("EXP", _BELOW), _POWERS)
fuse_softmax = Rules(
    Rule(
        "softmax",
        "SOFTMAX",
        _SOFTMAX,
        replace_by("SOFTMAX", beta=1.0),
        _is_along_last_axis,
        _NOT_LAST,
    ),
    Rule(
        "softmax, logarithm",
        "LOG_SOFTMAX",
        _LOGARITHM,
        replace_by("LOG_SOFTMAX", beta=1.0),
        _is_along_last_axis,
        _NOT_LAST,
    ),
)
