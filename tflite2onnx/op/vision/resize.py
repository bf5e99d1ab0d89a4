"""Images made larger or smaller."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.op.base import OperatorError
from tflite2onnx.op.common.checks import expect, expect_real, ints
from tflite2onnx.op.common.windows import ImageOperator
from tflite2onnx.quantize import half_away_scale, is_quantized
from tflite2onnx.tensor import Array, DType, Quantization

# ONNX's coordinate_transformation_mode, by align_corners and half_pixel_centers.
_MODES = {
    (False, False): "asymmetric",
    (True, False): "align_corners",
    (False, True): "half_pixel",
}
# Of the types that TFLite resizes, those for which ONNX Runtime has Resize.
_RESIZED = frozenset({DType.FLOAT32, DType.INT32, DType.INT8, DType.UINT8})
# Types whose bilinear kernels count in steps of 1 / 1024.
_IN_STEPS = (DType.INT8, DType.INT16)
# From here on float32, in which the kernels compute positions, cannot tell neighbours apart.
_MOST = 1 << 24


class Resize(ImageOperator):
    """What both ways of resizing have in common.

    ONNX is told the size, never the scale: that is a float32, and may round to another size.
    """

    shape_inputs = (1,)
    data_dependent_axes = (1, 2)

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        if self.axis_letters(operand)[axis] == "N" or self.has_data_dependent_shape:
            return True
        # By some kernels it is known for two sizes at a time which element each one is made of.
        plain = self.mode is not None and self.input(0).dtype in _RESIZED
        return operand == 0 and axis in (1, 2) and plain and not self.counts_in_steps

    @property
    def counts_in_steps(self) -> bool:
        """Whether the kernel rounds the distances of elements."""
        return False

    @property
    def _measures(self) -> bool:
        return self.has_data_dependent_shape or bool({1, 2} & self.input(0).symbols.keys())

    def check(self) -> None:
        if self.has_data_dependent_shape:
            self._check_dynamic()
            return
        x, size = self.sizes(0), ints(self, 1)
        if len(size) != 2 or not 0 < min(size) <= max(*size, x["H"], x["W"]) < _MOST:
            raise OperatorError(f"{size} is no size of an image")
        expect(self.output, (x["N"], *size, x["C"]), self.input(0).dtype)

    def _check_dynamic(self) -> None:
        x, made = self.input(0), self.output
        batch, *_, channels = x.shape
        expect(self.input(1), (2,), DType.INT32)
        size = made.shape[1:3] if made.rank == x.rank else (1, 1)
        expect(made, (batch, *size, channels), x.dtype)
        if x.dtype not in _RESIZED or self.mode is None:
            raise OperatorError(f"{x.dtype.label} can be resized to a constant size only")

    def _emit_resize(self, g: Builder, y: View, x: View, size: View, **how: str | None) -> Value:
        sizes = (
            g.runtime_shape(y.sizes, x)
            if not self.has_data_dependent_shape
            else g.Concat(g.runtime_shape(x.sizes[:2], x), g.as_int64_list(size), axis=0)
        )
        return g.Resize(x, None, None, sizes, coordinate_transformation_mode=self.mode, **how)

    @property
    def mode(self) -> str | None:
        """ONNX's name for the way in which positions correspond; None if it has none."""
        return _MODES.get((bool(self.options.align_corners), bool(self.options.half_pixel_centers)))


class ResizeBilinear(Resize):
    """RESIZE_BILINEAR: weighs rows and columns.

    The kernels of int8 and int16 find these by steps that they round, which moves the far end of
    a large image by many elements. Resize has no such steps: where they are rounded, it is Gather
    that takes the rows and columns, and these are weighed by constants.
    """

    codes = ("RESIZE_BILINEAR",)

    def check(self) -> None:
        super().check()
        expect_real(self.input(0))
        if self.mode is None:
            raise OperatorError("align_corners and half_pixel_centers exclude each other")

    @property
    def rounding_quantization(self) -> Quantization:
        return half_away_scale(2.0**-23)  # the least that a float32 tells from 1 on both sides

    @property
    def counts_in_steps(self) -> bool:
        return is_quantized(self.input(0)) and self.input(0).dtype in _IN_STEPS

    def emit(self, g: Builder, y: View, x: View, size: View) -> Value:
        align, half = bool(self.options.align_corners), bool(self.options.half_pixel_centers)
        sizes = {axis: (x.tensor.shape[axis], y.tensor.shape[axis]) for axis in (1, 2)}
        wanting = not self._measures and any(
            _rounds_distances(*sizes[axis], align=align) for axis in sizes
        )
        if not (wanting and self.counts_in_steps):
            return self._emit_resize(g, y, x, size, mode="linear")
        value = x.value
        for axis, (given, made) in sizes.items():
            below, above, weights = kernel_weights(given, made, align=align, half=half)
            at = x.axis(axis)
            one, other = (g.Gather(value, chosen, axis=at) for chosen in (below, above))
            shape = [-1 if i == at else 1 for i in range(x.rank)]
            value = g.Add(one, g.Mul(g.Sub(other, one), weights.reshape(shape)))
        return value


def _rounds_distances(size: int, made: int, *, align: bool) -> bool:
    """Return whether the distance of two elements made is no number of steps of 1 / 1024."""
    spans = align and made > 1
    return (size - spans) * 1024 % (made - spans) != 0


def kernel_weights(size: int, made: int, *, align: bool, half: bool) -> tuple[Array, Array, Array]:
    """Return which two of `size` elements each of `made` elements lies between, and how far.

    Two of int64, one of float32, all of shape [made]. The distance of two elements, rounded to
    1 / 1024, is multiplied by their number: ResizeBilinearInteger in LiteRT's
    reference/resize_bilinear.h. Where that reads behind the last element, this takes the last.
    """
    spans = align and made > 1
    step = ((size - spans) * 1024 + (made - spans) // 2) // (made - spans)
    at = np.arange(made) * step + (step // 2 - 512 if half else 0)
    below = _clip_indices(np.maximum(at, 0) // 1024, size)
    above = _clip_indices((np.maximum(at, -1023) + 1023) // 1024, size)
    return below, above, ((at - below * 1024) / 1024).astype(np.float32)


class ResizeNearest(Resize):
    """RESIZE_NEAREST_NEIGHBOR: chooses rows and columns.

    Resize says so most plainly, and serves where every runtime makes LiteRT's choice with it.
    They differ where a position lies halfway between two elements, or does but for rounding.
    Gather makes any choice, and of any type.
    """

    codes = ("RESIZE_NEAREST_NEIGHBOR",)
    moves_only = True

    def emit(self, g: Builder, y: View, x: View, size: View) -> Value:
        align, half = bool(self.options.align_corners), bool(self.options.half_pixel_centers)
        nearest = "floor" if self.mode == "asymmetric" else "round_prefer_ceil"
        if self._measures:
            return self._emit_resize(g, y, x, size, mode="nearest", nearest_mode=nearest)
        sizes = {axis: (x.tensor.shape[axis], y.tensor.shape[axis]) for axis in (1, 2)}
        chosen = {a: chosen_by_kernel(*sizes[a], align=align, half=half) for a in sizes}
        if (
            x.dtype in _RESIZED
            and self.mode is not None
            and all(
                np.array_equal(chosen[a], other)
                for a in sizes
                for other in chosen_by_onnx(*sizes[a], self.mode)
            )
        ):
            return self._emit_resize(g, y, x, size, mode="nearest", nearest_mode=nearest)
        moved = {
            x.axis(axis): indices
            for axis, indices in chosen.items()
            if not np.array_equal(indices, np.arange(x.tensor.shape[axis]))
        }
        return (
            g.with_compute_type("Gather", x.dtype, partial(_gather_axes, g, moved), x)
            if moved
            else x.value
        )


def _gather_axes(g: Builder, moved: Mapping[int, Array], value: Value) -> Value:
    for axis, indices in moved.items():
        value = g.Gather(value, indices, axis=axis)
    return value


def chosen_by_kernel(size: int, made: int, *, align: bool, half: bool) -> Array:
    """Return which of `size` elements each of `made` elements copies: int64 of shape [made].

    GetNearestNeighbor of LiteRT's reference/resize_nearest_neighbor.h, in float32 as there.
    """
    spans = align and made > 1
    scale = np.float32(size - spans) / np.float32(made - spans)
    at = (np.arange(made, dtype=np.float32) + np.float32(0.5 if half else 0)) * scale
    return _clip_indices(_round_half_up(at) if align else np.floor(at), size)


def chosen_by_onnx(size: int, made: int, mode: str) -> tuple[Array, Array]:
    """Return the same by the formulas of ONNX: in exact arithmetic, and in float32.

    ONNX Runtime follows the latter; since its issue 28291 it leans to the former.
    """
    i = np.arange(made)
    x, half = i.astype(np.float32), np.float32(0.5)
    scale, last = np.float32(made) / np.float32(size), max(made - 1, 1)
    if mode == "asymmetric":
        exact, rounded = i * size // made, np.floor(x / scale)
    elif mode == "half_pixel":
        exact, rounded = (2 * i + 1) * size // (2 * made), _round_half_up((x + half) / scale - half)
    else:
        exact = (2 * i * (size - 1) + last) // (2 * last)
        rounded = _round_half_up(x * np.float32(size - 1) / np.float32(last))
    return _clip_indices(exact, size), _clip_indices(rounded, size)


def _round_half_up(at: Array) -> Array:
    """Round halves up; in float64, where adding one to a float32 is exact."""
    return np.floor(at.astype(np.float64) + 0.5)


def _clip_indices(indices: Array, size: int) -> Array:
    return np.clip(indices, 0, size - 1).astype(np.int64)
