"""Resizing of images."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from math import floor

import numpy as np

from tflite2onnx.builder.builder import Builder, Value, View
from tflite2onnx.op.base import OperatorError, OutputShape, Unknown
from tflite2onnx.op.common.checks import expect_real, ints
from tflite2onnx.op.common.windows import ImageOperator
from tflite2onnx.quantization.declarations import Moves, Real, declare_averages
from tflite2onnx.quantization.storage import compute_half_away_scale, is_quantized
from tflite2onnx.tensor import Array, DType

# The values of coordinate_transformation_mode in ONNX, by align_corners and half_pixel_centers.
_MODES = {(False, False): "asymmetric", (True, False): "align_corners", (False, True): "half_pixel"}
# The types that TFLite resizes and for which runtimes have a Resize kernel.
_RESIZED = frozenset({DType.FLOAT32, DType.INT32, DType.INT8, DType.UINT8})
BYTES = (DType.INT8, DType.UINT8)
_HALF = Fraction(1, 2)
# The kernels compute positions in float32, which is exact for integers below this limit.
_MOST = 1 << 24


class Resize(ImageOperator):
    """Base class of the resizing operators.

    The Resize node gets sizes, not scales: a scale is a float32, and may round to another size. If
    only the batch is dynamic, Resize gets scales that are exact, because sizes would have to be
    computed.
    """

    shape_inputs = (1,)
    operands = "T, int32~ [2] -> T"

    def supports_dynamic_axis(self, operand: int, axis: int) -> bool:
        if self.read_letters(operand)[axis] in "NC" or self.has_data_dependent_shape:
            return True
        # Other forms gather pixels at constant indices, which depend on both sizes.
        is_plain = self.mode is not None and self.input(0).dtype in _RESIZED
        return operand == 0 and axis in (1, 2) and is_plain and not self.counts_in_steps

    @property
    def counts_in_steps(self) -> bool:
        """Whether the kernel rounds the distance of elements to 1 / 1024."""
        return False

    @property
    def _has_dynamic_size(self) -> bool:
        return self.has_data_dependent_shape or bool({1, 2} & self.input(0).symbols.keys())

    def infer_outputs(self) -> Sequence[OutputShape]:
        x = self.sizes(0)
        is_computed = self.has_data_dependent_shape
        image = [Unknown(), Unknown()] if is_computed else ints(self, 1)
        return [(x["N"], *image, x["C"])]

    def check(self) -> None:
        if self.has_data_dependent_shape:
            self._check_dynamic()
            return
        x, size = self.sizes(0), ints(self, 1)
        if len(size) != 2 or not 0 < min(size) <= max(*size, x["H"], x["W"]) < _MOST:
            raise OperatorError(
                f"its size must be a height and a width from 1 to {_MOST - 1}, got {size} for an "
                f"image of {x['H'], x['W']}"
            )

    def _check_dynamic(self) -> None:
        x = self.input(0)
        if x.dtype not in _RESIZED or self.mode is None:
            raise OperatorError(
                f"its size must be constant, because ONNX's Resize does not support "
                f"{x.dtype.label} with these options"
            )

    def emit_resize(
        self, g: Builder, y: View, x: View, size: View, **attributes: str | None
    ) -> Value:
        """Return a Resize with these attributes, and with the size or the scales of the output."""
        attributes = {"coordinate_transformation_mode": self.mode, **attributes}
        scales, shape = self._find_scales(x, y), None
        if self.has_data_dependent_shape:
            shape = g.Concat(g.runtime_shape(x.sizes[:2], x), g.as_int64_list(size), axis=0)
        elif scales is None:
            shape = g.runtime_shape(y.sizes, x)
        return g.Resize(x, None, scales, shape, **attributes)

    def _find_scales(self, x: View, y: View) -> Array | None:
        """Return the scale of each axis if only the batch is dynamic, and all scales are exact."""
        if x.tensor.symbols.keys() != {0} or y.tensor.symbols.keys() != {0} or 0 in x.shape:
            return None
        scales = np.array(y.shape, np.float32) / np.array(x.shape, np.float32)
        is_exact = np.array_equal(scales.astype(np.float64) * x.shape, y.shape)
        return scales if is_exact else None

    @property
    def mode(self) -> str | None:
        """ONNX's coordinate_transformation_mode; None if ONNX has no mode for the options."""
        return _MODES.get((bool(self.options.align_corners), bool(self.options.half_pixel_centers)))


class ResizeBilinear(Resize):
    """RESIZE_BILINEAR: interpolate linearly between rows and columns.

    8-bit integers are computed by XNNPACK, LiteRT's default delegate, which rounds each weight to 1
    / 2048 (xnn_indirection_init_resize_bilinear2d_hwc_q11 in indirection.c), and rounds halves
    upwards. Resize does not round weights: one of 30 to 100 elements differs by a step, and none
    differs if the weights are multiples of 1 / 2048. LiteRT's own int8 kernel differs from XNNPACK
    and from Resize by several steps.

    The int16 kernel, which has no delegate, rounds the distance of elements to 1 / 1024. This moves
    the last rows of a large image by several elements. Where rounding changes the distance, Gather
    nodes select the rows and columns, and constants weigh them.

    float32 images are resized with channels last, except to a multiple of their size: 32x32 pixels
    of 32 channels to 45x45 between two convolutions take 0.57 of the time, 33x33 of 21 to 257x257
    0.80, 32x32 of 32 to 16x16 0.79, 16x16 of 21 after a convolution to 128x128 0.37 (AMD EPYC,
    family 26).
    """

    codes = ("RESIZE_BILINEAR",)

    def check(self) -> None:
        super().check()
        expect_real(self.input(0))
        if self.mode is None:
            raise OperatorError("align_corners and half_pixel_centers must not both be set")

    @property
    def quantization(self) -> Real:
        # 2^-23 is the distance between 1 and the next float32 number.
        rounding, x = compute_half_away_scale(2.0**-23), self.input(0)
        return declare_averages(x, rounding, upwards=x.dtype in BYTES)

    @property
    def allowed_steps(self) -> int:
        """The number of steps by which LiteRT's own int8 kernel may differ from XNNPACK.

        The kernels read pixels at different positions, and two neighbouring pixels may be 255 steps
        apart.
        """
        x = self.input(0)
        if x.dtype is not DType.INT8 or self._has_dynamic_size or 0 in x.shape:
            return super().allowed_steps
        align, new = bool(self.options.align_corners), ints(self, 1)
        sizes = zip(x.shape[1:3], new, strict=True)
        return 1 + int(255 * sum(_find_displacement(*pair, align=align) for pair in sizes))

    @property
    def counts_in_steps(self) -> bool:
        return is_quantized(self.input(0)) and self.input(0).dtype is DType.INT16

    def emit(self, g: Builder, y: View, x: View, size: View) -> Value:
        align, half = bool(self.options.align_corners), bool(self.options.half_pixel_centers)
        sizes = {axis: (x.tensor.shape[axis], y.tensor.shape[axis]) for axis in (1, 2)}
        axes = () if self._has_dynamic_size else sizes.values()
        rounds = any(_find_distance(*pair, align=align).denominator > 1 for pair in axes)
        if not (rounds and self.counts_in_steps):
            return self.interpolate(g, y, x, size)
        value = x.value
        for axis, (input_size, output_size) in sizes.items():
            below, above, weights = compute_weights(input_size, output_size, align=align, half=half)
            onnx_axis = x.axis(axis)
            first, second = (g.Gather(value, indices, axis=onnx_axis) for indices in (below, above))
            shape = [-1 if i == onnx_axis else 1 for i in range(x.rank)]
            value = g.Add(first, g.Mul(g.Sub(second, first), weights.reshape(shape)))
        return value

    def interpolate(self, g: Builder, y: View, x: View, size: View) -> Value:
        return self.emit_resize(g, y, x, size, mode="linear")


def _find_distance(size: int, output_size: int, *, align: bool) -> Fraction:
    """Return the distance of output elements, in 1 / 1024 of the distance of input elements."""
    spans = align and output_size > 1
    return Fraction((size - spans) * 1024, output_size - spans)


def _find_displacement(size: int, output_size: int, *, align: bool) -> float:
    """Return the displacement of the last element if distances are rounded to 1 / 1024."""
    distance = _find_distance(size, output_size, align=align)
    return float((output_size - 1) * abs(floor(distance + _HALF) - distance) / 1024)


def compute_weights(
    size: int, output_size: int, *, align: bool, half: bool
) -> tuple[Array, Array, Array]:
    """Return the input elements around each output element, and the weight of the upper element.

    The distance of two elements is rounded to 1 / 1024 and multiplied by their index, as in
    ResizeBilinearInteger of LiteRT's reference/resize_bilinear.h. Where the kernel reads past the
    last element, this function uses the last element.

    Returns:
        The indices below and above, int64 [output_size], and the weights, float32 [output_size].
    """
    step = floor(_find_distance(size, output_size, align=align) + _HALF)
    position = np.arange(output_size) * step + (step // 2 - 512 if half else 0)
    below = _clip_indices(np.maximum(position, 0) // 1024, size)
    above = _clip_indices((np.maximum(position, -1023) + 1023) // 1024, size)
    return below, above, ((position - below * 1024) / 1024).astype(np.float32)


class ResizeNearest(Resize):
    """RESIZE_NEAREST_NEIGHBOR: select the nearest rows and columns.

    This becomes Resize if every runtime selects the same elements as LiteRT. Runtimes differ where
    a position is halfway between two elements, or nearly halfway because of rounding. Otherwise
    this becomes Gather nodes, which can select any elements of any type.
    """

    codes = ("RESIZE_NEAREST_NEIGHBOR",)
    quantization = Moves()

    def emit(self, g: Builder, y: View, x: View, size: View) -> Value:
        align, half = bool(self.options.align_corners), bool(self.options.half_pixel_centers)
        if self._has_dynamic_size and self.mode is not None:
            return self.emit_nearest(g, y, x, size, self.mode)
        sizes = {axis: (x.tensor.shape[axis], y.tensor.shape[axis]) for axis in (1, 2)}
        selected = {a: find_indices(*sizes[a], align=align, half=half) for a in sizes}
        if x.tensor.dtype in BYTES and not (align or half):
            selected = {a: find_integer_indices(*sizes[a]) for a in sizes}
        # Runtimes have a fast kernel for "asymmetric", which selects the same elements as other
        # modes if the size is a multiple.
        for mode in ("asymmetric", self.mode) if x.dtype in _RESIZED else ():
            if mode is not None and all(
                np.array_equal(selected[a], expected)
                for a in sizes
                for expected in find_onnx_indices(*sizes[a], mode)
            ):
                return self.emit_nearest(g, y, x, size, mode)
        indices_by_axis = {
            x.axis(axis): indices
            for axis, indices in selected.items()
            if not np.array_equal(indices, np.arange(x.tensor.shape[axis]))
        }
        if not indices_by_axis:
            return x.value
        gather = partial(_gather_axes, g, indices_by_axis)
        return g.with_compute_type("Gather", x.dtype, gather, x)

    def emit_nearest(self, g: Builder, y: View, x: View, size: View, mode: str) -> Value:
        """Return a Resize of the image in a mode that selects the same pixels."""
        return self.emit_resize(g, y, x, size, **list_nearest_attributes(mode))


def list_nearest_attributes(mode: str) -> dict[str, str]:
    """Return the attributes of a Resize that selects pixels in a mode."""
    return {
        "mode": "nearest",
        "nearest_mode": "floor" if mode == "asymmetric" else "round_prefer_ceil",
        "coordinate_transformation_mode": mode,
    }


def _gather_axes(g: Builder, indices_by_axis: Mapping[int, Array], value: Value) -> Value:
    for axis, indices in indices_by_axis.items():
        value = g.Gather(value, indices, axis=axis)
    return value


def find_indices(size: int, output_size: int, *, align: bool, half: bool) -> Array:
    """Return the input element that each output element copies: int64 [output_size].

    This is GetNearestNeighbor of LiteRT's reference/resize_nearest_neighbor.h, in float32 like the
    kernel.
    """
    spans = align and output_size > 1
    scale = np.float32(size - spans) / np.float32(output_size - spans)
    position = (np.arange(output_size, dtype=np.float32) + np.float32(0.5 if half else 0)) * scale
    return _clip_indices(_round_half_up(position) if align else np.floor(position), size)


def find_integer_indices(size: int, output_size: int) -> Array:
    """Return the result of `find_indices` for elements of 8 bits without options.

    This is ResizeNearestNeighbor of LiteRT's optimized/optimized_ops.h: the scale has 16 fractional
    bits and is rounded up, so later output elements may copy the next input element.
    """
    scale = (size << 16) // output_size + 1
    places: Array = np.arange(output_size, dtype=np.int64) * scale >> 16
    return np.minimum(places, size - 1)


def find_onnx_indices(size: int, output_size: int, mode: str) -> tuple[Array, Array]:
    """Return ONNX's results in place of `find_indices`: in exact arithmetic, and in float32.

    Runtimes compute in float32, and in some versions exactly (docs/runtime-faults.md).
    """
    i = np.arange(output_size)
    x, half = i.astype(np.float32), np.float32(0.5)
    scale, last = np.float32(output_size) / np.float32(size), max(output_size - 1, 1)
    if mode == "asymmetric":
        exact, rounded = i * size // output_size, np.floor(x / scale)
    elif mode == "half_pixel":
        exact = (2 * i + 1) * size // (2 * output_size)
        rounded = _round_half_up((x + half) / scale - half)
    else:
        exact = (2 * i * (size - 1) + last) // (2 * last)
        rounded = _round_half_up(x * np.float32(size - 1) / np.float32(last))
    return _clip_indices(exact, size), _clip_indices(rounded, size)


def _round_half_up(position: Array) -> Array:
    """Round halves up, in float64, where adding 0.5 to a float32 is exact."""
    return np.floor(position.astype(np.float64) + 0.5)


def _clip_indices(indices: Array, size: int) -> Array:
    return np.clip(indices, 0, size - 1).astype(np.int64)
